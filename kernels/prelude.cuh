// What every kernel of autograd_gpu starts with: the functions of NumPy that C spells otherwise, NaN and signs as NumPy has them.
#ifndef AUTOGRAD_GPU_PRELUDE_CUH
#define AUTOGRAD_GPU_PRELUDE_CUH

#ifndef INFINITY                             // NVRTC has no <math.h>
#define INFINITY (__int_as_float(0x7f800000))
#endif
#ifndef NAN
#define NAN (__int_as_float(0x7fffffff))
#endif

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };      // what one access moves

template <class T> __device__ inline T ag_abs(T x) { return x < T(0) ? T(-x) : x; }
__device__ inline bool ag_abs(bool x) { return x; }
__device__ inline float ag_abs(float x) { return fabsf(x); }
__device__ inline double ag_abs(double x) { return fabs(x); }

// NaN in either operand is the result.
template <class T> __device__ inline T ag_max(T x, T y) { return (x > y || x != x) ? x : y; }
template <class T> __device__ inline T ag_min(T x, T y) { return (x < y || x != x) ? x : y; }

template <class T> __device__ inline T ag_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? T(0) : x; }
template <class T> __device__ inline T ag_reciprocal(T x) { return T(1) / x; }
template <class T> __device__ inline T ag_invert(T x) { return T(~x); }
__device__ inline bool ag_invert(bool x) { return !x; }

// By -1 the smallest integer has no quotient; C leaves that undefined, even of the remainder.
template <class T> __device__ inline bool ag_is_minus_one(T y) { return T(-1) < T(0) && y == T(-1); }

// The remainder has the divisor's sign; the quotient is rounded down. Integers by zero give 0, as NumPy's.
template <class T> __device__ inline T ag_remainder(T x, T y) {
  if (y == T(0) || ag_is_minus_one(y)) return T(0);
  const T r = x % y;
  return (r != T(0) && ((r < T(0)) != (y < T(0)))) ? T(r + y) : r;
}
template <class T> __device__ inline T ag_float_remainder(T x, T y) {
  const T r = fmod(x, y);
  if (r == T(0)) return copysign(T(0), y);
  return (r < T(0)) != (y < T(0)) ? r + y : r;
}
__device__ inline float ag_remainder(float x, float y) { return ag_float_remainder(x, y); }
__device__ inline double ag_remainder(double x, double y) { return ag_float_remainder(x, y); }

template <class T> __device__ inline T ag_fmod(T x, T y) { return y == T(0) || ag_is_minus_one(y) ? T(0) : T(x % y); }     // of integers

// Shifts by as many bits as there are, or more, leave nothing but the sign.
template <class T> __device__ inline T ag_left_shift(T x, T y) {
  return y >= T(0) && y < T(8 * sizeof(T)) ? T((unsigned long long)x << y) : T(0);
}
template <class T> __device__ inline T ag_right_shift(T x, T y) {
  return y >= T(0) && y < T(8 * sizeof(T)) ? T(x >> y) : x < T(0) ? T(-1) : T(0);
}

template <class T> __device__ inline T ag_floor_divide(T x, T y) {
  if (y == T(0)) return T(0);
  if (ag_is_minus_one(y)) return T(0ull - (unsigned long long)x);
  const T q = x / y;
  return (x % y != T(0) && ((x < T(0)) != (y < T(0)))) ? T(q - 1) : q;
}
template <class T> __device__ inline T ag_float_floor_divide(T x, T y) {
  if (y == T(0)) return x / y;
  T m = fmod(x, y);
  T d = (x - m) / y;
  if (m != T(0) && ((y < T(0)) != (m < T(0)))) d -= T(1);
  if (d == T(0)) return copysign(T(0), x / y);
  const T f = floor(d);
  return d - f > T(0.5) ? f + T(1) : f;
}
__device__ inline float ag_floor_divide(float x, float y) { return ag_float_floor_divide(x, y); }
__device__ inline double ag_floor_divide(double x, double y) { return ag_float_floor_divide(x, y); }

template <class T> __device__ inline T ag_logaddexp(T x, T y) {
  if (x == y) return x + T(0.693147180559945309417232121458176568);
  const T d = x - y;
  return d > T(0) ? x + log1p(exp(-d)) : d <= T(0) ? y + log1p(exp(d)) : d;
}

template <class T> __device__ inline T ag_logaddexp2(T x, T y) {
  if (x == y) return x + T(1);
  const T d = x - y, e = T(1.442695040888963407359924681001892137);
  return d > T(0) ? x + log1p(exp2(-d)) * e : d <= T(0) ? y + log1p(exp2(d)) * e : d;
}

template <class T> __device__ inline T ag_pow(T x, T y) {        // integers, by squaring; a negative power never comes here
  T r = T(1);
  for (; y > T(0); y = T(y / 2)) {
    if (y % T(2)) r = T(r * x);
    x = T(x * x);
  }
  return r;
}
__device__ inline float ag_pow(float x, float y) { return powf(x, y); }
__device__ inline double ag_pow(double x, double y) { return pow(x, y); }

template <class T> __device__ inline T ag_complex_pow(T x, T y) { return y == T(0) ? T(1) : pow(x, y); }

#endif

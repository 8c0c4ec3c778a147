// CUDA C++ as seen by g++: included ahead of a kernel's own text, which stays as it is.
#pragma once
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>                     // before clock becomes a macro
#include <stddef.h>
#include <type_traits>
#include <utility>
#include "simt.h"

#define SIMULATED_CUDA 1
#define __CUDA_ARCH__ 800
#define __CUDACC_VER_MAJOR__ 12
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __managed__ static
#define __shared__ static            // one block runs at a time, so one copy is enough; the checker knows the section
#define __restrict__ __restrict
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Vector types with CUDA's alignment: a misaligned one has to be found, not repaired.
#define SIMT_VECTOR(T, N)                                                                        \
  struct alignas(2 * sizeof(T)) N##2 { T x, y; };                                                \
  struct N##3 { T x, y, z; };                                                                    \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; };                \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                                    \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }                            \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIMT_VECTOR(float, float)
SIMT_VECTOR(double, double)
SIMT_VECTOR(int, int)
SIMT_VECTOR(signed char, char)
SIMT_VECTOR(unsigned char, uchar)
SIMT_VECTOR(short, short)
SIMT_VECTOR(unsigned short, ushort)
SIMT_VECTOR(long long, longlong)
SIMT_VECTOR(unsigned long long, ulonglong)
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---------------------------------------------------------------------------------------------- the scheduler, simt.cpp
struct SimtContext { uint3 thread, block; dim3 block_size, grid_size; };
extern "C" {
extern SimtContext* simt_current;                          // of the CUDA thread that runs now
int simt_barrier(int line, int predicate, int combine);    // combine: 0 nothing, 1 or, 2 and, 3 count
void simt_warp(int ballot, unsigned mask, const void* value, void* out, int size, int source, int site);
void* simt_dynamic_shared();
unsigned simt_lane();
unsigned simt_active_mask();
void simt_atomic(void* address, int size);                 // tells the race checker of an access that may meet others
[[noreturn]] void simt_trap(const char* message, int line);
}
#define threadIdx (simt_current->thread)
#define blockIdx (simt_current->block)
#define blockDim (simt_current->block_size)
#define gridDim (simt_current->grid_size)
enum { warpSize = 32 };

#define __syncthreads() ((void)simt_barrier(__LINE__, 0, 0))
#define __syncthreads_or(p) simt_barrier(__LINE__, !!(p), 1)
#define __syncthreads_and(p) simt_barrier(__LINE__, !!(p), 2)
#define __syncthreads_count(p) simt_barrier(__LINE__, !!(p), 3)
static inline void __threadfence() {}                      // memory is sequentially consistent here
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline unsigned __activemask() { return simt_active_mask(); }

enum { SITE_SHFL, SITE_UP, SITE_DOWN, SITE_XOR, SITE_BALLOT, SITE_SYNCWARP };    // operations that must not meet each other
template <class T> static inline T simt_shuffle(unsigned mask, T value, int source, int site) {
  T out;
  simt_warp(0, mask, &value, &out, sizeof(T), source, site);
  return out;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = simt_lane() & ~(width - 1);
  return simt_shuffle(mask, value, first + (source & (width - 1)), SITE_SHFL);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = simt_lane(), first = lane & ~(width - 1), source = lane - (int)delta;
  return simt_shuffle(mask, value, source >= first ? source : lane, SITE_UP);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = simt_lane(), first = lane & ~(width - 1), source = lane + (int)delta;
  return simt_shuffle(mask, value, source < first + width ? source : lane, SITE_DOWN);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = simt_lane(), first = lane & ~(width - 1), source = lane ^ bits;
  return simt_shuffle(mask, value, source < first + width ? source : lane, SITE_XOR);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned out;
  predicate = !!predicate;
  simt_warp(1, mask, &predicate, &out, sizeof out, 0, SITE_BALLOT);
  return out;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  unsigned out;
  int nothing = 0;
  simt_warp(1, mask, &nothing, &out, sizeof out, 0, SITE_SYNCWARP);
}

// ---------------------------------------------------------------------------------------------------------------- atomics
// One CUDA thread runs at a time, so plain operations are atomic; they only must not be seen as plain accesses.
#define SIMT_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#define SIMT_ATOMIC(NAME, EXPRESSION)                                                            \
  template <class T, class U = T> SIMT_UNSEEN static T atomic##NAME(T* address, U operand) {     \
    simt_atomic(address, sizeof(T));                                                             \
    T old = *address, value = (T)operand;                                                        \
    (void)value;                                                                                 \
    *address = (EXPRESSION);                                                                     \
    return old;                                                                                  \
  }
SIMT_ATOMIC(Add, old + value)
SIMT_ATOMIC(Sub, old - value)
SIMT_ATOMIC(Exch, value)
SIMT_ATOMIC(Min, value < old ? value : old)
SIMT_ATOMIC(Max, old < value ? value : old)
SIMT_ATOMIC(And, old & value)
SIMT_ATOMIC(Or, old | value)
SIMT_ATOMIC(Xor, old ^ value)
SIMT_ATOMIC(Inc, old >= value ? T(0) : T(old + 1))
SIMT_ATOMIC(Dec, old == T(0) || old > value ? value : T(old - 1))
template <class T> SIMT_UNSEEN static T atomicCAS(T* address, T compare, T value) {
  simt_atomic(address, sizeof(T));
  T old = *address;
  if (!std::memcmp(&old, &compare, sizeof(T))) *address = value;
  return old;
}

// ------------------------------------------------------------------------------------------------------------ device math
// In CUDA these are overloaded for float and double without std. C has an abs for int only, which would cut off fractions.
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;
#define SIMT_MIN_MAX(T)                                              \
  static inline T min(T a, T b) { return b < a ? b : a; }            \
  static inline T max(T a, T b) { return a < b ? b : a; }
SIMT_MIN_MAX(int)
SIMT_MIN_MAX(unsigned)
SIMT_MIN_MAX(long)
SIMT_MIN_MAX(unsigned long)
SIMT_MIN_MAX(long long)
SIMT_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float rsqrtf(float x) { return 1.f / std::sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double rsqrt(double x) { return 1. / std::sqrt(x); }
#define __expf expf
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf
#define __fmaf_rn fmaf
#define __fdividef(a, b) ((a) / (b))
#define __fadd_rn(a, b) ((float)((a) + (b)))
#define __fmul_rn(a, b) ((float)((a) * (b)))

// Functions that CUDA has and C++ has not; accurate to a few units of the last place, if not fast.
static inline double sinpi(double x) {
  const double r = std::remainder(x, 2.);                              // exact
  return std::fabs(r) > .5 ? std::sin(M_PI * std::copysign(1. - std::fabs(r), r)) : std::sin(M_PI * r);
}
static inline double cospi(double x) {
  const double r = std::fabs(std::remainder(x, 2.));
  return r > .25 && r < .75 ? std::sin(M_PI * (.5 - r)) : std::cos(M_PI * r);
}
static inline double erfcx(double x) {                                 // exp(x * x) * erfc(x)
  if (x < 5.) return std::exp(x * x) * std::erfc(x);
  double fraction = 0.;                                                // Abramowitz and Stegun 7.1.14
  for (int k = 60; k > 0; --k) fraction = k / 2. / (x + fraction);
  return 1. / (std::sqrt(M_PI) * (x + fraction));
}
static inline double erfcinv(double y) {                               // Halley's method on the logarithm's own scale
  if (!(y > 0. && y < 2.)) return y == 0. ? INFINITY : y == 2. ? -INFINITY : NAN;
  if (y > 1.) return -erfcinv(2. - y);
  double x = y < .1 ? std::sqrt(-std::log(y * std::sqrt(M_PI * -std::log(y)))) : (1. - y) * std::sqrt(M_PI) / 2.;
  for (int i = 0; i < 6; ++i) {
    const double step = (std::erfc(x) - y) / (-2. / std::sqrt(M_PI) * std::exp(-x * x));
    x -= step / (1. + x * step);
  }
  return x;
}
static inline double erfinv(double y) {
  if (std::fabs(y) > .5) return std::copysign(erfcinv(1. - std::fabs(y)), y);
  double x = y * std::sqrt(M_PI) / 2.;
  for (int i = 0; i < 6; ++i) {
    const double step = (std::erf(x) - y) / (2. / std::sqrt(M_PI) * std::exp(-x * x));
    x -= step / (1. + x * step);
  }
  return x;
}
static inline double normcdf(double x) { return .5 * std::erfc(-x / std::sqrt(2.)); }
static inline double normcdfinv(double p) { return -std::sqrt(2.) * erfcinv(2. * p); }
static inline double cyl_bessel(double order, double x) { return x > 713 ? INFINITY : std::cyl_bessel_i(order, x); }   // std's throws
static inline double cyl_bessel_i0(double x) { return cyl_bessel(0, std::fabs(x)); }
static inline double cyl_bessel_i1(double x) { return std::copysign(cyl_bessel(1, std::fabs(x)), x); }
#define SIMT_FLOAT_TOO(NAME)                                                       \
  static inline float NAME##f(float x) { return (float)NAME((double)x); }         \
  static inline float NAME(float x) { return (float)NAME((double)x); }
SIMT_FLOAT_TOO(sinpi)
SIMT_FLOAT_TOO(cospi)
SIMT_FLOAT_TOO(erfcx)
SIMT_FLOAT_TOO(erfcinv)
SIMT_FLOAT_TOO(erfinv)
SIMT_FLOAT_TOO(normcdf)
SIMT_FLOAT_TOO(normcdfinv)
SIMT_FLOAT_TOO(cyl_bessel_i0)
SIMT_FLOAT_TOO(cyl_bessel_i1)

template <class T> static inline T __ldg(const T* address) { return *address; }
template <class T> static inline T __ldcs(const T* address) { return *address; }
template <class T> static inline void __stcs(T* address, T value) { *address = value; }
#define SIMT_BITS(NAME, FROM, TO)                                    \
  static inline TO NAME(FROM value) {                                \
    TO out;                                                          \
    std::memcpy(&out, &value, sizeof out);                           \
    return out;                                                      \
  }
SIMT_BITS(__float_as_int, float, int)
SIMT_BITS(__int_as_float, int, float)
SIMT_BITS(__float_as_uint, float, unsigned)
SIMT_BITS(__uint_as_float, unsigned, float)
SIMT_BITS(__double_as_longlong, double, long long)
SIMT_BITS(__longlong_as_double, long long, double)
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static long long simt_clock;
static inline long long clock64() { return simt_clock += 10000000; }     // a kernel that spins for a time ends soon
#define clock() ((long)clock64())
#define __trap() simt_trap("__trap", __LINE__)

// -------------------------------------------------------------------------------------------------------- the entry points
// A kernel's parameter types are read off its function pointer, so that arguments can be checked against them.
template <class T> constexpr char simt_code() {
  if constexpr (std::is_same_v<T, bool>) return 'b';
  else if constexpr (std::is_floating_point_v<T>) return 'f';
  else if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
  else return 's';
}
template <class T> constexpr SimtParameter simt_parameter() {
  if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_pointer_t<T>;
    using Plain = std::remove_cv_t<To>;
    constexpr char kind = std::is_const_v<To> ? 'P' : 'p';
    if constexpr (std::is_void_v<Plain>) return {kind, 'v', 0, 8};
    else return {kind, simt_code<Plain>(), (int)sizeof(Plain), (int)alignof(Plain)};
  } else {
    return {'v', simt_code<T>(), (int)sizeof(T), (int)alignof(T)};
  }
}
template <auto Kernel> struct SimtEntry;
template <class... Args, void (*Kernel)(Args...)> struct SimtEntry<Kernel> {
  template <size_t... I> SIMT_UNSEEN static void spread(void** a, std::index_sequence<I...>) { Kernel(*(Args*)a[I]...); }
  SIMT_UNSEEN static void call(void** a) { spread(a, std::index_sequence_for<Args...>{}); }
  static constexpr SimtParameter parameters[sizeof...(Args) + 1] = {simt_parameter<Args>()..., {0, 0, 0, 0}};
};

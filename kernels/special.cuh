// Functions of scipy.special that CUDA has not. Computed in double whatever the type, as CuPy and SciPy do.
#ifndef AUTOGRAD_GPU_SPECIAL_CUH
#define AUTOGRAD_GPU_SPECIAL_CUH

// Reflection left of 0, recurrence up to 10, then the asymptotic series. Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18.
__device__ inline double ag_digamma_of(double x) {
  const double pi = 3.14159265358979323846;
  double sum = 0;
  if (x == 0) return copysign(INFINITY, -x);
  if (x < 0) {
    if (x == floor(x)) return NAN;
    sum = -pi / tan(pi * (x - trunc(x)));
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double z = 1 / (x * x);
  const double series = z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132 - z * (691. / 32760 - z / 12))))));
  return sum + log(x) - 0.5 / x - series;
}
template <class T> __device__ inline T ag_digamma(T x) { return T(ag_digamma_of(double(x))); }

// The sum of (q + k)^-s over k >= 0 for a whole s > 1: the first terms, then Euler and Maclaurin's series with (2k)! / B_2k below.
__device__ inline double ag_zeta(double s, double q) {
  const double divisors[12] = {12., -720., 30240., -1209600., 47900160., -1307674368000. / 691, 74724249600.,
                               -10670622842880000. / 3617, 5109094217170944000. / 43867, -802857662698291200000. / 174611,
                               14101100039391805440000. / 77683, -1693824136731743669452800000. / 236364091};
  if (q == INFINITY) return 0;
  if (q <= 0 && q == floor(q)) return INFINITY;
  double sum = pow(q, -s), term = 0;
  for (int k = 0; k < 9 || q <= 9; ++k) {
    q += 1;
    term = pow(q, -s);
    sum += term;
    if (fabs(term) < 1e-17 * fabs(sum)) return sum;
  }
  sum += term * q / (s - 1) - term / 2;
  double rising = 1;
  for (int k = 0; k < 12; ++k) {
    rising *= s + 2 * k;
    term /= q;
    sum += rising * term / divisors[k];
    rising *= s + 2 * k + 1;
    term /= q;
  }
  return sum;
}

// The n-th derivative of digamma. Abramowitz and Stegun 6.4.10.
template <class T> __device__ inline T ag_polygamma(double n, T x) {
  const double size = tgamma(n + 1) * ag_zeta(n + 1, double(x));
  return T(fmod(n, 2.) == 0 ? -size : size);
}

// exp(-|x|) times the modified Bessel functions of order 0 and 1; where they would overflow, their asymptotic series, 9.7.1.
__device__ inline double ag_scaled_bessel(double order, double x) {
  if (x < 30) return (order == 0 ? cyl_bessel_i0(x) : cyl_bessel_i1(x)) * exp(-x);
  double sum = 1, term = 1;
  for (int k = 1; k < 26; ++k) {
    term *= ((2 * k - 1) * (2 * k - 1) - 4 * order * order) / (8 * k * x);
    sum += term;
  }
  return sum / sqrt(6.28318530717958647692 * x);
}
template <class T> __device__ inline T ag_i0e(T x) { return T(ag_scaled_bessel(0, fabs(double(x)))); }
template <class T> __device__ inline T ag_i1e(T x) { return T(copysign(ag_scaled_bessel(1, fabs(double(x))), double(x))); }

#endif

// The part of CUDA's half-precision headers that kernels use, for g++ (12 or later, for _Float16).
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

struct __half_raw { uint16_t x; };
struct __nv_bfloat16_raw { uint16_t x; };

// Arithmetic through float and one rounding, as the hardware does it for a single operation.
template <class H> struct SimtHalf {
  friend H operator+(H a, H b) { return H(float(a) + float(b)); }
  friend H operator-(H a, H b) { return H(float(a) - float(b)); }
  friend H operator*(H a, H b) { return H(float(a) * float(b)); }
  friend H operator/(H a, H b) { return H(float(a) / float(b)); }
  friend H operator-(H a) { a.x ^= 0x8000; return a; }
  friend H& operator+=(H& a, H b) { return a = a + b; }
  friend H& operator-=(H& a, H b) { return a = a - b; }
  friend H& operator*=(H& a, H b) { return a = a * b; }
  friend H& operator/=(H& a, H b) { return a = a / b; }
  friend bool operator<(H a, H b) { return float(a) < float(b); }
  friend bool operator>(H a, H b) { return float(a) > float(b); }
  friend bool operator<=(H a, H b) { return float(a) <= float(b); }
  friend bool operator>=(H a, H b) { return float(a) >= float(b); }
  friend bool operator==(H a, H b) { return float(a) == float(b); }
  friend bool operator!=(H a, H b) { return float(a) != float(b); }
};

struct alignas(2) __half : SimtHalf<__half> {
  uint16_t x;
  __half() = default;
  __half(__half_raw raw) : x(raw.x) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> __half(T value) {
    _Float16 rounded = (_Float16)value;
    std::memcpy(&x, &rounded, 2);
  }
  operator __half_raw() const { return {x}; }
  operator float() const {
    _Float16 value;
    std::memcpy(&value, &x, 2);
    return (float)value;
  }
};

struct alignas(2) __nv_bfloat16 : SimtHalf<__nv_bfloat16> {
  uint16_t x;
  __nv_bfloat16() = default;
  __nv_bfloat16(__nv_bfloat16_raw raw) : x(raw.x) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> __nv_bfloat16(T value) {
    float f = (float)value;
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    x = f != f ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);      // to nearest, ties to even
  }
  operator __nv_bfloat16_raw() const { return {x}; }
  operator float() const {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  }
};
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;

static inline float __half2float(__half h) { return h; }
static inline __half __float2half(float f) { return f; }
static inline __half __float2half_rn(float f) { return f; }
static inline __half __double2half(double f) { return f; }
static inline float __bfloat162float(__nv_bfloat16 h) { return h; }
static inline __nv_bfloat16 __float2bfloat16(float f) { return f; }
static inline __nv_bfloat16 __float2bfloat16_rn(float f) { return f; }
struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
template <class H> static inline H __hadd(H a, H b) { return a + b; }
template <class H> static inline H __hmul(H a, H b) { return a * b; }
template <class H> static inline H __hfma(H a, H b, H c) { return H((double)float(a) * (double)float(b) + (double)float(c)); }
static inline unsigned short __half_as_ushort(__half h) { return h.x; }
static inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.x; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
template <class H> static inline bool __hisnan(H h) { return float(h) != float(h); }
template <class H> static inline int __hisinf(H h) {
  float f = h;
  return f == __builtin_inff() ? 1 : f == -__builtin_inff() ? -1 : 0;
}

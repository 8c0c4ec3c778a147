// Kernels to test the simulated devices with: right as they stand, wrong with one of the WITHOUT_ definitions.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

template <int N> struct Layout { long long size[N], stride[3][N]; };   // strides in elements: of the result, of two operands

template <class T, int N>
__global__ void add_strided(T* out, const T* a, const T* b, Layout<N> layout, long long count) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
    long long rest = i, at[3] = {0, 0, 0};
    for (int d = N - 1; d >= 0; --d) {
      const long long k = d ? rest % layout.size[d] : rest;
      rest /= layout.size[d];
      for (int j = 0; j < 3; ++j) at[j] += k * layout.stride[j][d];
    }
    out[at[0]] = a[at[1]] + b[at[2]];
  }
}

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T v[N]; };
template <class T, int N>                    // 16 bytes at a time
__global__ void multiply_packed(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, long long count) {
  const long long step = (long long)gridDim.x * blockDim.x, me = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (long long i = me; i < count / N; i += step) {
    const Pack<T, N> x = reinterpret_cast<const Pack<T, N>*>(a)[i], y = reinterpret_cast<const Pack<T, N>*>(b)[i];
    Pack<T, N> z;
    for (int k = 0; k < N; ++k) z.v[k] = x.v[k] * y.v[k];
    reinterpret_cast<Pack<T, N>*>(out)[i] = z;
  }
  for (long long i = count / N * N + me; i < count; i += step) out[i] = a[i] * b[i];
}

template <class T> __device__ T sum_of_block(T value) {
  __shared__ T parts[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
  for (int d = 16; d > 0; d >>= 1) value += __shfl_down_sync(0xffffffffu, value, d);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = threadIdx.x < warps ? parts[lane] : T(0);
  if (warp == 0)
    for (int d = 16; d > 0; d >>= 1) value += __shfl_down_sync(0xffffffffu, value, d);
#ifndef WITHOUT_LAST_BARRIER
  __syncthreads();                           // parts is written again for the next row
#endif
  return value;
}
template <class T> __global__ void sum_rows(const T* x, T* out, int rows, int columns) {
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    T own = T(0);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) own += x[(long long)r * columns + c];
    const T sum = sum_of_block(own);
    if (threadIdx.x == 0) out[r] = sum;
  }
}

extern "C" __global__ void reverse_blocks(const float* x, float* out) {
  extern __shared__ float held[];
  const int first = blockIdx.x * blockDim.x;
  held[threadIdx.x] = x[first + threadIdx.x];
#ifndef WITHOUT_BARRIER
  __syncthreads();
#endif
  out[first + threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

template <class T, class I>
__global__ void add_rows_at(T* out, const T* rows, const I* at, long long count, int columns, int size) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count * columns; i += (long long)gridDim.x * blockDim.x) {
    const I row = at[i / columns];
    T* target = &out[(long long)(row < 0 ? row + size : row) * columns + i % columns];
#ifdef WITHOUT_ATOMICS
    *target += rows[i];
#else
    atomicAdd(target, rows[i]);
#endif
  }
}

extern "C" __global__ void any_infinite(const float* x, int* flag, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const bool bad = i < count && !isfinite(x[i]);
  if (__syncthreads_or(bad) && threadIdx.x == 0) atomicExch(flag, 1);
}

extern "C" __global__ void split_barrier(float* x) {
  if (threadIdx.x < 16) {
    __syncthreads();
    x[threadIdx.x] = 1;
  } else {
    x[threadIdx.x] = 2;
    __syncthreads();
  }
}
extern "C" __global__ void lane_left(int* x) {
  if (threadIdx.x >= 20) return;
  x[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1, 1);
}
extern "C" __global__ void barrier_for_some(float* x) {
  if (threadIdx.x == 0) x[0] = __shfl_sync(1u, 1.f, 0);
  else if (threadIdx.x == 1) x[1] = __shfl_sync(6u, 1.f, 1);           // lane 2 never comes
  else __syncthreads();
}

template <class H> __global__ void silu(const H* x, H* out, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = H(float(x[i]) / (1.f + expf(-float(x[i]))));
}

extern "C" __global__ void scale(float* __restrict__ out, const float* __restrict__ x, float factor, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = x[i] * factor;
}

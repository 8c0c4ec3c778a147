// Values added to, or multiplied with, the elements of a target that index arrays name, where any number of values may meet. Words
// between at signs are filled in by cuda/scatter.py. A target has 32 or 64 bits; a bool's is an int that counts to 1.
__device__ inline void ag_add(int* p, bool v) { if (v) atomicOr(p, 1); }
__device__ inline void ag_add(long long* p, long long v) { atomicAdd((unsigned long long*)p, (unsigned long long)v); }
template <class T> __device__ inline void ag_add(T* p, T v) { atomicAdd(p, v); }

template <int bytes> struct Word { typedef unsigned int type; };
template <> struct Word<8> { typedef unsigned long long type; };

// No product is atomic, so a word is swapped once it is found to hold what the product was made of; 0 is the first guess.
template <class T, class V> __device__ inline void ag_multiply(T* p, V v) {
  typedef typename Word<sizeof(T)>::type Bits;
  union { Bits bits; T value; } seen, product;
  Bits found = 0;
  do {
    seen.bits = found;
    product.value = seen.value * v;
    found = atomicCAS((Bits*)p, seen.bits, product.bits);
  } while (found != seen.bits);
}

// Operand 0 is the target, which stands still along the index arrays' dimensions, 1 the values, then come the index arrays.
extern "C" __global__ void scatter_@operation@(@target@* target, const @value@* __restrict__ values, @indices@
                                                                      long long* report, int op, bool wraps, @geometry@ long long n) {
  typedef @index@ Index;
  const Index step = (Index)gridDim.x * blockDim.x;
  for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < (Index)n; i += step) {
    Index rest = i;
    @offsets@
    @places@
    ag_@operation@(target + o0, (@computed@)values[o1]);
  }
}

// The one elementwise loop, in two layouts. Words between at signs are filled in by cuda/launch.py for one traced program.

// flat: every operand is contiguous from a multiple of 16 bytes on, or a single element. As many elements as are 16 bytes of the widest
// operand go in one access of each, of fewer bytes where an operand's elements are narrower; the rest go one by one.
extern "C" __global__ void @name@_flat(@outputs@ @pointers@ @scalars@ long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  @single_loads@
@loops@
}

// strided: operands with strides of their own, 0 where one is broadcast; dimensions that lie together were merged before.
extern "C" __global__ void @name@_strided(@outputs@ @pointers@ @scalars@ @geometry@ long long n) {
  typedef @index@ Index;
  const Index step = (Index)gridDim.x * blockDim.x;
  for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < (Index)n; i += step) {
    Index rest = i;
    @offsets@
    @strided_elements@
    @statements@
    @stores@
  }
}

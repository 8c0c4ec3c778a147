// The flat layout of elementwise.cu on several tensors, each with operands of its own, for updates in place (cuda/update.py). A block
// does one chunk of one tensor: the last one whose first block is not behind it. Operands that do not lie at multiples of 16 bytes go
// element by element.
struct @name@_Tensors {
  void* at[@operands@][@most@];
  long long size[@most@];
  int first_block[@most@];
};

extern "C" __global__ void @name@_group(const @name@_Tensors tensors, @scalars@ int count) {
  int own = 0;
  for (int end = count; end - own > 1;) {
    const int middle = (own + end) / 2;
    if (tensors.first_block[middle] <= (int)blockIdx.x) own = middle; else end = middle;
  }
  const long long start = (long long)((int)blockIdx.x - tensors.first_block[own]) * @chunk@;
  const long long rest = tensors.size[own] - start, n = rest < @chunk@ ? rest : @chunk@;
  @own_pointers@
  const long long packs = (@addresses@) % @access@ ? 0 : n / @width@;
  const int first = threadIdx.x, step = blockDim.x;
@loops@
}

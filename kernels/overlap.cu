// Windows put back to where they were taken from, what several of them share summed: a thread looks for all that reach its element, so
// nothing is added to memory and the sum is the same each time. Words between at signs are filled in by cuda/overlap.py.
//
// columns: (lead, kernel0, kernel1, kernel2, count0, count1, count2, tail); out: (lead, size0, size1, size2, tail), from first0 ... on.
struct Along { @index@ size, first, kernel, stride, dilation, count; };

// The window whose element k lies at `at`, or -1.
__device__ inline @index@ ag_window(const Along& along, @index@ at, @index@ k) {
  const @index@ from = at - k * along.dilation;
  if (from < 0 || from % along.stride) return -1;
  const @index@ window = from / along.stride;
  return window < along.count ? window : -1;
}

extern "C" __global__ void overlap(@value@* __restrict__ out, const @value@* __restrict__ columns, @geometry@ @index@ tail, long long n) {
  typedef @index@ Index;
  const Along x = {@along0@}, y = {@along1@}, z = {@along2@};
  const Index step = (Index)gridDim.x * blockDim.x;
  for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < (Index)n; i += step) {
    Index rest = i;
    const Index t = rest % tail; rest /= tail;
    const Index c = rest % z.size + z.first; rest /= z.size;
    const Index b = rest % y.size + y.first; rest /= y.size;
    const Index a = rest % x.size + x.first; rest /= x.size;
    @value@ total = (@value@)0;
    for (Index k = 0; k < x.kernel; k++) {
      const Index p = ag_window(x, a, k);
      if (p < 0) continue;
      for (Index l = 0; l < y.kernel; l++) {
        const Index q = ag_window(y, b, l);
        if (q < 0) continue;
        for (Index m = 0; m < z.kernel; m++) {
          const Index r = ag_window(z, c, m);
          if (r < 0) continue;
          const Index taken = ((rest * x.kernel + k) * y.kernel + l) * z.kernel + m;
          total += columns[(((taken * x.count + p) * y.count + q) * z.count + r) * tail + t];
        }
      }
    }
    out[i] = total;
  }
}

// Indices that CuPy's own kernels are about to use: those wrap one that is out of range and say nothing. Filled in by cuda/bounds.py.
extern "C" __global__ void check_bounds(const @type@* __restrict__ indices, long long* report, int op,
                                                               bool wraps, int dim, long long size, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    ag_place(indices[i], size, wraps, report, op, dim);
}

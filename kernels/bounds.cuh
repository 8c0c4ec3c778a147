// What every kernel that takes integer indices has after prelude.cuh: the place that an index names, and word to the host where none.

// In host memory that is mapped for the device; devices.py reads it when the host has waited. The first thread that finds a bad index
// takes it, and `op` is written last: a report without it is not complete.
struct Report { unsigned long long taken; long long op, index, dim, size; };

// The place of an index in a dimension, -1 if it has none. `wraps`: negative ones count from the end.
__device__ inline long long ag_place(long long index, long long size, bool wraps, Report* report, int op, int dim) {
  if (index >= (wraps ? -size : 0) && index < size) return index < 0 ? index + size : index;
  if (atomicCAS(&report->taken, 0ull, 1ull) == 0) {
    report->index = index;
    report->dim = dim;
    report->size = size;
    __threadfence_system();
    report->op = op;
  }
  return -1;
}

// What every kernel that takes integer indices has after prelude.cuh: the place that an index names, and word to the host where none.

// A report: in host memory that is mapped for the device; devices.py reads it when the host has waited. The first thread that finds a
// bad index takes it, and the op is written last: without it a report is not complete.
enum { TAKEN, OP, INDEX, DIM, SIZE };

// The place of an index in a dimension, -1 if it has none. `wraps`: negative ones count from the end.
__device__ inline long long ag_place(long long index, long long size, bool wraps, long long* report, int op, int dim) {
  if (index >= (wraps ? -size : 0) && index < size) return index < 0 ? index + size : index;
  if (atomicCAS((unsigned long long*)&report[TAKEN], 0ull, 1ull) == 0) {
    report[INDEX] = index;
    report[DIM] = dim;
    report[SIZE] = size;
    __threadfence_system();
    report[OP] = op;
  }
  return -1;
}

// Precompiled: what every kernel that CuPy writes includes. Parsing it once makes such a kernel compile twice as fast.
#include "cuda_on_host.h"
#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
#include <cupy/hip_workaround.cuh>
#include <cupy/float16.cuh>

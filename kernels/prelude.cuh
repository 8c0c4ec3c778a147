// What every kernel of autograd_gpu starts with. Nothing is needed in common yet: the first kernel adds what it shares here.
#ifndef AUTOGRAD_GPU_PRELUDE_CUH
#define AUTOGRAD_GPU_PRELUDE_CUH

#endif

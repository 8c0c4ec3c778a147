  for (long long p = first; p < @count@; p += step) {
    @pack_loads@
    @packs@
#pragma unroll
    for (int k = 0; k < @width@; ++k) {
      @pack_elements@
      @statements@
      @pack_results@
    }
    @pack_stores@
  }
  for (long long i = @count@ * @width@ + first; i < n; i += step) {
    @elements@
    @statements@
    @stores@
  }

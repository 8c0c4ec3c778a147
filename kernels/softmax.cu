// Softmax, log_softmax and their derivatives: a state of each row, as reduce.cu makes it, then the row once more with that state.

struct Softmax {
  static constexpr bool of_two = false;
  static __device__ Acc element(Acc x, Acc) { return x; }
  template <class S> static __device__ Acc value(Acc x, Acc, S s) { return exp(x - s.top) / whole(s); }
  template <class S> static __device__ Acc whole(S s) { return s.top < Acc(INFINITY) ? s.sum : Acc(NAN); }      // inf - inf is NaN, for the whole row
};

struct LogSoftmax : Softmax {
  template <class S> static __device__ Acc value(Acc x, Acc, S s) { return x - s.top - log(whole(s)); }
};

struct SoftmaxBackward {
  static constexpr bool of_two = true;
  static __device__ Acc element(Acc result, Acc grad) { return grad * result; }
  template <class S> static __device__ Acc value(Acc result, Acc grad, S s) { return grad * result - result * s.sum; }
};

struct LogSoftmaxBackward {
  static constexpr bool of_two = true;
  static __device__ Acc element(Acc, Acc grad) { return grad; }
  template <class S> static __device__ Acc value(Acc result, Acc grad, S s) { return grad - exp(result) * s.sum; }
};

// Rows of n elements that are `inner` apart. Where that is 1, threads lie along x and take `width` elements at a time, else along y.
extern "C" __global__ void @name@(Output* __restrict__ out, const Input* __restrict__ x,
    const Input* __restrict__ grad, Index rows, Index n, Index inner, Acc none) {
  typedef @rule@ Rule;
  constexpr bool along_x = @along_x@;
  constexpr int width = @width@;
  typedef Pack<Input, width> Packed;
  const Index row = Index(blockIdx.x) * (along_x ? blockDim.y : blockDim.x) + (along_x ? threadIdx.y : threadIdx.x);
  const Index lane = along_x ? threadIdx.x : threadIdx.y, lanes = along_x ? blockDim.x : blockDim.y;
  const Index first = along_x ? row * n / width : row / inner * n * inner + row % inner, step = along_x ? 1 : inner;
  const Index packs = row < rows ? n / width : 0;
  State s[width];
#pragma unroll
  for (int k = 0; k < width; ++k) s[k] = {none};
  for (Index p = lane; p < packs; p += lanes) {
    const Packed a = reinterpret_cast<const Packed*>(x)[first + p * step];
    const Packed b = Rule::of_two ? reinterpret_cast<const Packed*>(grad)[first + p * step] : a;
#pragma unroll
    for (int k = 0; k < width; ++k) s[k].add(Rule::element(Acc(Loaded(a.at[k])), Acc(Loaded(b.at[k]))));
  }
  const State whole = along_x ? joined_along_x(joined(s)) : joined_along_y(joined(s));
  for (Index p = lane; p < packs; p += lanes) {
    const Packed a = reinterpret_cast<const Packed*>(x)[first + p * step];
    const Packed b = Rule::of_two ? reinterpret_cast<const Packed*>(grad)[first + p * step] : a;
    Packed result;
#pragma unroll
    for (int k = 0; k < width; ++k) result.at[k] = Output(Rule::value(Acc(Loaded(a.at[k])), Acc(Loaded(b.at[k])), whole));
    reinterpret_cast<Packed*>(out)[first + p * step] = result;
  }
}

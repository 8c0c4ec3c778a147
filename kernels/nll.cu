// nll_loss and its derivative. input is (samples / inner, classes, inner), target (samples). A target that is no class gives NaN, and
// is reported (bounds.cuh).

typedef @target@ Target;

// A sample's loss and weight, 0 where its target is ignored; without input the weight is in the loss's place.
__device__ inline State loss_of(const Input* x, const Target* target, const Input* weight, Index i, Index classes, Index inner,
                               long long ignored, long long* report, int op, int dim) {
  const long long t = target[i];
  if (t == ignored) return {Acc(0), Acc(0)};
  if (ag_place(t, classes, false, report, op, dim) < 0) return {Acc(NAN), Acc(NAN)};
  const Acc w = weight ? Acc(Loaded(weight[t])) : Acc(1);
  return {x ? -Acc(Loaded(x[(i / inner * classes + Index(t)) * inner + i % inner])) * w : w, w};
}

extern "C" __global__ void nll(Output* __restrict__ out, const Input* __restrict__ x,
    const Target* __restrict__ target, const Input* __restrict__ weight, Acc* __restrict__ states, Index samples, Index classes,
    Index inner, long long ignored, long long* report, int op, int dim) {
  constexpr bool each = @each@;              // the losses themselves are wanted
  State s = {Acc(0), Acc(0)};
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < samples; i += Index(gridDim.x) * blockDim.x) {
    const State one = loss_of(x, target, weight, i, classes, inner, ignored, report, op, dim);
    if (each) out[i] = Output(one.sum);
    else s.join(one);
  }
  if (each) return;
  s = joined_along_x(s);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) s.store(out, 0, 1, Acc(0));
  else reinterpret_cast<State*>(states)[blockIdx.x] = s;
}

// `each`: a gradient per sample, else one for all; divided by the sum of the weights where there is one.
extern "C" __global__ void nll_backward(Input* __restrict__ out, const Input* __restrict__ grad,
    const Target* __restrict__ target, const Input* __restrict__ weight, const Acc* __restrict__ total, Index elements, Index classes,
    Index inner, long long ignored, bool each) {
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += Index(gridDim.x) * blockDim.x) {
    const Index sample = i / inner / classes * inner + i % inner, c = i / inner % classes;
    const long long t = target[sample];
    Acc g = 0;
    if (t == c && t != ignored) {
      g = -Acc(Loaded(grad[each ? sample : 0]));
      if (total) g /= total[0];
      if (weight) g *= Acc(Loaded(weight[c]));
    }
    out[i] = Input(g);
  }
}

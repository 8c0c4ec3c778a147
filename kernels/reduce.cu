// Reductions. Every result is joined of its elements' states in a fixed order, without atomics, so that it is the same each time.
// cuda/reduce.py fills in the words between at signs for dtypes and layout; softmax.cu and nll.cu start with the same first part.

typedef @input@ Input;                       // as stored
typedef @loaded@ Loaded;                     // half precision becomes float
typedef @computed@ Acc;                      // what is computed in
typedef @output@ Output;
typedef @index@ Index;

// States: what is kept of the elements seen. All members are of type Acc; the first one starts as the neutral element, the others as 0.

template <bool Mean> struct Total {
  Acc sum;
  __device__ void add(Acc x) { sum += x; }
  __device__ void join(Total o) { sum += o.sum; }
  __device__ void store(Output* out, Index row, Index, Acc divisor) const { out[row] = Output(Mean ? sum / divisor : sum); }
};

struct Product {
  Acc product;
  __device__ void add(Acc x) { product *= x; }
  __device__ void join(Product o) { product *= o.product; }
  __device__ void store(Output* out, Index row, Index, Acc) const { out[row] = Output(product); }
};

template <bool Largest> struct Extreme {
  Acc value;
  __device__ void add(Acc x) { value = Largest ? ag_max(value, x) : ag_min(value, x); }
  __device__ void join(Extreme o) { add(o.value); }
  __device__ void store(Output* out, Index row, Index, Acc) const { out[row] = Output(value); }
};

// Mean and sum of squared differences from it. Welford 1962; joined as in Chan, Golub, LeVeque 1979. The mean is kept as a difference
// from the first element, or its rounding would spoil the squares of elements that are alike but far from 0.
struct Moments {
  Acc mean, squares, count, first;
  __device__ void add(Acc x) {
    if (count == 0) first = x;
    count += 1;
    x -= first;
    const Acc off = x - mean;
    mean += off / count;
    squares += off * (x - mean);
  }
  __device__ void join(Moments o) {
    if (o.count == 0) return;
    if (count == 0) { *this = o; return; }
    const Acc share = o.count / (count + o.count), off = (o.first - first) + (o.mean - mean);
    mean += off * share;
    squares += o.squares + off * off * count * share;
    count += o.count;
  }
  __device__ void store(Output* out, Index row, Index results, Acc divisor) const {      // variances, then means
    out[row] = Output(squares / divisor);
    out[results + row] = Output(count == 0 ? Acc(NAN) : first + mean);
  }
};

// The largest element and the sum of exp(x - largest). Milakov, Gimelshein 2018, "Online normalizer calculation for softmax".
template <class T> struct Exponentials {      // a template only so that texts for integers need not compile it
  T top, sum;
  __device__ void add(T x) { join({x, T(1)}); }
  __device__ void join(Exponentials o) {     // NaN is never top, but makes the sum NaN
    if (o.top == top) sum += o.sum;          // infinities too, whose difference would be NaN
    else if (o.top > top) { sum = sum * exp(top - o.top) + o.sum; top = o.top; }
    else sum += o.sum * exp(o.top - top);
  }
  __device__ void store(Output* out, Index row, Index, Acc) const { out[row] = Output(top + log(sum)); }
};

// A sum of weighted elements and the sum of the weights.
template <bool Mean> struct Weighted {
  Acc sum, weight;
  __device__ void join(Weighted o) { sum += o.sum; weight += o.weight; }
  __device__ void store(Output* out, Index row, Index, Acc) const { out[row] = Output(Mean ? sum / weight : sum); }
};

typedef @state@ State;
static_assert(sizeof(State) % sizeof(Acc) == 0, "a state is moved as an array of Acc");

// The states of a row's threads as one, which each of them gets. The threads of a row lie along x, a power of two of them. Once a kernel.
__device__ inline State joined_along_x(State s) {
  for (int distance = (blockDim.x < 32 ? blockDim.x : 32) / 2; distance > 0; distance /= 2) {
    State other = s;
    Acc* words = reinterpret_cast<Acc*>(&other);
#pragma unroll
    for (int k = 0; k < sizeof(State) / sizeof(Acc); ++k) words[k] = __shfl_xor_sync(0xffffffffu, words[k], distance);
    s.join(other);
  }
  if (blockDim.x > 32) {
    __shared__ State of_warps[@block@ / 32];
    const int warps = blockDim.x / 32, first = threadIdx.y * warps;
    if (threadIdx.x % 32 == 0) of_warps[first + threadIdx.x / 32] = s;
    __syncthreads();
    s = of_warps[first];
    for (int k = 1; k < warps; ++k) s.join(of_warps[first + k]);
  }
  return s;
}

// The same where they lie along y.
__device__ inline State joined_along_y(State s) {
  __shared__ State of_threads[@block@];
  const int own = threadIdx.y * blockDim.x + threadIdx.x;
  of_threads[own] = s;
  __syncthreads();
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) of_threads[own].join(of_threads[own + half * blockDim.x]);
    __syncthreads();
  }
  return of_threads[threadIdx.x];
}

template <class S, int N> __device__ inline S joined(S (&s)[N]) {
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) s[k].join(s[k + half]);
  return s[0];
}

// The state of elements begin, begin + step ... of a row, four at a time.
template <class S, class Load> __device__ inline S gathered(Load load, Index begin, Index end, Index step, Acc none) {
  S s[4] = {{none}, {none}, {none}, {none}};
  Index i = begin;
  for (; i + 3 * step < end; i += 4 * step)
#pragma unroll
    for (int k = 0; k < 4; ++k) s[k].add(load(i + k * step));
  for (; i < end; i += step) s[0].add(load(i));
  return joined(s);
}

// The same of a row that lies together, 16 bytes at a time between what is not aligned.
template <class S> __device__ inline S gathered_packs(const Input* x, Index length, Index lane, Index lanes, Acc none) {
  constexpr int width = 16 / sizeof(Input);
  S s[width];
#pragma unroll
  for (int k = 0; k < width; ++k) s[k] = {none};
  const Index ahead = Index((16 - reinterpret_cast<size_t>(x) % 16) % 16 / sizeof(Input));
  const Index head = ahead < length ? ahead : length, packs = (length - head) / width;
  for (Index i = lane; i < head; i += lanes) s[0].add(Acc(Loaded(x[i])));
  for (Index p = lane; p < packs; p += lanes) {
    const Pack<Input, width> q = reinterpret_cast<const Pack<Input, width>*>(x + head)[p];
#pragma unroll
    for (int k = 0; k < width; ++k) s[k].add(Acc(Loaded(q.at[k])));
  }
  for (Index i = head + packs * width + lane; i < length; i += lanes) s[0].add(Acc(Loaded(x[i])));
  return joined(s);
}

// The elements of a result are shared by threads along x where they lie closer than the results do, else along y; and by gridDim.y
// blocks, which leave states to be joined by the second kernel.
extern "C" __global__ void reduce_@name@(Output* __restrict__ out, const Input* __restrict__ x, Acc* __restrict__ states,
    @geometry@ Index results, Index n, Index part, Acc none, Acc divisor) {
  constexpr bool along_x = @along_x@;
  const Index row = Index(blockIdx.x) * (along_x ? blockDim.y : blockDim.x) + (along_x ? threadIdx.y : threadIdx.x);
  const Index lane = along_x ? threadIdx.x : threadIdx.y, lanes = along_x ? blockDim.x : blockDim.y;
  State s = {none};
  if (row < results) {
    const Index begin = blockIdx.y * part, end = n - begin < part ? n : begin + part;
    Index rest = row;
    @row_offset@
    x += o0;
    auto load = [&](Index i) {
      Index rest = i;
      @element_offset@
      return Acc(Loaded(x[o0]));
    };
    s = @gathered@;
  }
  s = along_x ? joined_along_x(s) : joined_along_y(s);
  if (row >= results || lane != 0) return;
  if (gridDim.y == 1) s.store(out, row, results, divisor);
  else reinterpret_cast<State*>(states)[row * gridDim.y + blockIdx.y] = s;
}

extern "C" __global__ void @name@_states(Output* __restrict__ out, const Acc* __restrict__ states, Index results,
    Index parts, Acc none, Acc divisor) {
  const Index row = Index(blockIdx.x) * blockDim.y + threadIdx.y;
  State s = {none};
  if (row < results)
    for (Index p = threadIdx.x; p < parts; p += blockDim.x) s.join(reinterpret_cast<const State*>(states)[row * parts + p]);
  s = joined_along_x(s);
  if (row < results && threadIdx.x == 0) s.store(out, row, results, divisor);
}

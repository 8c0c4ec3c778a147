"""Random tensors, and tensors filled at random."""
from __future__ import annotations

import operator

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu import generator as _generator
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.generator import PRECISION, Generator, generator_for
from autograd_gpu.ops.creation import check_tensor, make, method, public, size_of
from autograd_gpu.ops.inplace import inplace
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import Op, op
from autograd_gpu.ops.operands import refuse

for _name in ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state"):
    public(getattr(_generator, _name))


# ------------------------------------------------------------------------------------------------------------ new tensors

def _drawn(draw, generator, dtype, device, requires_grad):
    """A leaf over draw(generator, dtype)."""
    where = _device.resolve(device)
    source = generator_for(where, generator)
    return make(lambda xp, d: draw(source, d), dtype, where, requires_grad)


@public
def rand(*shape, size=None, generator=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """Numbers evenly spread in [0, 1). Raises RuntimeError for a negative size or an integer dtype. Reference: torch.rand."""
    size = size_of("rand", shape, size)
    return _drawn(lambda g, d: g.uniform(size, d), generator, dtype, device, requires_grad)


@public
def randn(*shape, size=None, generator=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """Normally distributed numbers, of mean 0 and variance 1.

    Raises: RuntimeError for a negative size or an integer dtype. Reference: torch.randn.
    """
    size = size_of("randn", shape, size)
    return _drawn(lambda g, d: g.normal(size, d), generator, dtype, device, requires_grad)


def _whole(name, argument, value):
    if isinstance(value, Tensor) and value._array.size == 1:
        value = value.item()
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}")
    return operator.index(value)


def _check_bounds(name, low, high, dtype):
    """Raises RuntimeError where [low, high) is empty or a dtype cannot hold its numbers."""
    if low >= high:
        raise RuntimeError(f"{name}: expects 'from' to be less than 'to', but got from={low} >= to={high}")
    least, most = -2**63, 2**63 - 1
    if dtype.kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "b":
        least, most = 0, 1
    for word, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name}: {word} is out of bounds for {_dtype.of(dtype)}: {value}")


@public
def randint(*bounds, low=0, high=None, size=None, generator=None, dtype=None, device=None, requires_grad=False, layout=None,
            pin_memory=False) -> Tensor:
    """Integers in [low, high): randint(high, size) or randint(low, high, size).

    Dtype: int64 unless given; floating dtypes hold integers as well.
    Raises: TypeError for bounds that are no integers, RuntimeError for an empty range or one that the dtype cannot hold.
    Reference: torch.randint.
    """
    if size is None and bounds:
        *bounds, size = bounds
    if len(bounds) == 2 and high is None:
        low, high = bounds
    elif len(bounds) == 1:
        low, high = (low, bounds[0]) if high is None else (bounds[0], high)
    elif bounds:
        high = None
    if high is None or size is None:
        raise TypeError("randint(): expected (high, size) or (low, high, size)")
    low, high = _whole("randint", "low", low), _whole("randint", "high", high)
    size = size_of("randint", (), size)
    d = np.dtype(np.int64) if dtype is None else _dtype.to_numpy(dtype)
    _check_bounds("randint", low, high, d)
    return _drawn(lambda g, d: g.integers(low, high, size).astype(d), generator, d, device, requires_grad)


@public
def randperm(n, *, generator=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """The numbers 0 to n - 1 in random order, as int64. Raises RuntimeError for a negative n. Reference: torch.randperm."""
    n = _whole("randperm", "n", n)
    if n < 0:
        raise RuntimeError(f"randperm: Trying to create tensor with negative dimension {n}: [{n}]")
    return _drawn(lambda g, d: g.permutation(n).astype(d), generator, dtype or np.int64, device, requires_grad)


def _like(name, function):
    def like(input, *, generator=None, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None,
             pin_memory=False) -> Tensor:
        check_tensor(name, input)
        return function(input._array.shape, generator=generator, dtype=dtype or input._array.dtype, device=device or input.device,
                        requires_grad=requires_grad)
    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"As {name[:-5]}, with input's shape, and its dtype and device unless given. Reference: torch.{name}."
    return public(like)


_like("rand_like", rand)
_like("randn_like", randn)


@public
def randint_like(input, *bounds, low=0, high=None, generator=None, dtype=None, device=None, requires_grad=False, layout=None,
                 memory_format=None, pin_memory=False) -> Tensor:
    """As randint, with input's shape, and its dtype and device unless given. Reference: torch.randint_like."""
    check_tensor("randint_like", input)
    return randint(*bounds, low=low, high=high, size=input._array.shape, generator=generator, dtype=dtype or input._array.dtype,
                   device=device or input.device, requires_grad=requires_grad)


# ------------------------------------------------------------------------------------------- drawn around other tensors
# What is drawn does not depend smoothly on what it is drawn from: PyTorch lets a gradient of zeros flow, and so do these.

def _scattered(mean, std, noise, dtype):
    if _dtype.category(dtype) not in "fc":
        raise NotImplementedError(f"normal: not implemented for {_dtype.of(dtype)}: give floats")
    return (mean + std * noise).astype(dtype, copy=False)


@op(node="NormalBackward1", method=False, function=False)
def normal_around(mean, std: float = 1.0, generator: Generator = None):
    """Normally distributed around each element of mean."""
    return _scattered(mean, std, generator_for(_device.of(mean), generator).normal(mean.shape, mean.dtype), mean.dtype)

normal_around.vjp(mean=lambda grad: F.zeros_like(grad))


@op(node="NormalBackward2", method=False, function=False)
def normal_spread(std, mean: float = 0.0, generator: Generator = None):
    """Normally distributed around a number, with each element of std as the standard deviation."""
    return _scattered(mean, std, generator_for(_device.of(std), generator).normal(std.shape, std.dtype), std.dtype)

normal_spread.vjp(std=lambda grad: F.zeros_like(grad))


@op(node="NormalBackward3", method=False, function=False)
def normal_both(mean, std, generator: Generator = None):
    """Normally distributed around each element of mean, with each element of std as the standard deviation."""
    shape = np.broadcast_shapes(mean.shape, std.shape)
    return _scattered(mean, std, generator_for(_device.of(mean), generator).normal(shape, mean.dtype), mean.dtype)

normal_both.vjp(mean=lambda grad: F.zeros_like(grad), std=lambda grad: F.zeros_like(grad))


@public
def normal(mean, std=1.0, size=None, *, generator=None, dtype=None, device=None, requires_grad=False, layout=None,
           pin_memory=False) -> Tensor:
    """Normally distributed numbers: around each element of mean, with std or its elements as standard deviation, or `size` of them.

    Raises: RuntimeError for a negative std, TypeError for two numbers without size. Reference: torch.normal.
    """
    if isinstance(std, Tensor):
        with _device.guard(std.device):
            smallest = std._array.min().item() if std._array.size else 0
    else:
        smallest = std
    if smallest < 0:
        raise RuntimeError(f"normal expects all elements of std >= 0.0, but found std {smallest}")
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        return F.normal_both(mean, std, generator)
    if isinstance(mean, Tensor):
        return F.normal_around(mean, std, generator)
    if isinstance(std, Tensor):
        return F.normal_spread(std, mean, generator)
    if size is None:
        raise TypeError("normal(): with numbers as mean and std, `size` is needed")
    size = size_of("normal", (), size)
    return _drawn(lambda g, d: (mean + std * g.normal(size, d)).astype(d, copy=False), generator, dtype, device, requires_grad)


@op(node="BernoulliBackward0", method=False, function=False)
def bernoulli_draw(self, generator: Generator = None):
    """1 with the probability that each element gives, else 0."""
    _check_probabilities(self)
    return _coins(self, self.shape, self.dtype, generator_for(_device.of(self), generator))

bernoulli_draw.vjp(self=lambda grad: F.zeros_like(grad))


def _check_probabilities(p):
    if _dtype.category(p.dtype) != "f":
        raise NotImplementedError(f"bernoulli: not implemented for {_dtype.of(p.dtype)}: probabilities are floats")
    if not ((p >= 0) & (p <= 1)).all():
        raise RuntimeError("bernoulli: Expected p_in >= 0 && p_in <= 1 for each probability")


def _coins(p, shape, dtype, generator):
    wide = np.dtype(np.float64 if getattr(p, "dtype", None) == np.float64 else np.float32)
    return (generator.uniform(shape, wide) < p).astype(dtype)


@public
@method
def bernoulli(input, p=None, *, generator=None) -> Tensor:
    """1 with the probability that each element of input, or p, gives, else 0.

    Raises: RuntimeError for probabilities outside [0, 1] or of an integer dtype. Reference: torch.bernoulli.
    """
    check_tensor("bernoulli", input)
    refuse("bernoulli", input._array, "c")
    if p is None:
        return F.bernoulli_draw(input, generator)
    return F.zeros_like(input).bernoulli_(p, generator=generator)


@public
@method
def multinomial(input, num_samples, replacement=False, *, generator=None) -> Tensor:
    """`num_samples` indices per row, each drawn with the weight that it has in input.

    Shape: input (n) or (m, n); result (num_samples) or (m, num_samples), int64.
    Raises: RuntimeError for weights that are negative, not finite or all 0, or for more samples than there are without replacement.
    Reference: torch.multinomial. Without replacement: the largest of weight / exponential noise, Efraimidis and Spirakis 2006.
    """
    check_tensor("multinomial", input)
    weights = input._array
    if _dtype.category(weights.dtype) != "f":
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype}")
    if weights.ndim not in (1, 2):
        raise RuntimeError(f"multinomial: prob_dist must be 1 or 2 dim, got shape {weights.shape}")
    if num_samples <= 0:
        raise RuntimeError(f"multinomial: cannot sample n_sample <= 0 samples, got {num_samples}")
    n = weights.shape[-1]
    if not replacement and num_samples > n:
        raise RuntimeError(f"multinomial: cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
                           f"{num_samples} of {n}")
    where = _device.of(weights)
    source, xp = generator_for(where, generator), _device.module(where)
    with _device.guard(where), np.errstate(all="ignore"):
        rows = xp.atleast_2d(weights.astype(np.float64))
        if not (xp.isfinite(rows) & (rows >= 0)).all():
            raise RuntimeError("multinomial: probability tensor contains either `inf`, `nan` or element < 0")
        if not (rows.sum(-1) > 0).all():
            raise RuntimeError("multinomial: invalid multinomial distribution (sum of probabilities <= 0)")
        if replacement:
            found = _with_replacement(xp, rows, source.uniform((len(rows), num_samples), np.dtype(np.float64)))
        else:
            noise = -xp.log1p(-source.uniform(rows.shape, np.dtype(np.float64)))
            found = xp.argsort(-(rows / noise), axis=-1)[:, :num_samples]
        return wrap(xp.ascontiguousarray(found.reshape(*weights.shape[:-1], num_samples)))


def _with_replacement(xp, rows, uniform):
    """One search for all rows: row i's cumulated weights are spread over [i, i + 1)."""
    total = xp.cumsum(rows, -1)
    number = xp.arange(len(rows))[:, None]
    found = xp.searchsorted((total / total[:, -1:] + number).ravel(), (uniform + number).ravel(), side="right")
    last = rows.shape[-1] - 1 - (rows[:, ::-1] > 0).argmax(-1)           # rounding must not reach beyond the last weight that counts
    return xp.minimum(found.reshape(uniform.shape) - number * rows.shape[-1], last[:, None])


# -------------------------------------------------------------------------------------------------------- drawn in place

def _fill(**options):
    """Decorator: a body that draws an array like self, as an in-place method of Tensor; `options` as those of op."""
    def register(body):
        body.__name__ = body.__name__.removeprefix("_fill_")
        record = Op(body, **options).vjp(self=lambda grad: F.zeros_like(grad))
        method(inplace(record))
        return record
    return register


@_fill()
def _fill_normal(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator = None):
    """Draw normally distributed numbers. Raises RuntimeError for a negative std. Reference: torch.Tensor.normal_."""
    if std < 0:
        raise RuntimeError(f"normal_ expects std >= 0.0, but found std={std}")
    return mean + std * generator_for(_device.of(self), generator).normal(self.shape, self.dtype)


@_fill()
def _fill_uniform(self, low: float = 0.0, to: float = 1.0, *, generator: Generator = None):
    """Draw numbers evenly spread in [low, to). Raises RuntimeError for low > to. Reference: torch.Tensor.uniform_."""
    if low > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}")
    array = generator_for(_device.of(self), generator).uniform(self.shape, self.dtype) * (to - low) + low
    return np.where(array >= to, low, array) if low < to else array       # the product may round up to `to`


@_fill()
def _fill_exponential(self, lambd: float = 1.0, *, generator: Generator = None):
    """Draw exponentially distributed numbers of rate lambd.

    Raises: RuntimeError unless lambd > 0. Reference: torch.Tensor.exponential_.
    """
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return -np.log1p(-generator_for(_device.of(self), generator).uniform(self.shape, self.dtype)) / lambd


@_fill(node="Random", digit=lambda first, second: 2 if first is None else 1 if second is None else 0)
def _fill_random(self, first: int = None, second: int = None, *, generator: Generator = None):
    """Draw integers: random_() up to the largest that the dtype holds exactly, random_(to) in [0, to), random_(from, to).

    Raises: RuntimeError for an empty range or one that the dtype cannot hold. Reference: torch.Tensor.random_.
    """
    low, high = (first, second) if second is not None else (0, first)
    if high is None:
        kind = self.dtype.kind
        high = 2 if kind == "b" else min(np.iinfo(self.dtype).max, 2**63 - 1) + 1 if kind in "iu" else \
            2 ** (8 if kind == "V" else PRECISION[self.dtype.itemsize]) + 1
    else:
        _check_bounds("random_", low, high, self.dtype)
    return generator_for(_device.of(self), generator).integers(low, high, self.shape).astype(self.dtype)


@_fill(node="Bernoulli", digit=lambda p: 1 if isinstance(p, Tensor) else 2)
def _fill_bernoulli(self, p: float = 0.5, *, generator: Generator = None):
    """Draw 1 with probability p, a number or a tensor of them, else 0.

    Raises: RuntimeError for a probability outside [0, 1]. Reference: torch.Tensor.bernoulli_.
    """
    if isinstance(p, Tensor):
        p = p._array
        _check_probabilities(p)
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return _coins(p, self.shape, self.dtype, generator_for(_device.of(self), generator))

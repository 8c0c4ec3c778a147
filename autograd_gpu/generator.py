"""Streams of random numbers, one per device, and their seeds.

The numbers are NumPy's and CuPy's: a seed repeats a run here, but gives other numbers than it gives in PyTorch.
"""
from __future__ import annotations

import contextlib
import functools
import math
import secrets
import threading
from typing import Any

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.cuda.streams import here, hold

_FIRST_SEED = 67280421310721                 # of a new Generator, as in PyTorch
PRECISION = {2: 11, 4: 24, 8: 53}            # bits of the significand by bytes of a float


def _seed(seed):
    seed = int(seed)
    if not -2**63 <= seed < 2**64:
        raise ValueError(f"manual_seed: Overflow: a seed has 64 bits, got {seed}")
    return seed % 2**64


class Generator:
    """A stream of random numbers on one device. Threads may share it; each draw is made under its lock.

    Reference: torch.Generator.
    """

    def __init__(self, device="cpu"):
        self.device = _device.resolve(device)
        self._lock = threading.Lock()        # guards what follows
        self._stream = self._drawn_on = None     # the numbers, and the CUDA stream that was current when the last ones were drawn
        self.manual_seed(_FIRST_SEED)

    def manual_seed(self, seed) -> Generator:
        """Start the stream that belongs to a seed; returns the generator. Raises ValueError for one of more than 64 bits."""
        seed = _seed(seed)
        with self._drawing():
            if self._drawn_on is not None:   # its memory may still be in use
                hold([self._drawn_on], self._stream)
            self._seed, self._stream = seed, self._start(seed)
            self._path, self._branches = (seed,), 0          # what names the stream, and how many were derived from it: see Repeatable
        return self

    def _drawing(self):
        """A block that draws, or starts: one at a time."""
        return self._lock if self.device.type == "cpu" else self._drawing_on_cuda()

    @contextlib.contextmanager
    def _drawing_on_cuda(self):
        """And behind the last one, whatever stream that was on: what it goes on from lies in the device's memory."""
        with self._lock, _device.guard(self.device):
            now = here()
            if self._drawn_on not in (None, now):
                now.wait_stream(self._drawn_on)
            self._drawn_on = now
            yield

    def _replace(self, **new):
        """Give attributes other values; their values before, to give them back."""
        with self._lock:
            before = {name: getattr(self, name) for name in new}
            self.__dict__.update(new)
        return before

    def _start(self, seed):
        if self.device.type == "cpu":
            return np.random.Generator(np.random.PCG64(seed))
        random = _device.module(self.device).random
        with _device.guard(self.device):
            return random.Generator(random.XORWOW(seed))

    def initial_seed(self) -> int:
        """The seed that the stream started from."""
        return self._seed

    def seed(self) -> int:
        """Start a stream from a seed that nobody can foretell; returns the seed."""
        self.manual_seed(secrets.randbits(63))
        return self._seed

    def get_state(self) -> Tensor:
        """Where the stream is, as a tensor of bytes. Raises RuntimeError for a CUDA generator: CuPy does not tell."""
        self._check_cpu("get_state")
        with self._lock:
            state = self._stream.bit_generator.state
            parts = ((self._seed, 8), (state["state"]["state"], 16), (state["state"]["inc"], 16), (state["has_uint32"], 1),
                     (state["uinteger"], 4))
            data = b"".join(value.to_bytes(size, "little") for value, size in parts)
        return wrap(np.frombuffer(data, np.uint8).copy())

    def set_state(self, new_state: Tensor) -> Generator:
        """Go back to where get_state was called; returns the generator. Raises TypeError or RuntimeError for what is no state."""
        self._check_cpu("set_state")
        if not isinstance(new_state, Tensor) or new_state._array.dtype != np.uint8:
            raise TypeError(f"set_state: expected a ByteTensor from get_state, got {type(new_state).__name__}")
        data = new_state._array.tobytes()
        if len(data) != 45:
            raise RuntimeError(f"set_state: a state from get_state has 45 bytes, got {len(data)}")
        seed, state, inc, has, value = (int.from_bytes(data[i:j], "little")
                                        for i, j in ((0, 8), (8, 24), (24, 40), (40, 41), (41, 45)))
        with self._lock:
            self._seed = seed
            self._stream.bit_generator.state = {"bit_generator": "PCG64", "state": {"state": state, "inc": inc},
                                                "has_uint32": has, "uinteger": value}
        return self

    def _check_cpu(self, name):
        if self.device.type != "cpu":
            raise RuntimeError(f"{name}: the state of a generator on {self.device} cannot be read or written: seed it instead")

    # Draws: arrays on the generator's device.

    def uniform(self, shape, dtype):
        """Evenly spread numbers in [0, 1), never 1 after rounding, in each part of a complex number."""
        _check_floating("rand", dtype)
        if dtype.kind == "c":
            return self._complex(self.uniform, shape, dtype)
        wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
        with self._drawing():
            array = self._stream.random(shape, dtype=wide)
        if wide != dtype:
            scale = 2 ** (8 if dtype.kind == "V" else PRECISION[2])
            array = (np.floor(array * scale) / scale).astype(dtype)       # a ufunc of NumPy hands CuPy's arrays to CuPy
        return array

    def normal(self, shape, dtype):
        """Numbers of mean 0 and variance 1."""
        _check_floating("randn", dtype)
        if dtype.kind == "c":
            return self._complex(self.normal, shape, dtype) * math.sqrt(0.5)
        with self._drawing():
            return self._stream.standard_normal(shape, dtype=np.float32 if dtype.itemsize == 2 else dtype).astype(dtype, copy=False)

    def _complex(self, draw, shape, dtype):
        part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        array = _device.module(self.device).empty(shape, dtype)
        array.real, array.imag = draw(shape, part), draw(shape, part)
        return array

    def integers(self, low, high, shape):
        """Integers in [low, high), as int64."""
        with self._drawing():
            return self._stream.integers(low, high, shape, dtype=np.int64)

    def permutation(self, n):
        """The numbers 0 to n - 1 in random order, as int64."""
        with self._drawing():
            if self.device.type == "cpu":
                return self._stream.permutation(n)
            return self._stream.random(n, dtype=np.float64).argsort()


def _check_floating(name, dtype):
    if _dtype.category(dtype) not in "fc":
        raise NotImplementedError(f"{name}: not implemented for {_dtype.of(dtype)}, only for floating and complex dtypes; use randint")


# --------------------------------------------------------------------------------------------------- generators and seeds

default_generator = Generator()
default_generator.seed()
_defaults = {_device.CPU: default_generator}
_lock = threading.Lock()                     # guards _defaults


def default_of(where) -> Generator:
    """The generator used on a device where none is given."""
    with _lock:
        if where not in _defaults:
            _defaults[where] = Generator(where).manual_seed(default_generator.initial_seed())
        return _defaults[where]


class _Repeats(threading.local):
    generators: Any = None                   # those of CUDA that can be drawn from again, in a block of Repeatable.first in this thread


_repeats = _Repeats()


class Repeatable:
    """What the default generators draw from now on, so that it can be drawn again: in a block of `first`, then in blocks of `again`.

    The CPU's stream goes on in `first` as if nothing was. One of CUDA, whose place CuPy does not tell, branches off: in these blocks it
    draws from a stream whose seed is derived from its own. `devices`: where tensors are whose generators may not have been made yet.
    """

    def __init__(self, devices=()):
        for where in devices:
            default_of(where)
        with default_generator._lock:
            self._seed, self._place = default_generator._seed, default_generator._stream.bit_generator.state
        self._paths = {}                     # CUDA generator: what the seed of its branch is made of
        for generator in _on_cuda():
            with generator._lock:
                generator._branches += 1
                self._paths[generator] = (*generator._path, generator._branches)

    @contextlib.contextmanager
    def first(self):
        """Draw what will be repeated. Raises RuntimeError, in the draw, where this thread draws from a generator made since."""
        branches, around = self._branched(), _repeats.generators
        outer = {generator: generator._replace(**new) for generator, new in branches.items()}
        _repeats.generators = branches.keys() if around is None else branches.keys() & around
        try:
            yield
        finally:
            _repeats.generators = around
            for generator, before in outer.items():
                if generator._stream is branches[generator]["_stream"]:          # it was not seeded meanwhile
                    generator._replace(**before)

    @contextlib.contextmanager
    def again(self):
        """Draw the same again; afterwards each generator goes on where it was."""
        stream = np.random.Generator(np.random.PCG64(0))
        stream.bit_generator.state = self._place
        streams = {default_generator: {"_stream": stream, "_seed": self._seed}} | self._branched()
        outer = {generator: generator._replace(**new) for generator, new in streams.items()}
        try:
            yield
        finally:
            for generator, before in outer.items():
                generator._replace(**before)

    def _branched(self):
        return {generator: {"_stream": _Branch(generator, path), "_path": path, "_branches": 0} for generator, path in self._paths.items()}


def _on_cuda():
    """The default generators that have been made for CUDA devices."""
    with _lock:
        return [generator for generator in _defaults.values() if generator is not default_generator]


class _Branch:
    """A CUDA generator's stream of a derived seed, started when the first number is drawn: that costs a kernel."""

    def __init__(self, generator, path):
        self._generator, self._path = generator, path

    @functools.cached_property
    def _stream(self):
        seed, = np.random.SeedSequence(self._path).generate_state(1, np.uint64)
        return self._generator._start(int(seed))

    def __getattr__(self, name):
        return getattr(self._stream, name)


def generator_for(where, generator=None) -> Generator:
    """A generator for arrays of a device: the one given or the default. Raises TypeError or RuntimeError if it does not fit."""
    if generator is None:
        found = default_of(where)
        if _repeats.generators is not None and found is not default_generator and found not in _repeats.generators:
            raise RuntimeError(f"random numbers were first drawn on {where} inside of what is to be run again: pass it a tensor of that "
                               f"device, or draw a number there before")
        return found
    if not isinstance(generator, Generator):
        raise TypeError(f"argument 'generator' must be a torch.Generator, not {type(generator).__name__}")
    if generator.device != where:
        raise RuntimeError(f"Expected a '{where}' device type for generator but found '{generator.device}': make it with "
                           f"Generator(device='{where}')")
    return generator


def manual_seed(seed) -> Generator:
    """Seed the default generators of all devices; returns the CPU's. Raises ValueError for a seed of more than 64 bits.

    The numbers are NumPy's and CuPy's, not PyTorch's. Reference: torch.manual_seed.
    """
    seed = _seed(seed)
    with _lock:
        for generator in _defaults.values():
            generator.manual_seed(seed)
    return default_generator


def seed() -> int:
    """Seed the default generators of all devices with a number that nobody can foretell; returns it. Reference: torch.seed."""
    return manual_seed(secrets.randbits(63)).initial_seed()


def initial_seed() -> int:
    """The seed of the CPU's default generator. Reference: torch.initial_seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Where the CPU's default stream is. Reference: torch.get_rng_state."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Go back in the CPU's default stream. Reference: torch.set_rng_state."""
    default_generator.set_state(new_state)

"""Every wait and every hold that the package makes is needed: without it, the simulated devices find a fault.

A program runs once as it is, and nothing is found; then once for each wait for an event that the package makes in it and each memory that
it has held, with that one left out. Each line of the package that does either has to be missed by some program.
"""
import ast
import contextlib
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd import forward_ad
from autograd_gpu.cuda import streams
from autograd_gpu.utils.checkpoint import checkpoint
from tests.simgpu import runtime

if not runtime.active():
    pytest.skip("the simulated devices are not installed: run with -p tests.simgpu.plugin, in an environment with cupy-rocm-7-0",
                allow_module_level=True)

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.plants_faults
cuda = torch.cuda
PACKAGE = str(Path(torch.__file__).parent)
FULL = np.linspace(-1, 1, 1000)


def leaf(where="cuda:0"):
    return torch.tensor(FULL, device=where, requires_grad=True)


# ---------------------------------------------------------------------------------------------------------------- programs

def given_gradient():
    """The caller's gradient, what is added to, and what it reads of the result."""
    one = cuda.Stream()
    with one:
        x = leaf()
        y = x * x
    cuda.current_stream().wait_stream(one)
    y.backward(torch.ones(1000, device="cuda", dtype=torch.float64))
    doubled = x.grad * 2
    x.grad = None
    return doubled


def branches():
    """A trunk on one stream, branches on two others, joined on the first."""
    x = leaf()
    h = x * 2
    parts = []
    for stream in cuda.Stream(), cuda.Stream():
        stream.wait_stream(cuda.current_stream())
        h.detach().record_stream(stream)
        with stream:
            parts.append(h.exp())
        cuda.current_stream().wait_stream(stream)
        parts[-1].detach().record_stream(cuda.current_stream())
    y = (parts[0] * parts[1]).sum()
    del h, parts, stream
    y.backward()
    return x.grad


def chain():
    """One value on one stream after another, each only read."""
    one, other = cuda.Stream(), cuda.Stream()
    with one:
        x = leaf()
        h = x * 2
    other.wait_stream(one)
    h.detach().record_stream(other)
    with other:
        y = h.exp()
        del h
        y = y.sum()
        y.backward()
        doubled = x.grad * 1
        x.grad = None
    return doubled


def chain_in_a_level():
    """chain, of gradients that have tangents."""
    one, other = cuda.Stream(), cuda.Stream()
    with forward_ad.dual_level():
        with one:
            x = leaf()
            h = forward_ad.make_dual(x, torch.tensor(FULL, device="cuda")) * 2
        other.wait_stream(one)
        for t in forward_ad.unpack_dual(h):
            t.detach().record_stream(other)
        del t
        with other:
            y = h.exp()
            del h
            y = y.sum()
            y.backward()
            doubled = x.grad * 1
            x.grad = None
        return doubled


def shared_leaf():
    """A leaf's gradient from two streams."""
    x = leaf()
    parts = []
    for stream in cuda.Stream(), cuda.Stream():
        stream.wait_stream(cuda.current_stream())
        x.record_stream(stream)
        with stream:
            parts.append(x * 2)
        cuda.current_stream().wait_stream(stream)
        parts[-1].detach().record_stream(cuda.current_stream())
    y = (parts[0] + parts[1]).sum()
    del parts, stream
    y.backward()
    doubled = x.grad * 1
    x.grad = None
    return doubled


def two_devices():
    """A stream of each device, and a worker of each; the copy back is made on the streams that are current."""
    one, other = cuda.Stream(0), cuda.Stream(1)
    with one, other:
        x, y = leaf(), leaf("cuda:1")
        z = ((x * 2).to("cuda:1") * (y * 3)).sum()
    cuda.current_stream(0).wait_stream(one)
    cuda.current_stream(1).wait_stream(other)
    z.backward()
    return x.grad * 1, y.grad * 1


def copied():
    """A copy into memory that the target's stream has just used for something else."""
    x = torch.tensor(FULL, device="cuda")
    other = cuda.Stream(1)
    with other:
        y = torch.tensor(FULL, device="cuda:1")
        z = y * 2
        del y
        return z, x.to("cuda:1") + 1


def recorded():
    """record_stream is all that keeps the memory."""
    one, x = cuda.Stream(), torch.tensor(FULL, device="cuda")
    one.wait_stream(cuda.current_stream())
    with one:
        x.record_stream(one)
        y = x * 2
        del x
    return y


def checkpointed():
    """Computed again on the streams of the first run, for nodes on others."""
    one, other = cuda.Stream(), cuda.Stream()

    def function(x):
        h = x * 2
        other.wait_stream(one)
        with other:
            h.detach().record_stream(other)
            y = h.exp() * h
        one.wait_stream(other)
        y.detach().record_stream(one)
        return y * 3
    with one:
        x = leaf()
        y = checkpoint(function, x * 1, use_reentrant=False)
    cuda.current_stream().wait_stream(one)
    y.backward(torch.ones(1000, device="cuda", dtype=torch.float64))
    return x.grad


def unpacked():
    """Computed again because somebody asks for a saved value on another stream, which has written to what the function reads."""
    one, w = cuda.Stream(), torch.tensor(FULL, device="cuda")
    one.wait_stream(cuda.current_stream())
    w.record_stream(one)
    with one:
        x = leaf()
        y = checkpoint(lambda x: (x * w).sin(), x, use_reentrant=False)
    cuda.current_stream().wait_stream(one)
    w.mul_(2)
    return y.grad_fn._saved_self.detach() * 2


class Numbers:
    """What goes on from one draw to the next, in the device's memory, as cuRAND's: the simulated devices draw on the host."""

    def __init__(self):
        self.state = cp.zeros(1000)

    def random(self, shape, dtype):
        self.state += 1
        return self.state.astype(dtype)


def drawn():
    """A generator used on two streams, and started again."""
    one, generator = cuda.Stream(), torch.Generator(device="cuda")
    generator._start = lambda seed: Numbers()
    with one:
        generator.manual_seed(1)
        first = torch.rand(1000, device="cuda", generator=generator)
    second = torch.rand(1000, device="cuda", generator=generator)
    generator.manual_seed(2)
    return first, second


class Described:
    """Another library's array."""

    def __init__(self, array):
        self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__


class Exporter:
    """Another library's tensor, exported where a stream of its own is current."""

    def __init__(self, stream):
        self.stream = stream
        with stream:
            self.t = torch.tensor(FULL, device="cuda") * 2

    def __dlpack_device__(self):
        return self.t.__dlpack_device__()

    def __dlpack__(self, **options):
        with self.stream:
            return self.t.__dlpack__(**options)


def interfaces():
    """Memory of other libraries."""
    ours, theirs = cuda.Stream(), cp.cuda.Stream(non_blocking=True)
    with theirs:
        a = cp.asarray(FULL) * 2
        offered = Described(a)
    with ours:
        x = torch.as_tensor(offered) + 1
        return x + torch.from_dlpack(Exporter(theirs))


PROGRAMS = [given_gradient, branches, chain, chain_in_a_level, shared_leaf, two_devices, copied, recorded, checkpointed, unpacked,
            interfaces, drawn]


# ------------------------------------------------------------------------------------------------------------------- sites

HELPERS = ("wait_for", "wait_stream", "wait_event", "await_gradients", "keep", "hold")         # what makes a stream wait, or holds memory
ELSEWHERE = ("cuda/offload.py", "cuda/traffic.py")           # tests/cuda/test_offload_order.py leaves theirs out


def running_site():
    """(file, function, line) of the package that the running wait or hold comes from; None for one of the program's own."""
    frame = sys._getframe(1)
    while frame.f_code.co_name in (*HELPERS, "wait") or frame.f_code.co_qualname.startswith("Without.") or \
            not frame.f_code.co_filename.startswith((PACKAGE, __file__)):
        frame = frame.f_back
    path = frame.f_code.co_filename
    return None if path == __file__ else (path[len(PACKAGE) + 1:], frame.f_code.co_name, frame.f_lineno)


def written_sites():
    """All of the package's, as its text has them; CuPy waits by itself in __dlpack__."""
    found = set()
    for path in Path(PACKAGE).rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name not in (*HELPERS, "wait", "_ended") and name not in ELSEWHERE:
                found |= {(name, function.name, call.lineno) for call in ast.walk(function) if isinstance(call, ast.Call) and
                          getattr(call.func, "attr", getattr(call.func, "id", None)) in (*HELPERS, "__dlpack__")}
    return found


class Without:
    """A block that counts the waits and holds of the package, and leaves out the one of a number."""

    def __init__(self, left_out=None):
        self.left_out, self.made = left_out, []

    def goes(self):
        where = running_site()
        if where is not None:
            self.made.append(where)
        return where is None or len(self.made) - 1 != self.left_out

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        stream = cp.cuda.Stream.__mro__[1]
        wait = stream.wait_event
        self.patch.setattr(stream, "wait_event", lambda this, event: self.goes() and wait(this, event))
        for own in streams.keep, streams.hold:
            for name, module in list(sys.modules.items()):
                if name.startswith("autograd_gpu.") and vars(module).get(own.__name__) is own and (module, own) != (streams, streams.hold):
                    self.patch.setattr(module, own.__name__, lambda *given, own=own: self.goes() and own(*given))
        return self

    def __exit__(self, *exc_info):
        self.patch.undo()


def findings(program, left_out=None):
    """(what the simulated devices find, where waits and holds were made)."""
    runtime.settle()
    runtime.take_findings()
    with Without(left_out) as counted, warnings.catch_warnings(), contextlib.suppress(RuntimeError):
        warnings.simplefilter("ignore")
        result = program()
        del result
    runtime.settle()
    return runtime.take_findings(), counted.made


def test_every_wait_and_hold_is_needed():
    made, missed = Counter(), Counter()
    for program in PROGRAMS:
        found, sites = findings(program)
        assert found == [], program.__name__
        made.update(sites)
        missed.update([where for k, where in enumerate(sites) if findings(program, k)[0]])
    for where in sorted(made):
        print(f"{where[0]}:{where[2]} {where[1]}: left out {made[where]} times, missed {missed[where]} times")
    assert set(missed) == written_sites()

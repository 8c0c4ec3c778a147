"""Every public name of torch.autograd and torch.func, listed from the installed PyTorch, is here too, or there is a reason."""
import importlib
import sys

import pytest

import autograd_gpu

MODULES = ["autograd", "autograd.graph", "autograd.function", "autograd.functional", "autograd.profiler", "autograd.gradcheck",
           "autograd.forward_ad", "autograd.grad_mode", "autograd.anomaly_mode", "func"]

# What of torch.autograd is public without standing in its __all__.
MORE = {"autograd": ["anomaly_mode", "forward_ad", "function", "functional", "graph", "is_multithreading_enabled", "profiler"]}

REASONS = {
    "autograd": {
        "NestedIOFunction": "kept in PyTorch for programs of before 0.4; Function does it all",
    },
    "autograd.function": {
        "BackwardCFunction": "PyTorch's glue to its C++ nodes; here FunctionCtx is the node",
        "FunctionMeta": "makes PyTorch's node classes; a Function makes its own here, without a metaclass",
        "NestedIOFunction": "kept in PyTorch for programs of before 0.4; Function does it all",
    },
    "autograd.profiler": {
        "EnforceUnique": "a check of nvprof's files, see load_nvprof",
        "KinetoStepTracker": "counts steps for Kineto, PyTorch's C++ profiler",
        "MemRecordsAcc": "reads the allocation records of Kineto, PyTorch's C++ profiler",
        "emit_itt": "marks ranges for Intel VTune, through Intel's library",
        "load_nvprof": "reads files of nvprof, which NVIDIA has replaced by Nsight Systems: see emit_nvtx",
        "parse_nvprof_trace": "reads files of nvprof, which NVIDIA has replaced by Nsight Systems: see emit_nvtx",
    },
    "autograd.gradcheck": {
        "get_analytical_jacobian": "deprecated in PyTorch, which says that it is no part of its interface: functional.jacobian",
        "get_numerical_jacobian": "deprecated in PyTorch, which says that it is no part of its interface: gradcheck",
        "get_numerical_jacobian_wrt_specific_input": "a part of the deprecated get_numerical_jacobian",
    },
    "func": {
        "functionalize": "rewrites in-place operations for compilers; nothing is compiled here",
        "rearrange": "the notation of einops, for PyTorch's first-class dimensions: reshape and permute, or the package einops",
    },
}


def module(name, package):
    """A module by its dotted name, also where its parent has a function of the same name; None where there is none."""
    try:
        importlib.import_module(f"{package}.{name}")
    except ImportError:
        return None
    return sys.modules[f"{package}.{name}"]


def public(name, oracle):
    return sorted({*module(name, "torch").__all__, *MORE.get(name, ())})


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_here(name, oracle):
    ours = module(name, "autograd_gpu")
    assert [n for n in public(name, oracle) if not hasattr(ours, n) and n not in REASONS.get(name, ())] == []


@pytest.mark.parametrize("name", MODULES)
def test_reasons_are_still_needed(name, oracle):
    ours, theirs = module(name, "autograd_gpu"), public(name, oracle)
    excused = REASONS.get(name, {})
    assert [n for n in excused if n not in theirs] == [], "PyTorch has no such public name"
    assert [n for n in excused if hasattr(ours, n)] == [], "it is here: drop the reason"
    assert all(excused.values())


@pytest.mark.parametrize("name", MODULES)
def test_all_names_exactly_what_is_public(name):
    ours = module(name, "autograd_gpu")
    assert len(set(ours.__all__)) == len(ours.__all__) and all(hasattr(ours, n) for n in ours.__all__)


def test_the_same_objects_under_their_other_names():
    assert autograd_gpu.vmap is autograd_gpu.func.vmap and autograd_gpu.autograd.functional.jacobian is not autograd_gpu.func.jacrev
    assert autograd_gpu.nn.utils.stateless.functional_call is autograd_gpu.func.functional_call

"""The same program on PyTorch and on this package: what it returned or raised, as values that can be compared."""
import warnings

import numpy as np


def plain(x):
    """What a program returned as Python values."""
    if hasattr(x, "detach"):
        return x.tolist(), tuple(x.shape), str(x.dtype), x.requires_grad, None if x.grad_fn is None else x.grad_fn.name()
    if isinstance(x, (tuple, list)):
        return [plain(y) for y in x]
    return x


def result(f, torch, tell=plain):
    """A program's result, as `tell` puts it, or the type of what it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return tell(f(torch))
        except Exception as error:           # its type is the result
            return type(error).__name__


def said(f, *words):
    """The type of what f raises, and which words are in its text."""
    try:
        f()
    except Exception as error:
        return type(error).__name__, [w in str(error) for w in words]
    return None


def filled(torch, module, seed=0):
    """The module with parameters and buffers that are the same on both sides."""
    rs = np.random.RandomState(seed)
    with torch.no_grad():
        for t in [*module.parameters(), *module.buffers()]:
            if t.dtype.is_floating_point:
                t.copy_(torch.tensor(rs.uniform(0.2, 1.0, tuple(t.shape)).astype("float32")))
    return module


def linear(torch, i=2, o=2, seed=0):
    return filled(torch, torch.nn.Linear(i, o), seed)


def data(torch, *shape, seed=1):
    return torch.tensor(np.random.RandomState(seed).randn(*shape).astype("float32"), requires_grad=True)

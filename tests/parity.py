"""The same program on PyTorch and on this package: what it returned or raised, as values that can be compared."""
import warnings


def plain(x):
    """What a program returned as Python values."""
    if hasattr(x, "detach"):
        return x.tolist(), tuple(x.shape), str(x.dtype), x.requires_grad, None if x.grad_fn is None else x.grad_fn.name()
    if isinstance(x, (tuple, list)):
        return [plain(y) for y in x]
    return x


def result(f, torch):
    """A program's result, or the type of what it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(f(torch))
        except Exception as error:           # its type is the result
            return type(error).__name__

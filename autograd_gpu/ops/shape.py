"""Views and other changes of shape, and copies."""
from __future__ import annotations

import builtins
import contextlib
import operator
import sys

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import INFERENCE, Tensor, count_write, version, wrap
from autograd_gpu.engine.forward_mode import carry
from autograd_gpu.engine.grad_mode import enable_grad, local
from autograd_gpu.ops.inplace import about_to_write, check_writable
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.op import view as view_op
from autograd_gpu.ops.operands import check_int
from autograd_gpu.ops.views import rename, set_history

numpy = np                                   # np is CuPy in a body that runs on a CUDA device
_slice = builtins.slice
ALL = _slice(None)


def wrap_dim(dim, ndim, name):
    """A dimension counted from the front. Raises IndexError unless a tensor of ndim dimensions has it; 0-d ones have one."""
    n = ndim or 1
    if dim.__class__ is not int:
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}: {dim!r:.60}")
        dim = operator.index(dim)
    if -n <= dim < n:
        return dim + n if dim < 0 else dim
    raise IndexError(f"{name}: Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim}) for a tensor with "
                     f"{ndim} dimensions")


def wrap_dims(dims, ndim, name):
    """Several dimensions counted from the front. Raises RuntimeError where one is named twice."""
    found = [wrap_dim(d, ndim, name) for d in (dims if isinstance(dims, (tuple, list)) else (dims,))]
    for d in found:
        if found.count(d) > 1:
            raise RuntimeError(f"{name}: dim {d} appears multiple times in the list of dims {tuple(dims)}: duplicate dims are not "
                               "allowed")
    return found


def sizes_of(args, named, name):
    """The sizes of a function that takes them one by one, as a tuple or by name."""
    if not args:
        args = tuple(named.values())
        if len(args) != 1:
            raise TypeError(f"{name}(): expected sizes, as integers or one tuple")
    if len(args) == 1 and isinstance(args[0], float):
        raise TypeError(f"{name}(): expected sizes, as integers or one tuple, not the float {args[0]}")
    return tuple(args[0]) if len(args) == 1 and not hasattr(args[0], "__index__") else \
        tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


def _reshaped(array, size, name):
    """array.reshape(size) with PyTorch's errors."""
    try:
        made = array.reshape(size)
    except ValueError:
        made = None
    except TypeError:
        check_int(name, "shape", *size)
        raise
    if made is None or made.shape != size and min(size, default=0) < -1:
        raise RuntimeError(f"{name}: shape {list(size)} is invalid for input of size {array.size} (shape {array.shape}): the sizes "
                           f"must multiply to it, and at most one, given as -1, can be inferred")
    return made


# ------------------------------------------------------------------------------------------------------- sizes of the same data

def _viewed(array, size, name):
    made = _reshaped(array, size, name)
    base = made.base
    if base is array or (base is not None and base is array.base) or array.size == 0 or array.flags.c_contiguous:
        return made
    raise RuntimeError(f"{name}: view size {list(size)} is not compatible with input tensor's size {list(array.shape)} and stride, "
                       f"as the elements are not in one piece: use .reshape(...) or .contiguous().view(...)")


@view_op(varargs="size", function=False, divert={"size and type(size[0]) is not int and type(size[0]).__name__ == "
                                                 "'dtype'": "view_dtype"})
def view(self, size: Size):
    """The same memory in another shape; one size may be -1. With a dtype instead, its bytes read as that.

    Raises: RuntimeError where only a copy would do (use reshape), or the sizes do not fit.
    Reference: torch.Tensor.view.
    """
    try:
        made = self.reshape(size)
    except (ValueError, TypeError):
        return _viewed(self, size, "view")
    base = made.base
    if (base is self or base is self.base) and base is not None and (made.shape == size or min(size) == -1):
        return made
    return _viewed(self, size, "view")

view.vjp(self=lambda grad, self_shape: F.reshape(grad, self_shape))


@composite(method=False, function=False)
def view_dtype(input, dtype):
    """The same memory read as another dtype; to autograd no view, but a tensor without history, whatever the dtype."""
    array, dtype = input._array, _dtype.to_numpy(dtype)
    try:
        made = wrap(array.view(dtype))
    except (ValueError, TypeError) as error:
        raise RuntimeError(f"view: memory of dtype {_dtype.of(array.dtype)} and shape {array.shape} cannot be read as dtype "
                           f"{_dtype.of(dtype)}: {error}") from None
    if made._counter is None:                # of inference mode it is an inference tensor
        made._counter = version(input)
    return made


@view_op(node="ViewBackward0", method=False, function=False)
def contiguous_view(self, size: Size):
    """Memory in C order in another shape: what reshape comes to for most tensors."""
    return _reshaped(self, size, "reshape")

contiguous_view.vjp(self=lambda grad, self_shape: F.reshape(grad, self_shape))


@view_op(method=False, function=False)
def reshape_alias(self, size: Size):
    """A view in another shape of memory that is not in one piece."""
    return _viewed(self, size, "reshape")

reshape_alias.vjp(self=lambda grad, self_shape: F.reshape(grad, self_shape))


@op(method=False, function=False)
def unsafe_view(self, size: Size):
    """A view that autograd takes for a result of its own: of memory that nobody else has."""
    return _reshaped(self, size, "reshape")

unsafe_view.vjp(self=lambda grad, self_shape: F.reshape(grad, self_shape))


@composite
def reshape(input, *shape, **named):
    """The elements in another shape: a view where the memory allows it, else a copy. One size may be -1.

    Raises: RuntimeError where the sizes do not fit. Reference: torch.reshape.
    """
    if shape and type(shape[0]) is tuple:
        shape = shape[0]
    elif not shape or type(shape[0]) is not int:
        shape = sizes_of(shape, named, "reshape")
    if not isinstance(input, Tensor):
        return input.reshape(shape)
    array = input._array
    if array.flags.c_contiguous:
        return F.contiguous_view(input, shape)
    if is_viewable(array, shape):
        return F.reshape_alias(input, shape)
    return F.unsafe_view(F.clone(input, memory_format="contiguous_format"), shape)


def is_viewable(array, shape):
    """Whether an array's memory can be read in another shape, that is, whether reshape copies nothing."""
    if type(array) is not numpy.ndarray:     # CuPy does not tell; nothing of this is read
        array = numpy.lib.stride_tricks.as_strided(numpy.empty((), array.dtype), array.shape, array.strides)
    try:
        array.reshape(shape, copy=False)
    except ValueError:
        return False
    return True


@composite(function=False)
def view_as(input, other):
    """input viewed in other's shape. Reference: torch.Tensor.view_as."""
    return F.view(input, other.shape)



@composite(function=False)
def reshape_as(input, other):
    """input in other's shape. Reference: torch.Tensor.reshape_as."""
    return F.reshape(input, tuple(other.shape))


@composite
def flatten(input, start_dim=0, end_dim=-1):
    """The dimensions from start_dim to end_dim as one. Raises RuntimeError if in the wrong order. Reference: torch.flatten."""
    if start_dim == 0 and end_dim == -1 and input.ndim != 1:
        return F.reshape(input, (-1,))
    shape = tuple(input.shape)
    first, last = wrap_dim(start_dim, len(shape), "flatten"), wrap_dim(end_dim, len(shape), "flatten")
    if first > last:
        raise RuntimeError(f"flatten() has invalid args: start_dim {start_dim} cannot come after end_dim {end_dim}")
    if first == last:
        return input
    n = 1
    for m in shape[first:last + 1]:
        n *= m
    return F.reshape(input, (*shape[:first], n, *shape[last + 1:]))


@composite
def unflatten(input, dim, sizes):
    """One dimension as several, one of which may be -1. Raises RuntimeError unless they multiply to it. Reference: torch.unflatten."""
    shape = tuple(input.shape)
    if not shape:
        raise RuntimeError("unflatten: a tensor without dimensions has none to give several for")
    d = wrap_dim(dim, len(shape), "unflatten")
    check_int("unflatten", "sizes", *sizes)
    sizes = tuple(sizes)
    known, unknown = 1, sizes.count(-1)
    for n in sizes:
        known *= n if n != -1 else 1
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if unknown > 1 or (known != shape[d] if not unknown else known == 0 or shape[d] % known):
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({shape[d]}) in the "
                           f"input tensor")
    sizes = tuple([shape[d] // known if n == -1 else n for n in sizes])
    return F.view(input, (*shape[:d], *sizes, *shape[d + 1:]))


@composite
def ravel(input):
    """All elements in one dimension. Reference: torch.ravel."""
    return F.reshape(F.contiguous(input), (-1,))


# -------------------------------------------------------------------------------------------------------------- broadcasting

def _expanded_size(shape, size):
    """The sizes that `size` means for a tensor of a shape. Raises RuntimeError where it cannot be broadcast to them."""
    n = len(size) - len(shape)
    if n < 0:
        raise RuntimeError(f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the number of dimensions "
                           "in "
                           f"the tensor ({len(shape)})")
    for i, b in enumerate(size):
        a = shape[i - n] if i >= n else None
        if b < 0 and (b != -1 or a is None):
            raise RuntimeError(f"expand: The expanded size of the tensor ({b}) isn't allowed in a leading, non-existing dimension {i}"
                               if a is None else f"expand: size {b} at dimension {i} must not be negative; -1 keeps a size")
        if a is not None and b not in (a, -1) and a != 1:
            raise RuntimeError(f"expand: The expanded size of the tensor ({b}) must match the existing size ({a}) at non-singleton "
                               f"dimension {i}. Target sizes: {list(size)}. Tensor sizes: {list(shape)}")
    return tuple([shape[i - n] if b == -1 else operator.index(b) for i, b in enumerate(size)])


@view_op(varargs="size", function=False)
def expand(self, size: Size):
    """A view in which dimensions of size 1, or new ones in front, are repeated without a copy; -1 keeps a size.

    Raises: RuntimeError where the sizes do not fit. Reference: torch.Tensor.expand.
    """
    shape, strides = self.shape, self.strides
    if size == shape:
        return self.view()
    n = len(size) - len(shape)
    if n >= 0 and np is numpy and self.flags.c_contiguous:
        try:                                 # np.broadcast_to takes seven times as long
            if n and size[n:] == shape:
                return np.ndarray(size, self.dtype, self, 0, (0,) * n + strides)
            if all([a == b or a == 1 for a, b in zip(shape, size[n:], strict=True)]):
                strides = tuple([s if a == b else 0 for a, b, s in zip(shape, size[n:], strides, strict=True)])
                return np.ndarray(size, self.dtype, self, 0, (0,) * n + strides)
        except (ValueError, TypeError):      # a negative size, or no integer
            pass
    check_int("expand", "size", *size)
    size = _expanded_size(shape, size)
    strides = (0,) * n + tuple([s if a == b else 0 for a, b, s in zip(shape, size[n:], strides, strict=True)])
    return np.lib.stride_tricks.as_strided(self, size, strides)

expand.vjp(self=lambda grad: grad)           # the edge sums over what was repeated


@composite(function=False)
def expand_as(input, other):
    """input expanded to other's shape. Reference: torch.Tensor.expand_as."""
    return F.expand(input, tuple(other.shape))


@composite
def broadcast_to(input, size):
    """input expanded to a shape. Reference: torch.broadcast_to."""
    return F.expand(input, tuple(size))


@composite(method=False)
def broadcast_tensors(*tensors):
    """The tensors expanded to their common shape. Raises RuntimeError where there is none. Reference: torch.broadcast_tensors."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    size = F.broadcast_shapes(*[t.shape for t in tensors])
    return tuple([t if t.shape == size else F.expand(t, size) for t in tensors])


@composite(method=False)
def broadcast_shapes(*shapes):
    """The shape that shapes are broadcast to. Raises RuntimeError where there is none. Reference: torch.broadcast_shapes."""
    size = []
    for shape in shapes:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = [1] * (len(shape) - len(size)) + size
        for i in range(1, len(shape) + 1):
            if size[-i] == 1:
                size[-i] = shape[-i]
            elif shape[-i] not in (1, size[-i]):
                raise RuntimeError(f"The size of tensor a ({size[-i]}) must match the size of tensor b ({shape[-i]}) at non-singleton "
                                   f"dimension {len(size) - i}: shapes {', '.join(map(str, shapes))} cannot be broadcast together")
    return tuple(size)


@composite(function=False)
def sum_to_size(input, *size):
    """The sum over the dimensions along which a tensor of this size would be repeated to give input's shape.

    Raises: RuntimeError where it could not. Reference: torch.Tensor.sum_to_size.
    """
    size = sizes_of(size, {}, "sum_to_size") if not (len(size) == 1 and type(size[0]) is tuple) else size[0]
    shape = tuple(input.shape)
    if not size:
        return F.sum(input)
    if shape == size:
        return input
    lead = len(shape) - len(size)
    if lead < 0 or any(n not in (1, m) for n, m in zip(size, shape[lead:], strict=True)):
        raise RuntimeError(f"sum_to_size: size {list(size)} is not expandable to size {list(shape)}")
    dims = [d for d, m in enumerate(shape) if d < lead or size[d - lead] == 1 and m != 1]
    if dims:
        input = F.sum(input, tuple(dims), True)
    return F.view(input, size) if lead else input


# ---------------------------------------------------------------------------------------------------- the order of dimensions

@view_op()
def t(self):
    """A matrix with its dimensions exchanged; fewer dimensions stay. Raises RuntimeError for more than two. Reference: torch.t."""
    if self.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {self.ndim}D; use transpose or mT")
    return self.T

t.vjp(self=lambda grad: F.t(grad))


@view_op()
def transpose(self, dim0: int, dim1: int):
    """Two dimensions exchanged. Raises IndexError for one that does not exist. Reference: torch.transpose."""
    try:
        return self.swapaxes(dim0, dim1)
    except (IndexError, ValueError, TypeError):      # NumPy's AxisError is the first two
        wrap_dim(dim0, self.ndim, "transpose"), wrap_dim(dim1, self.ndim, "transpose")
        return self

transpose.vjp(self=lambda grad, dim0, dim1: F.transpose(grad, dim0, dim1))


@composite
def swapaxes(input, axis0, axis1):
    """Two dimensions exchanged. Reference: torch.swapaxes."""
    return F.transpose(input, axis0, axis1)


@composite
def swapdims(input, dim0, dim1):
    """Two dimensions exchanged. Reference: torch.swapdims."""
    return F.transpose(input, dim0, dim1)


@view_op(varargs="dims")
def permute(self, dims: Dims):
    """The dimensions in another order. Raises RuntimeError unless each is named once. Reference: torch.permute."""
    try:
        return self.transpose(dims)
    except (IndexError, ValueError, TypeError):
        if len(dims) != self.ndim:
            raise RuntimeError(f"permute: number of dimensions in the tensor input does not match the length of the desired ordering "
                               f"of dimensions: {self.ndim} and {len(dims)}") from None
        return self.transpose(wrap_dims(dims, self.ndim, "permute"))

permute.vjp(self=lambda grad, dims: F.unpermute(grad, dims))


@composite(method=False, function=False)
def unpermute(grad, dims):
    """permute undone."""
    n = len(dims)
    return F.permute(grad, tuple(sorted(range(n), key=lambda i: dims[i] % n)))


@composite(method=False, function=False)
def T(input):
    """The dimensions in reverse order. Reference: torch.Tensor.T."""
    return F.permute(input, tuple(range(input.ndim))[::-1])


@composite(method=False, function=False)
def mT(input):
    """The last two dimensions exchanged; of no dimensions itself. Raises RuntimeError for one. Reference: torch.Tensor.mT."""
    if not input.ndim:
        return input
    if input.ndim < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor.")
    return F.transpose(input, -2, -1)


@composite(method=False, function=False)
def H(input):
    """A matrix transposed and conjugated. Raises RuntimeError for another number of dimensions. Reference: torch.Tensor.H."""
    if input.ndim not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor; see mH")
    return F.adjoint(input) if input.ndim else F.conj(input)


@composite(method=False, function=False)
def mH(input):
    """The last two dimensions exchanged, the elements conjugated. Reference: torch.Tensor.mH."""
    return F.adjoint(input) if input.ndim else F.conj(input)


@composite
def adjoint(input):
    """The last two dimensions exchanged, the elements conjugated. Raises RuntimeError for fewer. Reference: torch.adjoint."""
    if not input.ndim:
        return F.conj(input)
    if input.ndim < 2:
        raise RuntimeError(f"adjoint: only supported on matrices or batches of matrices, got {input.ndim}-D tensor")
    turned = F.transpose(input, -2, -1)
    return F.conj(turned) if input.dtype.kind == "c" else turned


@composite
def movedim(input, source, destination):
    """Dimensions moved to other places, the others kept in order. Reference: torch.movedim."""
    if isinstance(source, int) != isinstance(destination, int):
        raise TypeError(f"movedim: source and destination must both be integers or both tuples, got {source!r} and {destination!r}")
    n = input.ndim
    source, destination = wrap_dims(source, n, "movedim source"), wrap_dims(destination, n, "movedim destination")
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source has {len(source)}, destination {len(destination)}")
    if not n:
        return F.alias(input)
    order = [d for d in range(n) if d not in source]
    for d, s in sorted(zip(destination, source, strict=True)):
        order.insert(d, s)
    return F.permute(input, tuple(order))


@composite
def moveaxis(input, source, destination):
    """Dimensions moved to other places. Reference: torch.moveaxis."""
    return F.movedim(input, source, destination)


# --------------------------------------------------------------------------------------------------------- dimensions of size 1

@view_op(node="Squeeze", digit=lambda dim: 0 if dim is None else 1 if isinstance(dim, int) else 2)
def squeeze(self, dim: Dims = None):
    """Without the dimensions of size 1, or without those of `dim` that have it. Reference: torch.squeeze."""
    if dim is None:
        return self.squeeze()
    if not self.ndim:
        wrap_dims(dim, 0, "squeeze")
        return self
    return self.squeeze(tuple([d for d in wrap_dims(dim, self.ndim, "squeeze") if self.shape[d] == 1]))

squeeze.vjp(self=lambda grad, self_shape: F.reshape(grad, self_shape))


@op(node="SqueezeBackward4", method=False, function=False)
def squeeze_product(self, dim: int):
    """A product without the dimension of size 1 that a vector was given for it; not a view, as its memory is nobody else's."""
    return self.squeeze(dim)

squeeze_product.vjp(self=lambda grad, self_shape: F.reshape(grad, self_shape))


@view_op()
def unsqueeze(self, dim: int):
    """With a dimension of size 1 put in at `dim`. Raises IndexError where that is out of range. Reference: torch.unsqueeze."""
    return self[(ALL,) * wrap_dim(dim, self.ndim + 1, "unsqueeze") + (None,)]

unsqueeze.vjp(self=lambda grad, dim: F.squeeze(grad, dim))


@composite(method=False)
def atleast_1d(*tensors):
    """Tensors with at least one dimension. Reference: torch.atleast_1d."""
    return _each(tensors, lambda x: F.reshape(x, (1,)) if x.ndim == 0 else x)


@composite(method=False)
def atleast_2d(*tensors):
    """Tensors with at least two dimensions. Reference: torch.atleast_2d."""
    return _each(tensors, lambda x: F.reshape(x, (1, 1)) if x.ndim == 0 else F.unsqueeze(x, 0) if x.ndim == 1 else x)


@composite(method=False)
def atleast_3d(*tensors):
    """Tensors with at least three dimensions. Reference: torch.atleast_3d."""
    return _each(tensors, lambda x: F.reshape(x, (1, 1, 1)) if x.ndim == 0 else F.unsqueeze(F.unsqueeze(x, 0), -1) if x.ndim == 1
                 else F.unsqueeze(x, -1) if x.ndim == 2 else x)


def _each(tensors, function):
    if len(tensors) == 1:
        return tuple([function(x) for x in tensors[0]]) if isinstance(tensors[0], (tuple, list)) else function(tensors[0])
    return tuple([function(x) for x in tensors])


# ---------------------------------------------------------------------------------------------- the shape of the tensor itself

def _in_place(name, of, node):
    """The form of a view that changes the tensor itself. `node`: what PyTorch calls its node, or how that depends on the arguments."""
    def function(input, *args, **kwargs):
        check_writable(input, name)
        about_to_write(input)                # its version counts a change of the shape as one
        title = node(*args, **kwargs) if callable(node) else node
        if input._view is not None:          # a view becomes another view of its base, in no_grad too
            kept = input._node is not None and not local.state.records()
            with enable_grad() if kept else contextlib.nullcontext():
                out = of(input, *args, **kwargs)
            input._array, input._view, input._node, input._nr, input._requires = out._array, out._view, out._node, out._nr, out._requires
            carry(out, input)
            rename(out._node, title)
            count_write(out)
            out._view.seen = out._counter.count - kept       # then its history is made anew, from its base's
            return input
        if _is_shared(input):
            raise RuntimeError(f"{name}: the tensor has views or aliases, which would keep its old shape; use {name[:-1]}()")
        source = carry(input, wrap(input._array))
        source._requires, source._node, source._nr = input._requires, input._node, input._nr
        out = of(source, *args, **kwargs)
        input._array = out._array
        carry(out, input)
        count_write(input)                   # who saved the old shape notices
        if out._node is not None:
            rename(out._node, title)
            set_history(input, out._node, out._nr)
        return input
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name[:-1]} of the tensor itself. RuntimeError if others share its memory. Reference: torch.Tensor.{name}."
    composite(function=False)(function)


def _is_shared(t):
    """Whether other tensors count the writes to t's memory: more holds its counter than t and the node that saved t as its result."""
    if t._counter is None or t._counter is INFERENCE:
        return False
    record = getattr(t._node, "_record", None)
    saved = sum([getattr(t._node, "c_" + name, None) is t._counter for name in (record.saved_results if record else ())])
    return sys.getrefcount(t._counter) > 2 + saved


_in_place("squeeze_", lambda x, dim=None: F.squeeze(x, dim),
          lambda dim=None: f"SqueezeBackward{3 if dim is None else 4 if isinstance(dim, int) else 5}")
_in_place("unsqueeze_", lambda x, dim: F.unsqueeze(x, dim), "UnsqueezeBackward1")
_in_place("transpose_", lambda x, dim0, dim1: F.transpose(x, dim0, dim1), "TransposeBackward1")
_in_place("swapaxes_", lambda x, axis0, axis1: F.transpose(x, axis0, axis1), "TransposeBackward1")
_in_place("swapdims_", lambda x, dim0, dim1: F.transpose(x, dim0, dim1), "TransposeBackward1")
_in_place("t_", lambda x: F.t(x), "TBackward1")
_in_place("as_strided_", lambda x, size, stride, storage_offset=None: F.as_strided(x, size, stride, storage_offset), "AsStridedBackward1")


# --------------------------------------------------------------------------------------------------------------------- copies

@view_op(method=False, function=False)
def alias(self):
    """The same tensor once more."""
    return self[...]

alias.vjp(self=lambda grad: grad)


TRANSPOSED = "transposed_format"             # matrices column by column: not for users


@op(out=False)
def clone(self, *, memory_format: str = None):
    """A copy, laid out as the original; in C order for torch.contiguous_format. Reference: torch.clone."""
    if memory_format is not None and not str(memory_format).endswith("_format"):
        raise TypeError(f"clone(): argument 'memory_format' must be a memory format, as torch.contiguous_format, not {memory_format!r:.60}")
    if memory_format is TRANSPOSED:
        return self.swapaxes(-1, -2).copy("C").swapaxes(-1, -2)
    return self.copy("C" if memory_format is not None and "contiguous" in str(memory_format) else _device.order_of(self))

clone.vjp(self=lambda grad: grad)


@composite(function=False)
def contiguous(input, memory_format=None):
    """The tensor itself if its memory is in C order, else a copy that is. Reference: torch.Tensor.contiguous."""
    if (input._array if isinstance(input, Tensor) else input).flags.c_contiguous:
        return input
    return F.clone(input, memory_format="contiguous_format")

"""Tensor's methods: one loop over the registry gives it the ops, the rest is what is not an op. Only this file installs any."""
from __future__ import annotations

import copy
import warnings
from numbers import Number

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu import ops as _ops  # noqa: F401 - fills the registry
from autograd_gpu import text as _text
from autograd_gpu.backward import backward as _autograd_backward
from autograd_gpu.base import CHANGE, INFERENCE, CudaTensor, LeafView, Tensor, View, count_change, uncounted, version, wrap
from autograd_gpu.engine import hooks as _hooks
from autograd_gpu.engine.forward_mode import forget
from autograd_gpu.engine.grad_mode import everywhere, local
from autograd_gpu.engine.inside import Dependent
from autograd_gpu.engine.node import AccumulateGrad
from autograd_gpu.ops import creation as _creation
from autograd_gpu.ops.inplace import inplace
from autograd_gpu.ops.namespace import OPS, REGISTRY
from autograd_gpu.ops.strided import placed
from autograd_gpu.ops.views import refresh, unwritable
from autograd_gpu.size import Size, strided


def method(function):
    """Give Tensor a method."""
    setattr(Tensor, function.__name__, function)
    return function


def attribute(function):
    """Give Tensor a read-only attribute."""
    setattr(Tensor, function.__name__, property(function))
    return function


# ---------------------------------------------------------------------------------------------------------------- the ops

for _record in REGISTRY.values():
    if _record.method:
        setattr(Tensor, _record.name, _record.function)
    if _record.inplace == "only" or _record.inplace and _record.method:      # copy_, fill_, zero_ have no form without underscore
        setattr(Tensor, _record.name + "_", inplace(_record))

_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
              "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
              "lshift": "bitwise_left_shift",
              "rshift": "bitwise_right_shift"}
for _name, _op in _OPERATORS.items():
    if _op in REGISTRY:
        setattr(Tensor, f"__{_name}__", REGISTRY[_op].operator)
        if hasattr(Tensor, _op + "_"):
            setattr(Tensor, f"__i{_name}__", getattr(Tensor, _op + "_"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    if _name in REGISTRY:
        setattr(Tensor, f"__{_name}__", REGISTRY[_name].operator)
for _name, _op in {"radd": "add", "rmul": "mul", "rand": "bitwise_and", "ror": "bitwise_or", "rxor": "bitwise_xor"}.items():
    if _op in REGISTRY:
        setattr(Tensor, f"__{_name}__", REGISTRY[_op].operator)
for _name, _op in {"rsub": "rsub", "rtruediv": "rdiv", "rpow": "rpow", "rmatmul": "rmatmul", "rfloordiv": "rfloordiv",
                   "rmod": "rremainder", "neg": "neg", "pos": "positive", "abs": "abs", "invert": "bitwise_not",
                   "getitem": "getitem"}.items():
    if _op in REGISTRY:
        setattr(Tensor, f"__{_name}__", REGISTRY[_op].operator)
for _name in ("T", "mT", "H", "mH", "real", "imag"):
    if _name in REGISTRY:
        setattr(Tensor, _name, property(REGISTRY[_name].function))
for _name, _function in getattr(_creation, "METHODS", {}).items():
    setattr(Tensor, _name, _function)
Tensor.__hash__ = object.__hash__
Tensor.__array_priority__ = 1000


# ----------------------------------------------------------------------------------------------------- what autograd shows

_HIDDEN = Dependent, AccumulateGrad          # the latter leads from a copy of a leaf, as hooks are given, to the leaf


@attribute
def grad_fn(self):
    """The node that computes this tensor's gradient function; None for a leaf."""
    if self._view is not None:
        refresh(self, asked=True)
    node = self._node
    return None if isinstance(node, _HIDDEN) else node


@attribute
def is_leaf(self) -> bool:
    """Whether no recorded operation made this tensor."""
    return self.grad_fn is None


@attribute
def output_nr(self) -> int:
    """Which of grad_fn's results this tensor is."""
    return self._nr


@attribute
def retains_grad(self) -> bool:
    """Whether a tensor that is not a leaf keeps its gradient; see retain_grad."""
    rare = self._node._rare if self._node is not None else None
    return rare is not None and self._nr in rare.retain and rare.retain[self._nr]() is self


@attribute
def _version(self) -> int:
    """How many in-place writes this tensor's memory has seen. Raises RuntimeError for an inference tensor."""
    if self._counter is INFERENCE:
        raise RuntimeError("Inference tensors do not track version counter: clone() it outside of inference mode to have one that does")
    return 0 if self._counter is None else self._counter.count % CHANGE


@attribute
def _base(self):
    """The tensor that this one is a view of; None if it is no view."""
    return None if self._view is None else self._view.base


@method
def _is_view(self) -> bool:
    return self._view is not None


@method
def is_inference(self) -> bool:
    """Whether this is an inference tensor: made in inference_mode(), its writes uncounted. Reference: torch.Tensor.is_inference."""
    return self._counter is INFERENCE


def _get_requires_grad(self) -> bool:
    view = self._view
    if view is None:
        return self._requires and not isinstance(self._node, Dependent)
    if self._node is None and type(view) is not LeafView:
        return view.base._requires
    return not isinstance(self._node, Dependent)


def _set_requires_grad(self, value):
    if not isinstance(value, bool):
        raise RuntimeError(f"requires_grad must be a bool, got {type(value).__name__}")
    if not value and self.grad_fn is not None:
        raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                           "subgraph that doesn't require differentiation use var_no_grad = var.detach()")
    if value and self.grad_fn is not None:
        raise RuntimeError("you can only change requires_grad flags of leaf variables")
    requires_grad_(self, value)


Tensor.requires_grad = property(_get_requires_grad, _set_requires_grad, doc="Whether gradients are tracked for this tensor.")


@method
def requires_grad_(self, requires_grad=True):
    """Set whether gradients are tracked for this leaf; returns it.

    Raises: RuntimeError for an integer or bool tensor, an inference tensor outside of inference mode, and for taking the flag off a
    result of recorded operations.
    Reference: torch.Tensor.requires_grad_.
    """
    if not isinstance(requires_grad, bool):
        raise TypeError(f"requires_grad_(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
    if requires_grad:
        _creation.check_requires(self)
        if isinstance(self._node, Dependent):  # in a custom Function's forward, where it shows as a leaf
            self._node = None
    if self._node is not None and not isinstance(self._node, Dependent):
        if not requires_grad:
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                               "subgraph that doesn't require differentiation use var_no_grad = var.detach()")
        return self
    if self._counter is not None and self._counter is not INFERENCE and self._requires != requires_grad:
        count_change(self._counter)          # there may be views, which require what this does
    if self._view is not None:
        self._view.__class__ = LeafView if requires_grad else View
    self._requires = requires_grad
    return self


def _get_grad(self):
    if self._grad is None and self._requires and self._node is not None and not retains_grad(self):
        warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                      "populated during autograd.backward(). Call retain_grad() on it before the backward, or read the .grad of a "
                      "leaf", stacklevel=2)
    return self._grad


def _set_grad(self, grad):
    if grad is not None:
        if not isinstance(grad, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got {type(grad).__name__}")
        if grad is self:
            raise RuntimeError("can't assign Variable as its own grad")
        if grad._array.shape != self._array.shape:
            raise RuntimeError(f"assigned grad has data of a different size: {tuple(grad._array.shape)}, the tensor has "
                               f"{tuple(self._array.shape)}")
        wanted = self.dtype if self._node is not None else _grad_dtype(self)
        if wanted is not None and grad.dtype is not wanted:
            raise RuntimeError(f"assigned grad has data of a different type: attempting to assign a gradient with dtype {grad.dtype} to a "
                               f"tensor with grad_dtype {wanted}: convert it, or set the tensor's grad_dtype first")
        if grad.device != self.device:
            raise RuntimeError(f"assigned grad has data located on a different device: {grad.device}, the tensor is on {self.device}")
    self._grad = grad


def _del_grad(self):
    self._grad = None


Tensor.grad = property(_get_grad, _set_grad, _del_grad, doc="What backward() added up for this tensor, or None.")


def _get_grad_dtype(self):
    if self.grad_fn is not None:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    return _grad_dtype(self)


def _grad_dtype(self):
    found = self._hooks.grad_dtype if type(self._hooks) is _hooks.LeafHooks else _hooks.OWN
    return self.dtype if found is _hooks.OWN else None if found is None else _dtype.of(found)


def _set_grad_dtype(self, dtype):
    if self.grad_fn is not None:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    if dtype is not None and not isinstance(dtype, _dtype.dtype):
        raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(dtype).__name__}")
    if dtype is not None and self._grad is not None and self._grad.dtype is not dtype:
        raise RuntimeError(f"Cannot set grad_dtype to {dtype} because there is already a gradient with dtype {self._grad.dtype}. Please "
                           f"clear the gradient (.grad = None) before changing grad_dtype")
    _hooks.leaf_hooks(self).grad_dtype = None if dtype is None else _dtype.to_numpy(dtype)


Tensor.grad_dtype = property(_get_grad_dtype, _set_grad_dtype, doc="The dtype that a leaf's gradient is brought to: its own unless set; "
                             "None keeps whatever comes. Reference: torch.Tensor.grad_dtype.")


@method
def retain_grad(self):
    """Keep this tensor's gradient in .grad although it is not a leaf.

    Raises: RuntimeError if it does not require grad. Reference: torch.Tensor.retain_grad.
    """
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self._node is not None and self._view is not None:
        refresh(self, asked=True)
    _hooks.retain_grad(self)


@method
def register_hook(self, hook):
    """Call `hook(grad)` when this tensor's gradient is known; what it returns, if anything, replaces the gradient.

    The hook gets its own copy. Returns a handle whose remove() takes the hook out.
    Raises: RuntimeError if the tensor does not require grad. Reference: torch.Tensor.register_hook.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self._view is not None and not (unwritable(self._view) and _hooks.has_hooks(self)):       # a second hook joins the first, as it is
        refresh(self, asked=True)
    return _hooks.register_on_tensor(self, hook)


@method
def register_post_accumulate_grad_hook(self, hook):
    """Call `hook(tensor)` each time this leaf's .grad was updated. Returns a handle.

    Raises: RuntimeError for a tensor that does not require grad or is not a leaf.
    Reference: torch.Tensor.register_post_accumulate_grad_hook.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _hooks.RemovableHandle(_hooks.leaf_hooks(self).post_accumulate, hook)


@method
def detach(self):
    """The same memory outside the graph: no history, requires_grad=False. Reference: torch.Tensor.detach."""
    t = wrap(self._array)
    t._counter = version(self)
    return t


@method
def detach_(self):
    """Take this tensor out of the graph that made it, without its tangent; returns it. In inference mode it changes nothing.

    Raises: RuntimeError for a view, whose base keeps its history. Reference: torch.Tensor.detach_.
    """
    if local.state.inference:
        return self
    if self._view is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead")
    if self._node is not None or self._requires and self._counter is not None:
        count_change(version(self))
    self._node, self._nr, self._requires = None, 0, False
    if everywhere.levels:
        forget(self)
    return self


def _get_data(self):
    return uncounted(self)


def _set_data(self, value):
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    if self._requires:
        _creation.check_differentiable(value._array.dtype)
    self._array = value._array
    if self._counter is not None:
        self._counter.moved = getattr(self._counter, "moved", 0) + 1
    if INFERENCE in (self._counter, value._counter):
        self._counter = INFERENCE if value._counter is INFERENCE else None
    if type(self) in (Tensor, CudaTensor):
        self.__class__ = type(wrap(value._array))


Tensor.data = property(_get_data, _set_data, doc="The same memory, unknown to autograd and its version counter; assignable.")


# ------------------------------------------------------------------------------------------------------------ description

@attribute
def shape(self) -> Size:
    """The size of each dimension."""
    return tuple.__new__(Size, self._array.shape)


@attribute
def dtype(self):
    """The scalar type."""
    return _dtype.of(self._array.dtype)


Tensor.ndim = property(lambda self: self._array.ndim, doc="The number of dimensions.")
Tensor.itemsize = property(lambda self: self._array.itemsize, doc="Bytes per element.")
Tensor.nbytes = property(lambda self: self._array.size * self._array.itemsize, doc="Bytes of all elements.")
Tensor.is_cuda = property(lambda self: self.device.type == "cuda", doc="Whether the memory is on a CUDA device.")
Tensor.real = property(lambda self: OPS.real(self), doc="The real part, as a view; a real tensor as it is.")
Tensor.imag = property(lambda self: OPS.imag(self), doc="The imaginary part, as a view. Raises RuntimeError for a real tensor.")
Tensor.layout = property(lambda self: strided, doc="Always strided.")


@method
def size(self, dim=None):
    """The shape, or the size of one dimension. Raises IndexError for a dimension there is not."""
    if dim is None:
        return Size(self._array.shape)
    if not -max(self._array.ndim, 1) <= dim < max(self._array.ndim, 1):
        raise IndexError(f"size: Dimension out of range (expected to be in range of [{-max(self._array.ndim, 1)}, "
                         f"{max(self._array.ndim, 1) - 1}], but got {dim})")
    return self._array.shape[dim]


@method
def dim(self) -> int:
    """The number of dimensions."""
    return self._array.ndim


@method
def numel(self) -> int:
    """The number of elements."""
    return self._array.size


Tensor.ndimension, Tensor.nelement = Tensor.dim, Tensor.numel


@method
def element_size(self) -> int:
    """Bytes per element."""
    return self._array.itemsize


@method
def stride(self, dim=None):
    """How many elements apart neighbours are, along each dimension or one."""
    strides = tuple(s // self._array.itemsize for s in self._array.strides)
    return strides if dim is None else strides[dim]


@method
def storage_offset(self) -> int:
    """How many elements lie before this tensor's first in the memory of what it is a view of. Reference: torch.Tensor.storage_offset."""
    return placed(self)[0]


@method
def get_device(self) -> int:
    """The CUDA device's number, -1 for the CPU. Reference: torch.Tensor.get_device."""
    return self.device.index if self.device.type == "cuda" else -1


@method
def is_contiguous(self) -> bool:
    """Whether the elements lie in C order without gaps."""
    return self._array.flags.c_contiguous


@method
def data_ptr(self) -> int:
    """The address of the first element."""
    return self._array.ctypes.data if type(self._array) is np.ndarray else self._array.data.ptr


@method
def is_floating_point(self) -> bool:
    """Whether the dtype is a floating one."""
    return self.dtype.is_floating_point


@method
def is_complex(self) -> bool:
    """Whether the dtype is complex."""
    return self.dtype.is_complex


@method
def is_signed(self) -> bool:
    """Whether the dtype has negative numbers."""
    return self._array.dtype.kind not in "bu"


@method
def is_nonzero(self) -> bool:
    """Whether the single element is not 0. Raises RuntimeError unless there is exactly one."""
    return bool(self)


@method
def __len__(self):
    if not self._array.ndim:
        raise TypeError("len() of a 0-d tensor")
    return self._array.shape[0]


@method
def __iter__(self):
    if not self._array.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(OPS.unbind(self, 0))


@method
def __contains__(self, element):
    if not isinstance(element, (Tensor, Number)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())


@method
def __repr__(self, *, tensor_contents=None):
    return _text.tensor(self, tensor_contents)


@method
def __format__(self, spec):
    if not self._array.ndim and type(self) in (Tensor, CudaTensor):
        return format(self.item(), spec)
    if spec:
        raise TypeError(f"unsupported format string {spec!r} for a tensor of shape {self._array.shape}; only a 0-d tensor prints as a "
                        f"number")
    return str(self)


# ------------------------------------------------------------------------------------------------ to Python and to arrays

@method
def item(self):
    """The single element as a Python number. Raises RuntimeError unless there is exactly one."""
    if self._array.size != 1:
        raise RuntimeError(f"a Tensor with {self._array.size} elements cannot be converted to Scalar")
    return _device.host(self._array).item()


@method
def tolist(self):
    """The elements as nested lists of Python numbers."""
    return _device.host(self._array).tolist()


@method
def __bool__(self):
    if self._array.size != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no values' if not self._array.size else 'more than one value'} is ambiguous: "
                           f"use any() or all()")
    return bool(_device.host(self._array).item())


def _as_scalar(self):
    if self._array.size != 1:
        raise ValueError(f"only one element tensors can be converted to Python scalars, this one has {self._array.size}")
    return _device.host(self._array).item()


@method
def __float__(self):
    return float(_as_scalar(self))


@method
def __int__(self):
    return int(_as_scalar(self))


@method
def __complex__(self):
    return complex(_as_scalar(self))


@method
def __index__(self):
    if self._array.dtype.kind not in "iub" or self._array.size != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(_device.host(self._array).item())


@method
def __setitem__(self, key, value):
    OPS.setitem(self, key, value)


@method
def __delitem__(self, key):
    raise TypeError("Tensor does not support deleting items")


@method
def __deepcopy__(self, memo):
    if self.grad_fn is not None:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
                           "detach() the tensor first")
    if id(self) in memo:
        return memo[id(self)]
    with _device.guard(self.device):
        t = wrap(self._array.copy(_device.order_of(self._array)))
    t.__class__ = type(self)
    t._requires = self._requires
    memo[id(self)] = t
    t._grad = copy.deepcopy(self._grad, memo)
    return t


@method
def __copy__(self):
    """A leaf over the same memory, with a version counter of its own, as PyTorch's."""
    t = wrap(self._array)
    t.__class__ = type(self)
    t._requires = self.requires_grad
    return t


@method
def __reduce_ex__(self, protocol):
    cls = Tensor if type(self) is CudaTensor else type(self)
    return _rebuild, (cls, _device.host(self._array), self.requires_grad, self.device)


def _rebuild(cls, array, requires, device):
    t = wrap(_device.copy(array, _device.resolve(device)))
    if cls is not Tensor:
        t.__class__ = cls
    t._requires = requires
    return t


# --------------------------------------------------------------------------------------------------------------- backward

@method
def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Add the gradients of this tensor to the .grad of the leaves it was computed from; see autograd.backward."""
    _autograd_backward(self, gradient, retain_graph, create_graph, inputs=inputs)

"""The package's names: every op and creation function, dtypes, modes."""
from math import e, inf, nan, pi

from autograd_gpu import dtypes as _dtype
from autograd_gpu import methods as _methods  # noqa: F401 - gives Tensor its methods
from autograd_gpu.base import Tensor
from autograd_gpu.devices import Device as device
from autograd_gpu.devices import get_default_device, set_default_device
from autograd_gpu.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from autograd_gpu.engine.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled, set_anomaly_enabled
from autograd_gpu.engine.grad_mode import enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled
from autograd_gpu.generator import Generator, default_generator
from autograd_gpu.ops.creation import FUNCTIONS as _creation
from autograd_gpu.ops.namespace import REGISTRY as _registry
from autograd_gpu.ops.out import accepting as _accepting
from autograd_gpu.ops.out import creating as _creating
from autograd_gpu.parallel import get_num_threads, set_num_threads
from autograd_gpu.serialization import load, save
from autograd_gpu.size import Size, channels_last, channels_last_3d, contiguous_format, preserve_format, strided
from autograd_gpu.text import set_printoptions

newaxis = None

_filling = ("zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "eye", "rand", "randn", "randint", "randperm")
_drawing = ("normal", "bernoulli", "multinomial")

_dtypes = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "short", "int32", "int", "int64", "long", "float16", "half",
           "bfloat16", "float32", "float", "float64", "double", "complex64", "cfloat", "complex128", "cdouble")

globals().update({name: getattr(_dtype, name) for name in _dtypes if getattr(_dtype, name) is not None})
globals().update(_creation)
globals().update({name: _creating(_creation[name]) for name in _filling} | {name: _accepting(name, _creation[name]) for name in _drawing})
globals().update({name: record.public for name, record in _registry.items() if record.is_function})
adaptive_max_pool1d = _registry["adaptive_max_pool1d_with_indices"].public   # as in PyTorch, where nn.functional's gives no indices

__all__ = [name for name in globals() if not name.startswith("_")]  # noqa: PLE0605 - what this file collected

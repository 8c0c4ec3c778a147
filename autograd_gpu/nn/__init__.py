"""Networks under torch.nn's names: modules, parameters, initial values, and the functions behind the modules."""
from autograd_gpu.nn import functional, init, modules, utils
from autograd_gpu.nn.modules import *  # noqa: F403
from autograd_gpu.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init", "modules", "utils"]
__all__ += modules.__all__

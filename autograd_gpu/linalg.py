"""Linear algebra, under torch.linalg's names. On CUDA it needs CuPy's cuSOLVER."""
from autograd_gpu.ops.decompositions import LinAlgError
from autograd_gpu.ops.namespace import REGISTRY as _registry

_names = ("cholesky", "det", "eigh", "eigvalsh", "inv", "matrix_norm", "norm", "slogdet", "solve", "svd", "svdvals", "vector_norm")
globals().update({name: _registry["linalg_" + name].public for name in _names})

__all__ = ["LinAlgError", *_names]           # noqa: PLE0604, PLE0605 - the names above

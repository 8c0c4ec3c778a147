"""The libraries that run the same programs: their words for it, and how each takes a gradient.

A program is a function of a peer's words and arrays. PyTorch's words are taken as they are, so that ours is measured as it is used;
libraries in NumPy's dialect get them by one thin Python function each, a tenth of a microsecond.
"""
import importlib
import importlib.metadata
import os
from functools import cache
from types import SimpleNamespace

import numpy as np

OURS, TORCH, FLOOR = "autograd_gpu", "PyTorch", "NumPy by hand"


class Peer:
    """One library. `forward`, `gradients`, `training` and `second_order` make of a program a function step(leaves, inputs) that runs it
    once and returns its results. Leaves and inputs are the library's own arrays; `leaves` is a list, which training may refill.
    """
    def __init__(self, name, module, distribution):
        self.name, self.module, self.distribution = name, importlib.import_module(module), distribution
        self.imports = module

    @property
    def version(self):
        return getattr(self.module, "__version__", None) or importlib.metadata.version(self.distribution)

    def leaf(self, array):
        return self.array(array)

    def number(self, result):
        return np.asarray(result)

    def wait(self, results):
        """For results that are still being computed."""


class Torch(Peer):
    """PyTorch and what has its interface."""
    def __init__(self, name, module, distribution):
        super().__init__(name, module, distribution)
        m = self.module
        F = m.nn.functional
        if hasattr(m, "set_num_threads"):
            m.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self.array = m.tensor
        self.words = SimpleNamespace(
            exp=m.exp, sin=m.sin, tanh=m.tanh, sqrt=m.sqrt, sigmoid=m.sigmoid, relu=m.relu, sum=m.sum, mean=m.mean, swapaxes=m.swapaxes,
            softmax=m.softmax, cross_entropy=F.cross_entropy, conv2d=F.conv2d, max_pool2d=F.max_pool2d, embedding=F.embedding,
            layer_norm=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias), hook=lambda x, f: x.register_hook(f))

    def leaf(self, array):
        return self.module.tensor(array, requires_grad=True)

    def number(self, result):
        return result.detach().numpy()

    def forward(self, program):
        def step(leaves, inputs):
            with self.module.no_grad():
                return [program.loss(self.words, *leaves, *inputs)]
        return step

    def gradients(self, program):
        def step(leaves, inputs):
            loss = program.loss(self.words, *leaves, *inputs)
            loss.backward()
            results = [loss, *(x.grad for x in leaves)]
            for x in leaves:
                x.grad = None
            return results
        return step

    def training(self, program):
        def step(leaves, inputs):
            loss = program.loss(self.words, *leaves, *inputs)
            loss.backward()
            with self.module.no_grad():
                for x in leaves:
                    x -= program.rate * x.grad
                    x.grad = None
            return [loss, *leaves]
        return step

    def second_order(self, program):
        grad = self.module.autograd.grad

        def step(leaves, inputs):
            x, = leaves
            *inputs, v = inputs
            g, = grad(program.loss(self.words, x, *inputs), x, create_graph=True)
            return grad((g * v).sum(), x)
        return step


class Functional(Peer):
    """JAX and HIPS autograd: the gradient is a function that is made from the program once."""
    jit = staticmethod(lambda f: f)

    def program(self, program):
        return lambda *arrays: program.loss(self.words, *arrays)

    def forward(self, program):
        f = self.jit(self.program(program))
        return lambda leaves, inputs: [f(*leaves, *inputs)]

    def gradients(self, program):
        f = self.jit(self.value_and_grad(self.program(program), program.leaves))

        def step(leaves, inputs):
            loss, grads = f(*leaves, *inputs)
            return [loss, *grads]
        return step

    def training(self, program):
        f = self.value_and_grad(self.program(program), program.leaves)

        @self.jit
        def update(leaves, inputs):
            loss, grads = f(*leaves, *inputs)
            return loss, [x - program.rate * g for x, g in zip(leaves, grads, strict=True)]

        def step(leaves, inputs):
            loss, leaves[:] = update(leaves, inputs)
            return [loss, *leaves]
        return step

    def second_order(self, program):
        f = self.program(program)

        def slope(x, *inputs):
            *inputs, v = inputs
            return (self.value_and_grad(f, 1)(x, *inputs)[1][0] * v).sum()
        g = self.jit(self.value_and_grad(slope, 1))
        return lambda leaves, inputs: [g(*leaves, *inputs)[1][0]]


class Jax(Functional):
    def __init__(self, name, module, distribution):
        super().__init__(name, module, distribution)
        jax, jnp = self.module, importlib.import_module("jax.numpy")
        self.array = jnp.array
        self.jit = jax.jit if name == "JAX jit" else self.jit

        def conv2d(x, weight):
            return jax.lax.conv(x, weight, (1, 1), "VALID")

        def max_pool2d(x, size):
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, size, size), (1, 1, size, size), "VALID")
        self.words = numpy_words(jnp, sigmoid=jax.nn.sigmoid, relu=jax.nn.relu, softmax=lambda x, dim: jax.nn.softmax(x, axis=dim),
                                 log_softmax=lambda x, dim: jax.nn.log_softmax(x, axis=dim), conv2d=conv2d, max_pool2d=max_pool2d)

    def value_and_grad(self, f, leaves):
        return self.module.value_and_grad(f, tuple(range(leaves)))

    def wait(self, results):
        self.module.block_until_ready(results)


class Hips(Functional):
    """HIPS autograd."""
    array = staticmethod(np.array)

    def __init__(self, name, module, distribution):
        super().__init__(name, module, distribution)
        xp = importlib.import_module("autograd.numpy")
        logsumexp = importlib.import_module("autograd.scipy.special").logsumexp
        convolve = importlib.import_module("autograd.scipy.signal").convolve

        def log_softmax(x, dim):
            return x - logsumexp(x, axis=dim, keepdims=True)

        def conv2d(x, weight):
            return convolve(x, weight[:, :, ::-1, ::-1], axes=([2, 3], [2, 3]), dot_axes=([1], [1]), mode="valid")

        def max_pool2d(x, size):
            n, channels, height, width = x.shape
            return xp.max(xp.max(x.reshape((n, channels, height // size, size, width // size, size)), axis=5), axis=3)
        self.words = numpy_words(xp, sigmoid=lambda x: 1 / (1 + xp.exp(-x)), relu=lambda x: xp.maximum(x, 0),
                                 softmax=lambda x, dim: xp.exp(log_softmax(x, dim)), log_softmax=log_softmax, conv2d=conv2d,
                                 max_pool2d=max_pool2d)

    def value_and_grad(self, f, leaves):
        return self.module.value_and_grad(f, tuple(range(leaves)))


class MyGrad(Peer):
    def __init__(self, name, module, distribution):
        super().__init__(name, module, distribution)
        mg, nnet = self.module, importlib.import_module("mygrad.nnet")
        mg.turn_memory_guarding_off()        # as its documentation advises for speed
        self.array = np.array
        self.words = numpy_words(mg, sigmoid=nnet.sigmoid, relu=nnet.relu, softmax=lambda x, dim: nnet.softmax(x, axis=dim),
                                 conv2d=lambda x, weight: nnet.conv_nd(x, weight, stride=1),
                                 max_pool2d=lambda x, size: nnet.max_pool(x, (size, size), size), cross_entropy=nnet.softmax_crossentropy)

    def leaf(self, array):
        return self.module.tensor(np.array(array))

    def forward(self, program):
        def step(leaves, inputs):
            with self.module.no_autodiff:
                return [program.loss(self.words, *leaves, *inputs)]
        return step

    def gradients(self, program):
        def step(leaves, inputs):
            loss = program.loss(self.words, *leaves, *inputs)
            loss.backward()
            return [loss, *(x.grad for x in leaves)]         # the next step clears them
        return step

    def training(self, program):
        step = self.gradients(program)

        def train(leaves, inputs):
            loss, *grads = step(leaves, inputs)
            for x, g in zip(leaves, grads, strict=True):
                x.data -= program.rate * g
            return [loss, *leaves]
        return train

    def second_order(self, program):
        raise NotImplementedError("MyGrad has no second derivatives")


class Hand(Peer):
    """NumPy without any autograd: the program's floor, which gives its value and gradients."""
    array = staticmethod(np.array)

    def forward(self, program):
        return lambda leaves, inputs: program.floor(*leaves, *inputs)

    gradients = second_order = forward

    def training(self, program):
        def step(leaves, inputs):
            loss, *grads = program.floor(*leaves, *inputs)
            for x, g in zip(leaves, grads, strict=True):
                x -= np.float32(program.rate) * g
            return [loss, *leaves]
        return step


def numpy_words(xp, **own):
    """PyTorch's words in NumPy's dialect; own: what the library has of its own."""
    def layer_norm(x, weight, bias):
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * weight + bias

    def cross_entropy(x, target):
        return -words.log_softmax(x, 1)[np.arange(len(target)), target].mean()
    words = SimpleNamespace(
        exp=xp.exp, sin=xp.sin, tanh=xp.tanh, sqrt=xp.sqrt, swapaxes=xp.swapaxes, layer_norm=layer_norm,
        sum=lambda x, dim, keepdim=False: xp.sum(x, axis=dim, keepdims=keepdim),
        mean=lambda x, dim, keepdim=False: xp.mean(x, axis=dim, keepdims=keepdim), embedding=lambda index, table: table[index])
    words.__dict__.update({"cross_entropy": cross_entropy} | own)
    return words


PEERS = {                                    # in the order of the tables: class, module, distribution
    OURS: (Torch, "autograd_gpu", "autograd-gpu"), TORCH: (Torch, "torch", "torch"), FLOOR: (Hand, "numpy", "numpy"),
    "JAX jit": (Jax, "jax", "jax"), "JAX eager": (Jax, "jax", "jax"), "HIPS autograd": (Hips, "autograd", "autograd"),
    "MyGrad": (MyGrad, "mygrad", "mygrad")}


@cache
def installed():
    """The peers that can be imported here, by name; and why the others cannot."""
    found, missing = {}, {}
    for name, (kind, module, distribution) in PEERS.items():
        try:
            found[name] = kind(name, module, distribution)
        except ImportError as error:
            missing[name] = str(error)
    return found, missing

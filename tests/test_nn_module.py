"""nn.Module and its containers: what is registered, found, kept and loaded, hooks and printing, each program as in PyTorch."""
import copy
import warnings
from collections import OrderedDict

import pytest

import autograd_gpu
from tests.parity import data, linear, result, said

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns or raises is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


# ------------------------------------------------------------------------------------------------------- members and state

class Log(list):
    def hook(self, text, value=None):
        def hook(*args):
            self.append((text, [type(a).__name__ for a in args[1:]]))
            return value
        return hook


@program
def registering_errors(torch):
    nn = torch.nn
    m, t, found = nn.Linear(1, 1), torch.ones(1), []
    for name in (5, "a.b", "", "weight", "forward"):
        found += [said(lambda n=name: m.register_parameter(n, nn.Parameter(t)), "should be a string", "can't contain", "already exists"),
                  said(lambda n=name: m.register_buffer(n, t), "should be a string", "can't contain", "already exists", "empty string"),
                  said(lambda n=name: m.add_module(n, nn.ReLU()), "should be a string", "can't contain", "already exists", "got: a.b")]
    for value in (5, t, nn.Parameter(t) * 2, None):
        found += [said(lambda v=value: m.register_parameter("q", v), "cannot assign 'int' object", "'torch.FloatTensor'", "None required"),
                  said(lambda v=value: m.register_buffer("r", v), "cannot assign 'int' object", "torch Tensor or None"),
                  said(lambda v=value: m.add_module("s", v), "int is not a Module", "torch.FloatTensor is not a Module")]
    return found, list(dict(m.named_parameters())), list(dict(m.named_buffers())), repr(m)


@program
def assigning(torch):
    nn = torch.nn
    m, found = nn.Linear(1, 1), []
    m.register_buffer("b", torch.ones(1))
    m.child = nn.ReLU()
    for name in ("weight", "b", "child"):
        for value in (5, torch.ones(2), nn.Tanh(), None, nn.Parameter(torch.ones(3))):
            found.append((said(lambda n=name, v=value: setattr(m, n, v), "cannot assign", "or None expected"), sorted(m.state_dict()),
                          [n for n, _ in m.named_children()], repr(m), m.__dict__.get(name)))
    m.plain = torch.ones(1)
    m.plain = nn.Parameter(m.plain)
    found.append(("plain" in m.__dict__, sorted(m.state_dict())))
    del m.plain
    del m.child
    return found, said(lambda: m.plain, "no attribute 'plain'"), said(lambda: delattr(m, "plain")), repr(m), "weight" in dir(m)


@program
def before_init(torch):
    nn = torch.nn

    class M(nn.Module):
        def __init__(self, value):
            self.x = value
    return [said(lambda v=v: M(v), "before Module.__init__() call") for v in (nn.Parameter(torch.ones(1)), nn.ReLU(),
        nn.Buffer(torch.ones(1)), 5)]


@program
def buffers(torch):
    nn = torch.nn
    m = nn.Module()
    m.a = nn.Buffer(torch.ones(1))
    m.b = nn.Buffer(torch.ones(1), persistent=False)
    m.register_buffer("c", torch.ones(2), persistent=False)
    m.register_buffer("d", None)
    m.c = torch.zeros(3)
    found = [list(m.state_dict()), [n for n, _ in m.named_buffers()], isinstance(m.a, nn.Buffer), isinstance(m.a, torch.Tensor)]
    m.d = torch.ones(1)
    m.register_buffer("b", torch.ones(1))
    del m.a
    return found, list(m.state_dict()), said(lambda: nn.Module().forward(1), 'missing the required "forward"'), m.get_buffer("c")


@program
def members(torch):
    nn = torch.nn
    a = nn.Linear(1, 2)
    m = nn.Sequential(OrderedDict(x=a, y=nn.Sequential(a, nn.BatchNorm1d(2)), z=None))
    m.y[1].weight = a.bias
    names = [[n for n, _ in f] for f in (
        m.named_parameters(), m.named_parameters("p"), m.named_parameters(recurse=False), m.named_parameters(remove_duplicate=False),
        m.named_buffers(), m.named_buffers("q", False), m.named_modules(), m.named_modules(prefix="r"), m.named_children(),
        m.named_modules(remove_duplicate=False))]
    return names, len(list(m.parameters())), len(list(m.modules())), len(list(m.children())), sorted(m.state_dict()), repr(m)


@program
def finding(torch):
    m = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Sequential(torch.nn.BatchNorm1d(2)))
    found = [repr(m.get_submodule("1.0")), m.get_submodule("") is m, m.get_parameter("0.bias") is m[0].bias,
             m.get_buffer("1.0.running_var")]
    found += [said(lambda: m.get_submodule("0.x"), "Linear has no attribute `x`"),
              said(lambda: m.get_submodule("0.weight"), "not an nn.Module"),
              said(lambda: m.get_parameter("1.0.running_var"), "not an nn.Parameter"), said(lambda: m.get_parameter("zz")),
              said(lambda: m.get_buffer("0.weight"), "is not a buffer"), said(lambda: m.set_submodule("", m)),
              said(lambda: m.set_submodule("a.b", m)), said(lambda: m.set_submodule("a", torch.nn.ReLU(), strict=True)),
              said(lambda: m.set_submodule("1.0", 5), "not an nn.Module, found")]
    m.set_submodule("1.0", torch.nn.ReLU())
    m.set_submodule("2", torch.nn.Tanh())
    return found, repr(m)


@program
def loading_reports(torch):
    nn = torch.nn
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    found = [repr(m.load_state_dict(s, strict=False)) for s in (
        {}, {"0": 1, "x": 2, "0.weight.a": 3, "0.a.b": 1}, m.state_dict(), {"1.weight": torch.ones(3, dtype=torch.float64)})]
    for s in ({"0": 1, "0.a.b": 1, "0.weight": torch.zeros(2, 2), "1.weight": [1]}, {"0.weight": torch.zeros(2)}):
        for strict in (True, False):
            try:
                m.load_state_dict(s, strict)
            except RuntimeError as error:
                found.append(str(error))
    return found, said(lambda: m.load_state_dict(5), "Expected state_dict to be dict-like, got <class 'int'>"), m[1].weight


@program
def loading_one_as_scalar(torch):
    m = torch.nn.Module()
    m.a = torch.nn.Parameter(torch.zeros(()))
    m.load_state_dict({"a": torch.ones(1)})
    return m.a


@program
def loading_with_assign(torch):
    m = torch.nn.Linear(1, 1)
    old, w, b = m.weight, torch.nn.Parameter(torch.full((1, 1), 7.0), requires_grad=False), torch.full((1,), 8.0, dtype=torch.float64)
    m.load_state_dict({"weight": w, "bias": b}, assign=True)
    return m.weight is old, m.weight is w, m.weight, m.bias, type(m.bias).__name__, said(
        lambda: m.load_state_dict({"weight": torch.ones(1, 1, dtype=torch.int64), "bias": b}, assign=True), "an exception occurred")


@program
def state_is_shared_or_kept(torch):
    m = linear(torch)
    state, kept = m.state_dict(), m.state_dict(keep_vars=True, prefix="a.")
    with torch.no_grad():
        m.weight.fill_(3)
    return state["weight"], kept["a.weight"] is m.weight, type(state).__name__, list(kept)


@program
def state_hooks(torch):
    m = torch.nn.Sequential(linear(torch))
    log = Log()
    m[0].register_state_dict_pre_hook(lambda module, prefix, keep: log.append(("pre", prefix, keep)))
    m[0].register_state_dict_post_hook(lambda module, state, prefix, metadata: log.append(("post", list(state), prefix, metadata)))
    m[0].register_load_state_dict_pre_hook(lambda module, *a: log.append(("load", list(a[0]), *a[1:])))
    handle = m[0].register_load_state_dict_post_hook(lambda module, keys: log.append(("loaded", repr(keys), keys.missing_keys.clear())))
    m.load_state_dict(m.state_dict())
    m.load_state_dict({"0.w": torch.ones(1)}, strict=False)
    handle.remove()
    missing = repr(m.load_state_dict({}, strict=False))
    m[0].register_state_dict_post_hook(lambda *a: 5)
    return list(log), missing, said(m.state_dict, "must return None")


class Extra:
    def get_extra_state(self):
        return {"a": 1}

    def set_extra_state(self, state):
        self.taken = state


@program
def extra_state(torch):
    class M(Extra, torch.nn.Linear):
        pass
    m = M(1, 1)
    state = m.state_dict()
    m.load_state_dict(state)
    taken = m.taken
    del state["_extra_state"]
    plain = torch.nn.Linear(1, 1)
    return taken, list(m.state_dict()), said(lambda: m.load_state_dict(state), "_extra_state"), said(
        lambda: plain.load_state_dict(m.state_dict()), "_extra_state"), repr(m)


@program
def batch_norm_of_version_1(torch):
    m = torch.nn.BatchNorm1d(2)
    m(data(torch, 3, 2))
    state = {n: t for n, t in m.state_dict().items() if "batches" not in n}
    return repr(m.load_state_dict(state)), m.num_batches_tracked


@program
def conversions(torch):
    m = torch.nn.Sequential(linear(torch), torch.nn.BatchNorm1d(2))
    w = m[0].weight
    m(data(torch, 3, 2)).sum().backward()
    found = []
    for change in (lambda: m.double(), lambda: m.half(), lambda: m.to(torch.float64), lambda: m.to(torch.ones(1)), lambda: m.to("cpu"),
                   lambda: m.to(dtype=torch.float64), lambda: m.to("cpu", torch.float32), lambda: m.type(torch.float64),
                   lambda: m.float(), lambda: m.cpu(), lambda: m.to(device="cpu"), lambda: m.bfloat16()):
        found.append((change() is m, m[0].weight is w, str(w.dtype), str(w.grad.dtype), w.requires_grad, str(m[1].running_mean.dtype),
                      str(m[1].num_batches_tracked.dtype)))
    return found, said(lambda: m.to(torch.int32), "floating point or complex dtypes"), [
        tuple(p.shape) for p in m.to_empty(device="cpu").parameters()]


@program
def modes_and_gradients(torch):
    m = torch.nn.Sequential(linear(torch), torch.nn.Sequential(torch.nn.Dropout()))
    found = [m.eval() is m, [x.training for x in m.modules()], m.train() is m, [x.training for x in m.modules()],
             said(lambda: m.train(5), "training mode is expected to be boolean")]
    m(data(torch, 1, 2)).sum().backward()
    grad = m[0].weight.grad
    m.zero_grad(set_to_none=False)
    found += [m[0].weight.grad is grad, grad.sum()]
    m.zero_grad()
    found.append(m[0].weight.grad is None)
    order = []
    found.append(m.apply(lambda x: order.append(type(x).__name__)) is m)
    return found, order, m.requires_grad_(False) is m, [p.requires_grad for p in m.parameters()]


@program
def copies(torch):
    m = torch.nn.Sequential(linear(torch), torch.nn.BatchNorm1d(2))
    m.append(m[0])
    m(data(torch, 3, 2)).sum().backward()
    m[0].register_forward_hook(lambda *a: None)
    c = copy.deepcopy(m)
    with torch.no_grad():
        c[0].weight.fill_(0)
    return (c[0] is c[2], c[0].weight is m[0].weight, m[0].weight.sum().item() > 0, c[0].weight.grad is None, type(c[0].weight).__name__,
            len(c[0]._forward_hooks), c[0].weight.requires_grad, repr(c) == repr(m))


@program
def graphs_and_shared_modules(torch):
    m, log = linear(torch), []
    y = (m(data(torch, 1, 2)) ** 2).sum()
    m.load_state_dict(m.state_dict())
    found = [said(y.backward, "modified by an inplace"), m.weight._version]
    m.register_full_backward_hook(lambda module, gi, go: log.append(go[0].tolist()))
    m(m(data(torch, 1, 2))).sum().backward()
    with torch.inference_mode():
        out, state = m(torch.ones(1, 2)), m.state_dict()
        made = torch.nn.Linear(1, 1)
    return found, log, out.is_inference(), state["weight"].is_inference(), made.weight.is_inference(), made.weight.requires_grad


@program
def parameters(torch):
    nn, t = torch.nn, torch.ones(2)
    a = nn.Parameter(t)
    t.add_(1)
    b = nn.Parameter(a * 2)
    kinds = [type(x).__name__ for x in (a.data, a.detach(), a.clone(), a + 1, a.view(2), a[0], copy.deepcopy(a), a.double(), a.cpu())]
    return (a, b.is_leaf, b, nn.Parameter(a) is a, kinds, repr(a), repr(nn.Parameter()), repr(nn.Parameter(t, requires_grad=False)),
            repr(nn.Buffer(t)), repr(nn.Buffer(t, persistent=False)), said(lambda: nn.Parameter(t.long())),
            said(lambda: nn.Parameter([1.0])))


@program
def printing(torch):
    nn = torch.nn

    class Named(nn.Module):
        def __init__(self, text):
            super().__init__()
            self.text = text

        def extra_repr(self):
            return self.text
    a = Named("one\ntwo")
    a.sub = Named("three")
    a.none = None
    b = Named("x")
    b.add_module("empty", None)
    return [repr(m) for m in (a, b, Named("one\ntwo"), nn.ModuleList([a, Named("x"), Named("x")]), nn.ModuleDict({"k": a}), nn.Module(),
                              nn.ParameterList([torch.ones(2, 3), 5, nn.Parameter(torch.ones(()))]),
                              nn.ParameterDict({"a": torch.ones(2, 3, dtype=torch.float64), "b": None}), nn.ModuleList())]


@program
def module_arguments(torch):
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__(5)
    return said(lambda: torch.nn.Module(1), "takes 1 positional argument but 2 were given"), said(
        lambda: torch.nn.Module(a=1), "unexpected keyword argument 'a'"), said(M)


# ------------------------------------------------------------------------------------------------------------------ hooks

@program
def forward_hooks_in_order(torch):
    log, m = Log(), linear(torch)
    handles = [m.register_forward_pre_hook(log.hook("pre 1")), m.register_forward_pre_hook(log.hook("pre 0"), prepend=True),
               m.register_forward_hook(log.hook("post 1")), m.register_forward_hook(log.hook("post 0"), prepend=True),
               m.register_forward_pre_hook(log.hook("pre kw"), with_kwargs=True),
               m.register_forward_hook(log.hook("post kw"), with_kwargs=True)]
    every = torch.nn.modules.module
    handles += [every.register_module_forward_pre_hook(log.hook("every pre")), every.register_module_forward_hook(log.hook("every")),
                every.register_module_forward_hook(log.hook("every kw"), with_kwargs=True)]
    m(data(torch, 1, 2))
    for h in handles:
        h.remove()
    m(data(torch, 1, 2))
    return list(log)


@program
def forward_hooks_with_kwargs(torch):
    class M(torch.nn.Module):
        def forward(self, x, *, k=1):
            return x * k
    found = []
    for value in (None, ((torch.ones(1),), {"k": 5}), 5, (1, 2, 3)):
        m = M()
        m.register_forward_pre_hook(lambda module, args, kwargs, v=value: v, with_kwargs=True)
        m.register_forward_hook(lambda module, args, kwargs, out: (out, kwargs["k"]), with_kwargs=True)
        found.append(said(lambda m=m: m(torch.ones(1), k=3), "must return None or a tuple of (new_args, new_kwargs)") or
                     m(torch.ones(1), k=3))
    return found


@program
def forward_hooks_always_called(torch):
    class M(torch.nn.Module):
        def forward(self, x):
            raise ValueError("from forward")
    m, log = M(), []
    m.register_forward_hook(lambda module, args, out: log.append(("a", out)), always_call=True)
    m.register_forward_hook(lambda module, args, out: log.append("never"))
    m.register_forward_hook(lambda module, args, kw, out: out.missing, always_call=True, with_kwargs=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = said(lambda: m(1), "from forward")
    n = torch.nn.ReLU()
    n.register_forward_hook(lambda module, args, out: log.append("ran"), always_call=True)
    n.register_forward_hook(lambda module, args, out: out.missing)
    return error, log, ["silenced" in str(w.message) for w in caught], said(lambda: n(torch.ones(1))), len(log)


@program
def backward_hooks_in_order(torch):
    log, m = Log(), linear(torch)
    m.register_full_backward_hook(log.hook("b 1"))
    m.register_full_backward_hook(log.hook("b 0"), prepend=True)
    m.register_full_backward_pre_hook(log.hook("p 1"))
    m.register_full_backward_pre_hook(log.hook("p 0"), prepend=True)
    every = torch.nn.modules.module
    handles = [every.register_module_full_backward_hook(log.hook("every")),
               every.register_module_full_backward_pre_hook(log.hook("every p"))]
    y = m(data(torch, 1, 2))
    names = [y.grad_fn.name(), y.grad_fn.next_functions[0][0].name()]
    y.sum().backward()
    for h in handles:
        h.remove()
    m(data(torch, 1, 2)).sum().backward()
    return list(log), names


class Two:
    """Several inputs and outputs, some of which are no Tensors or have no gradient."""

    def forward(self, x, n, y, z=None):
        return x * 2, n, y.detach(), (x + y) * n


@program
def backward_hooks_see_gradients_at_their_places(torch):
    class M(Two, torch.nn.Module):
        pass
    m, log = M(), []

    def shown(grads):
        return [g if g is None else g.tolist() for g in grads]
    m.register_full_backward_hook(lambda module, gi, go: log.append(("b", shown(gi), shown(go))))
    m.register_full_backward_pre_hook(lambda module, go: log.append(("p", shown(go))))
    x, y = data(torch, 2), data(torch, 2, seed=2)
    out = m(x, 3, y)
    (out[0] * out[3]).sum().backward()
    m(x, 3, y)[0].sum().backward()
    return log, x.grad, y.grad, [o if isinstance(o, int) else o.requires_grad for o in out]


BACKWARD_RETURNS = [None, lambda g: g * 2, lambda g: (g * 2,), lambda g: (g, g), lambda g: (None,), lambda g: 5, lambda g: (g[:0],)]


@program
def what_backward_hooks_return(torch):
    found = []
    for value in BACKWARD_RETURNS:
        for pre in (False, True):
            m, x = linear(torch), data(torch, 1, 2)
            if pre:
                m.register_full_backward_pre_hook(lambda module, go, v=value: v and v(go[0]))
            else:
                m.register_full_backward_hook(lambda module, gi, go, v=value: v and v(gi[0]))
            found.append((said(lambda m=m, x=x: m(x).sum().backward(), "invalid number of"), x.grad, m.weight.grad))
    return found


@program
def backward_hooks_without_inputs_that_require_grad(torch):
    m, log = linear(torch), []
    m.register_full_backward_hook(lambda module, gi, go: log.append((gi, go[0].tolist())))
    m(torch.ones(1, 2)).sum().backward()
    n = linear(torch)
    n.register_full_backward_hook(lambda module, gi, go: (torch.ones(1, 2),))
    with torch.no_grad():
        plain = m(torch.ones(1, 2)).requires_grad
    return log, m.weight.grad, said(lambda: n(torch.ones(1, 2)).sum().backward(), "should always return None or None"), plain


@program
def backward_hooks_past_the_output(torch):
    class M(torch.nn.Module):
        def forward(self, x):
            self.kept = x * 3
            return x * 2
    m = M()
    m.register_full_backward_hook(lambda *a: None)
    x = data(torch, 2)
    m(x)
    return said(lambda: m.kept.sum().backward(), "without passing through the Module's output")


@program
def backward_hooks_and_other_outputs(torch):
    class M(torch.nn.Module):
        def forward(self, x):
            return {"a": x}
    m = M()
    m.register_full_backward_hook(lambda *a: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        m(data(torch, 2))
    n = torch.nn.ReLU(inplace=True)
    n.register_full_backward_hook(lambda *a: None)
    return ["should be a Tensor or a tuple of Tensors" in str(w.message) for w in caught], said(
        lambda: n(data(torch, 2) * 1), "inplace", "a view")


@program
def backward_hooks_twice(torch):
    m, log = linear(torch), []
    m.register_full_backward_hook(lambda module, gi, go: log.append(gi[0].requires_grad))
    x = data(torch, 1, 2)
    y = (m(x) ** 3).sum()
    g, = torch.autograd.grad(y, x, create_graph=True)
    g.sum().backward()
    return log, g, x.grad, m.weight.grad


@program
def hooks_on_registration(torch):
    every, log = torch.nn.modules.module, []
    handles = [every.register_module_parameter_registration_hook(lambda m, name, p: log.append(("p", name))),
               every.register_module_buffer_registration_hook(lambda m, name, b: log.append(("b", name, b is None))),
               every.register_module_module_registration_hook(lambda m, name, s: log.append(("m", name)))]
    m = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.BatchNorm1d(1))
    m.x = torch.nn.ReLU()
    for h in handles:
        h.remove()
    m.y = torch.nn.ReLU()
    return log


# ------------------------------------------------------------------------------------------------------------- containers

@program
def sequential(torch):
    nn = torch.nn
    s, found = nn.Sequential(nn.ReLU(), nn.Tanh()), []
    for f in (lambda: s[-1], lambda: s[2], lambda: s["a"], lambda: s[0:1], lambda: s + s, lambda: s + 3, lambda: s * 2, lambda: 2 * s,
              lambda: s * 0, lambda: s * 1.5, lambda: s.append(nn.ELU()), lambda: s.insert(0, nn.GELU()), lambda: s.insert(20, nn.ELU()),
              lambda: s.insert(0, 3), lambda: s.pop(0), lambda: s.extend([nn.SELU()]), lambda: s.__delitem__(0), lambda: s.extend(3),
              lambda: s.__setitem__(0, nn.Mish()), lambda: s.__setitem__(0, 3), lambda: s.__iadd__(nn.Sequential(nn.ReLU())),
              lambda: s.__imul__(2), lambda: nn.Sequential(nn.ReLU(), 3), lambda: s.__delitem__(slice(0, 2)), lambda: s.append(3)):
        found.append(said(f) if said(lambda f=f: copy.deepcopy(s) and None) else None)
        try:
            found.append(repr(f()))
        except Exception as error:
            found.append(type(error).__name__)
        found.append(repr(s))
    named = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh(), c=nn.ELU()))
    del named[1]
    return found, repr(named), repr(named[1:]), len(s), [type(m).__name__ for m in s], repr(nn.Sequential(OrderedDict(a=s)).a)


def attempts(container, calls):
    found = []
    for f in calls:
        try:
            value = f()
            found.append(value if isinstance(value, (list, bool, int)) else repr(value))
        except Exception as error:
            found.append(type(error).__name__)
        found.append(repr(container))
    return found


@program
def module_list(torch):
    nn = torch.nn
    m = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    return attempts(m, (
        lambda: m[5], lambda: m["a"], lambda: m(1), lambda: m.extend(5), lambda: m.insert(1, nn.ELU()), lambda: m + [nn.ELU()],
        lambda: m[0:2], lambda: m.pop(1), lambda: m.append(3), lambda: m.__setitem__(0, nn.GELU()), lambda: m.__delitem__(0),
        lambda: m.extend(nn.ModuleList([nn.ReLU(), nn.ReLU()])), lambda: m[-1], lambda: m.__iadd__([nn.SELU()]), lambda: len(m),
        lambda: m.__delitem__(slice(1, 3)), lambda: [type(x).__name__ for x in m], lambda: m[True],
        lambda: nn.ModuleList(x for x in [nn.ReLU()]), lambda: m.pop(-1)))


@program
def module_dict(torch):
    nn = torch.nn
    m = nn.ModuleDict({"a": nn.ReLU()})
    return attempts(m, (
        lambda: m["x"], lambda: m.update([("b", nn.Tanh())]), lambda: m.update(5), lambda: m.update([1]), lambda: m.update([[1, 2, 3]]),
        lambda: m.pop("a"), lambda: "b" in m, lambda: list(m), lambda: list(m.keys()), lambda: len(m), lambda: m.update({"z": 3}),
        lambda: nn.ModuleDict({"keys": nn.ReLU()}), lambda: m.__setitem__("c", nn.ELU()), lambda: m.__delitem__("b"), lambda: m.pop("q"),
        lambda: m.update(nn.ModuleDict({"d": nn.ELU()})), lambda: [n for n, _ in m.items()], lambda: m.clear(), lambda: m(1)))


@program
def parameter_list(torch):
    nn = torch.nn
    m = nn.ParameterList([torch.ones(2), nn.Parameter(torch.ones(3))])
    return attempts(m, (
        lambda: m[5], lambda: m.append(torch.ones(1)), lambda: m.extend([torch.ones(4)]), lambda: m.extend(5), lambda: m[1:],
        lambda: m.__setitem__(0, torch.zeros(2)), lambda: m[-1].requires_grad, lambda: len(m), lambda: [n for n, _ in m.named_parameters()],
        lambda: m.extend(torch.ones(2)), lambda: m.__iadd__([torch.ones(1)]), lambda: m(1), lambda: m.append(5),
        lambda: list(m.state_dict()),
        lambda: [type(x).__name__ for x in m], lambda: len(copy.deepcopy(m)), lambda: m["a"]))


@program
def parameter_dict(torch):
    nn = torch.nn
    m = nn.ParameterDict({"a": torch.ones(2)})
    return attempts(m, (
        lambda: m["x"], lambda: m.update({"b": torch.ones(3)}), lambda: m.update([("c", nn.Parameter(torch.ones(1)))]), lambda: m.update(5),
        lambda: list(m), lambda: list(reversed(m)), lambda: "a" in m, lambda: m.get("zz", 3),
        lambda: m.setdefault("d", torch.ones(1)).shape,
        lambda: m.pop("a").shape, lambda: m.popitem()[0], lambda: m | {"e": torch.ones(1)}, lambda: m.__ior__({"f": torch.ones(1)}),
        lambda: list(m.copy()), lambda: m.__delitem__("b"), lambda: len(m), lambda: nn.ParameterDict().fromkeys(["x", "y"], 5),
        lambda: [n for n, _ in m.named_parameters()], lambda: m(1), lambda: m.clear(), lambda: m.pop("q"), lambda: m.copy(),
        lambda: nn.ParameterDict({"keys": torch.ones(1)}).keys() is None))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)

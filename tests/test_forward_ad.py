"""Forward mode: duals, views and writes in place, modes, beside PyTorch; and what only this package promises. Ops: tests/test_ops.py."""
import contextlib
import copy
import gc
import io
import re
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.autograd import forward_ad
from autograd_gpu.engine import forward_mode
from autograd_gpu.engine.grad_mode import everywhere, local
from tests.duals import Api, beside, raised

PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


# ---------------------------------------------------------------------------------------------------------------- duals

@program
def levels(api):
    fw, x = api.fw, api.tensor(2)
    found = [raised(lambda: fw.make_dual(x, x)), raised(fw.exit_dual_level), fw.unpack_dual(3), fw.enter_dual_level()]
    d = fw.make_dual(x, x, level=0)
    found += [raised(fw.enter_dual_level), raised(lambda: fw.exit_dual_level(level=1)), raised(lambda: fw.make_dual(x, x, level=1)),
              fw.unpack_dual(x, level=1), api.of(d)]
    fw.exit_dual_level(level=0)
    found += [fw.unpack_dual(d) == (d, None), raised(fw.exit_dual_level)]
    with pytest.raises(KeyError), api.level():
        raise KeyError

    @api.level()
    def decorated(x):
        return api.of(api.dual(x, x) * 2)
    with api.level() as number:
        found += [number, api.of(d)]
    return [*found, decorated(x), decorated.__name__]


@program
def inference_tensors_beside_duals(api):
    """What nobody will differentiate may be multiplied with; what somebody may, not."""
    torch, found = api.torch, []
    with torch.inference_mode():
        y, m = api.tensor(3, turn=2), api.tensor(3, 3, turn=3)
    with api.level():
        d, e = api.pair(3), api.dual(api.tensor(3), api.tensor(3, turn=1, grad=True) * 1)
        for f in (lambda x: y @ x, lambda x: y * x, lambda x: m @ x, lambda x: torch.stack([x, y]), lambda x: torch.outer(x, y)):
            found.append(api.of(f(d)))
        return [*found, raised(lambda: y * e)]


@program
def what_cannot_be_a_dual(api):
    torch, x = api.torch, api.tensor(2)
    with api.level():
        d = api.dual(x, x)
        wrong = [(d, x), (x, d), (x, api.tensor(3)), (x, api.tensor(2, 1)), (torch.tensor([1, 2]), x), (x, torch.tensor([1, 2])), (1.0, x),
                 (x, None)]
        return [raised(lambda pair=pair: api.dual(*pair)) for pair in wrong] + [raised(lambda: api.fw.unpack_dual(1.0))]


@program
def a_dual_is_a_view_with_a_tangent(api):
    found = []
    with api.level():
        empty = api.torch.zeros(2, 0, 3)[..., ::2]
        found.append(api.of(api.dual(empty, api.torch.zeros(2, 0, 2))))
        for grad in (False, True):
            x, t = api.tensor(2, 2, grad=grad), api.tensor(2, 2, turn=3)
            d = api.dual(x, t)
            primal, tangent = api.fw.unpack_dual(d)
            found += [d, tangent, d._base is x, primal._base is x, primal is x, d.requires_grad, primal.requires_grad, d.is_leaf, api.of(x),
                      api.of(primal), tangent.data_ptr() == t.data_ptr(), *[u.grad_fn and u.grad_fn.name() for u in (d, primal)],
                      type(primal) is type(x)]
        flat = api.dual(api.tensor(3)[:, None], t := api.tensor(3).as_strided((3, 1), (1, 5)))
        found.append(api.of(flat).data_ptr() == t.data_ptr())
        t = api.tensor(2, 2, turn=3)
        other = api.dual(x, t.t())           # laid out otherwise: a copy
        found += [api.of(other), api.of(other).stride(), api.of(other).data_ptr() == t.data_ptr()]
        wide = api.dual(api.tensor(2, dtype="float32"), api.tensor(2))
        found += [api.of(wide), api.of(api.dual(x[:, ::2], t[:, :1])), api.of(api.dual(x, api.tensor(2).expand(2, 2))).stride()]
    return found


@program
def gradients_flow_to_primal_and_tangent(api):
    x, t = api.tensor(3, grad=True), api.tensor(3, turn=2, grad=True)
    with api.level():
        d = api.dual(x, t)
        found = []
        for f in (lambda d: d, lambda d: d ** 3, lambda d: d.exp() * d, lambda d: d.cumsum(0).prod(), lambda d: d[1:] @ d[:2]):
            p, q = api.fw.unpack_dual(f(d))
            grads = api.torch.autograd.grad(p.sum() * 2 + q.sum(), (x, t))
            found += [p.requires_grad, q.requires_grad, [api.torch.tensor(g.tolist()) for g in grads]]
    return found


@program
def text(api):
    torch = api.torch
    with api.level():
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        d = api.dual(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0]))
        return [str(d), repr(api.dual(x, torch.tensor([0.5, 1.0]))), str(d[0]), str(d * 2), str(d.double()), f"{d[0]} {d[1]:.3f}",
                str(d.expand(12, 2))]


# ---------------------------------------------------------------------------------------------------- views and writes in place

@program
def views_share_tangents(api):
    of = api.of
    with api.level():
        d = api.pair(3, 4)
        tangent = of(d)
        row, column, part = d[0], d.t()[1], d.view(-1)[2:7]
        found = [of(v) for v in (row, column, part, d.unbind()[1], d.split(2)[1], d.reshape(2, 6), d[None].squeeze(0))]
        row.mul_(3.0)
        found += [of(v) for v in (d, row, column, part)]
        part.zero_()
        found += [of(v) for v in (d, row, column, part)] + [of(d) is tangent, of(row)._base is tangent]
        column.add_(api.pair(3, turn=9))
        d.t().exp_()
        return [*found, *[of(v) for v in (d, row, column, part)], d]


@program
def a_plain_tensor_that_a_dual_is_written_to(api):
    of, torch = api.of, api.torch

    def index_put(p, d):
        p[torch.tensor([0, 2]), torch.tensor([1, 1])] = d

    def masked(p, d):
        p[p > 0] = d[0]

    def part(p, d):
        p[1, 1:3] = d

    def whole(p, d):
        p.copy_(d[0])

    def within(p, d):
        with torch.no_grad():
            p[0].mul_(d[1])
    found = []
    with api.level():
        for write in (index_put, masked, part, whole, within, lambda p, d: p.add_(d[1]), lambda p, d: p[0, :2].copy_(d),
                      lambda p, d: p.view(-1)[::3].index_copy_(0, torch.tensor([0, 2]), d),
                      lambda p, d: p.scatter_(1, torch.tensor([[0, 1]]), d[None]), lambda p, d: p.addcmul_(d[0], d[1])):
            p, d = api.tensor(3, 4, turn=7), api.pair(2)
            before = p.t(), p[0], p.detach()
            write(p, d)
            found += [p, of(p), *[of(v) for v in before], of(p[1:])]
            before[1].sin_()
            p.data[0, 0] = 5.0
            p[0, 0] = 5.0
            found += [of(p), *[of(v) for v in before]]
    return found


@program
def what_writes_over_a_tangent(api):
    of, torch = api.of, api.torch
    found = []
    with api.level():
        for write in (lambda d: d.fill_(3.0), lambda d: d.zero_(), lambda d: d.copy_(torch.ones(2, 2)), lambda d: d.uniform_(),
                      lambda d: d.masked_fill_(d > 0, 1.0), lambda d: d.gt_(0.5), lambda d: d.round_(), lambda d: d.t_(),
                      lambda d: d.unsqueeze_(1), lambda d: d.clamp_(-0.5, 0.5), lambda d: d[0].normal_(), lambda d: d.squeeze_(),
                      lambda d: d.transpose_(0, 1), lambda d: d.tril_()):
            given = api.tensor(2, 2, turn=2)
            d = api.dual(api.tensor(2, 2), given)
            write(d)
            found += [of(d), tuple(d.shape), given.sum()]        # of PyTorch, t_() turns what was given, too
        y = api.pair(2, 2) * 1               # no view
        y.t_()
        z = y.contiguous()
        z.mul_(2.0)
        w = api.pair(2, 1).expand(2, 3) + 0
        w.mul_(2.0)
        e = api.pair(2, 2)
        e.data = torch.ones(2, 2)
        found += [of(y), of(z), of(w), z is y, y.contiguous() is y, of(e)]
    return found


@program
def a_result_has_a_tangent_of_its_own(api):
    found = []
    with api.level():
        for f in (lambda d: d + 1, lambda d: d.clone(), lambda d: d.double(), lambda d: d.neg().neg(), lambda d: api.torch.cat([d]),
                  lambda d: d.where(d > -9, d), lambda d: d.expand(2, 2).clone(), lambda d: d + api.tensor(2, 2)):
            d = api.pair(2)
            y = f(d)
            y.mul_(5.0)
            found += [api.of(d), api.of(y), api.of(y).stride()]
    return found


@program
def writes_that_are_refused(api):
    leaf = api.tensor(2, grad=True)
    with api.torch.inference_mode():
        inferred = api.tensor(2)
    with api.level():
        refused = [raised(lambda: inferred.copy_(api.pair(2))), api.of(inferred)]
        d = api.dual(leaf, api.tensor(2))
        e = api.dual(api.tensor(2), api.tensor(2, grad=True))
        out = api.torch.empty(2, dtype=api.torch.float64)
        return [*refused, raised(lambda: d.mul_(2.0)), raised(lambda: leaf.mul_(api.pair(2))), raised(lambda: e.mul_(2.0)),
                raised(lambda: api.torch.add(api.pair(2), 1, out=out)), raised(lambda: api.torch.add(out, 1, out=api.pair(2))), leaf]


@program
def the_primal_without_its_tangent(api):
    with api.level():
        d = api.pair(2, 2)
        primal = api.fw.unpack_dual(d).primal
        part = primal[0]
        found = [api.of(primal), api.of(part), api.of(primal * 2)]
        primal.mul_(2.0)
        found += [d, api.of(d)]
        primal.mul_(api.pair(2, 2, turn=1))
        return [*found, primal, api.of(primal), d, api.of(d)]


@program
def hooks_of_the_primals_node_see_a_gradient_that_nobody_wants(api):
    x = api.tensor(2).requires_grad_()
    with api.level():
        primal = api.fw.unpack_dual(x).primal
    seen = []
    primal.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
    (primal * 2).sum().backward(inputs=[primal])
    return [*seen[0][0], *seen[0][1], primal.grad, x.grad]


# ---------------------------------------------------------------------------------------------------------------- modes and copies

@program
def modes(api):
    torch, of = api.torch, api.of
    with api.level():
        d = api.pair(2)
        with torch.no_grad():
            found = [of(d * 2), of(d[0]), (d * 2).requires_grad]
        with torch.inference_mode():
            z, i = d * 2, torch.ones(2, dtype=torch.float64)
            duals = [api.dual(i, i), api.dual(d, i), api.dual(api.tensor(2, grad=True), api.tensor(3))]
        found += [(of(t), t.requires_grad, t.is_inference(), of(t * 2)) for t in duals]
        found += [of(z), of(d.detach()), of(d.data), of(d.detach() * d), of(copy.copy(d)), of(torch.as_tensor(d))]
        with api.fw._set_fwd_grad_enabled(False):
            z, v, off = d * 2, d[:1], api.fw._is_fwd_grad_enabled()
            found += [off, of(d)]
        found += [of(z), of(v), api.fw._is_fwd_grad_enabled()]
        leaf = api.dual(api.tensor(2), api.tensor(2)).requires_grad_()
        (leaf ** 2).sum().backward()
        found += [of(leaf), leaf.requires_grad, leaf.is_leaf, of(d.to(torch.float64)), of(d.to(torch.complex128)), of(d.float()),
                  of(d.long()), of(torch.zeros_like(d)), of(d > 0), of(d.argmax()), of(d.sign()), of(torch.tensor([1.0]))]
        names = []
        for f in (lambda: d // 2, lambda: torch.heaviside(d, d.detach()), lambda: 2 % d):
            names.append(raised(f))
        return [*found, names]


@program
def the_sign_of_a_complex_zero_stays(api):
    with api.level():
        d = api.dual(api.torch.tensor([0j, 1 + 1j]), api.torch.tensor([1 + 2j, 1 + 2j]))
        return [d.sgn(), api.of(d.sgn())]


@program
def duals_of_a_level_before(api):
    found = []
    for kept in ("dual", "primal"):
        base = api.tensor(2, 3)
        with api.level():
            d = api.dual(base[0], api.tensor(3))
            d = d if kept == "dual" else api.fw.unpack_dual(d).primal
        for written in (base, base[0], d, d[:2]):
            with api.level():
                part, whole = d[:1], d[:]
                found += [api.of(t) for t in (d, part, base)]
                written.mul_(api.tensor(*written.shape))
                written.copy_(api.pair(*written.shape))
                found += [api.of(t) for t in (d, part, whole, base, base[0], d[1:])]
    return found


@program
def detached_in_place(api):
    of, found = api.of, []
    for grad in (False, True):
        for looks in (False, True):
            with api.level():
                d = api.dual(api.tensor(2, grad=grad), api.tensor(2, turn=1))
                y = d * 2
                v, unrelated = y[:1], y * 2
                w = v.unsqueeze(0)
                if looks:
                    found += [of(v), of(w)]
                y.detach_()
                found += [of(y), of(y * 2), of(v), of(w), of(y[1:]), of(unrelated)]
                y.mul_(d)
                found += [of(y), of(v), of(w), of(y[1:]), raised(d.detach_), of(d)]
    return found


@program
def the_level_is_that_of_all_threads(api):
    found = []
    with api.level():
        d = api.pair(2)
        thread = threading.Thread(target=lambda: found.extend([api.of(d * 2), raised(api.fw.enter_dual_level)]))
        thread.start()
        thread.join()
    return found


@program
def modules(api):
    torch = api.torch
    with api.level():
        linear = torch.nn.Linear(2, 3).double()
        with torch.no_grad():
            for p in linear.parameters():
                p.copy_(api.tensor(*p.shape))
        weight = linear.weight
        x = api.tensor(4, 2)
        found = [raised(lambda: setattr(linear, "weight", api.dual(weight, api.tensor(3, 2, turn=4))))]
        del linear.weight
        linear.weight = api.dual(weight, api.tensor(3, 2, turn=4))
        y = linear(x).tanh()
        g, = torch.autograd.grad(y.sum(), weight)
        norm = torch.nn.BatchNorm1d(3).double()
        z = norm(y)
        norm.eval()
        return [*found, api.of(y), g, api.of(z), api.of(norm(y)), api.of(norm.running_mean), norm.running_mean]


test_programs = beside(PROGRAMS)


# ---------------------------------------------------------------------------------------------------------------- what is ours

def test_levels_in_levels_are_what_higher_derivatives_are():
    """No door for users yet; what jvp of jvp is made of."""
    torch = autograd_gpu

    def jvp(f, x, v):
        with forward_mode.own_level() as level:
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, v, level=level)), level=level).tangent

    def f(x):
        y = x * 1
        y[0:1].mul_(x[1:])
        y.exp_()
        return (y * x.sin() * torch.softmax(x, 0)).cumsum(0).prod()
    x, v, w, u = (torch.tensor(a, dtype=torch.float64) for a in ([0.3, 0.7], [1.0, -2.0], [0.5, 1.0], [0.2, 0.3]))
    second = jvp(lambda x: jvp(f, x, v), x, w)
    third = jvp(lambda x: jvp(lambda x: jvp(f, x, v), x, w), x, u)
    leaf = x.clone().requires_grad_()
    g, = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    h, = torch.autograd.grad((g * v).sum(), leaf, create_graph=True)
    k, = torch.autograd.grad((h * w).sum(), leaf)
    assert second.item() == pytest.approx((h * w).sum().item(), rel=1e-12)
    assert third.item() == pytest.approx((k * u).sum().item(), rel=1e-12)
    one = torch.ones(1)
    assert jvp(lambda x: x * jvp(lambda y: x + y, one, one), one, one).item() == 1       # no perturbation is taken for another


def test_tangents_go_with_what_has_them_and_with_the_level():
    api = Api(autograd_gpu)
    with api.level():
        d = api.pair(2)
        y = d.exp()
        of_y, level = weakref.ref(api.of(y)), everywhere.levels[0]
        count = len(level._found)
        del y
        gc.collect()
        assert of_y() is None and len(level._found) < count
        of_d = weakref.ref(api.of(d))
    del level
    gc.collect()
    assert of_d() is None and d.shape == (2,)


@pytest.mark.parametrize("start", ["dual", "result", "primal"])
def test_a_view_of_a_view_of_a_view(start, in_small_stack):
    """However long the chain, neither its tangent nor its end takes recursion."""
    api = Api(autograd_gpu)

    def run():
        with api.level():
            v = api.pair(3)
            v = v * 2 if start == "result" else api.fw.unpack_dual(v).primal if start == "primal" else v
            for k in range(20000):
                with autograd_gpu.no_grad() if k % 3 == 0 else autograd_gpu.enable_grad():
                    v = v.view(3)
            v.mul_(api.pair(3, turn=1))
            return v.tolist(), api.of(v).tolist()
    x, t, y, u = (api.tensor(3, turn=k) for k in (0, 5, 1, 6))
    x, t = {"dual": (x, t), "result": (x * 2, t * 2), "primal": (x, t * 0)}[start]
    values, tangents = in_small_stack(run)
    assert values == pytest.approx((x * y).tolist()) and tangents == pytest.approx((t * y + x * u).tolist())


def test_a_level_leaves_no_trace():
    state = local.state
    before = state.mode, everywhere.unusual
    for _ in range(2):
        with pytest.raises(KeyError), forward_ad.dual_level():
            raise KeyError
    assert (state.mode, everywhere.unusual, state.sees) == (*before, forward_mode.ALL)


def test_a_write_that_a_tangent_refuses_changes_nothing():
    api = Api(autograd_gpu)
    with api.level():
        y = api.tensor(2, grad=True) * 2
        d = api.dual(y, api.tensor(2, turn=1, grad=True))
        before = d.tolist(), d._version, d.grad_fn, y.grad_fn
        assert raised(lambda: d.reciprocal_()) == "RuntimeError"
        assert (d.tolist(), d._version, d.grad_fn, y.grad_fn) == before


def test_duplicates_among_indices_have_the_tangent_of_what_was_written_last():
    torch, api = autograd_gpu, Api(autograd_gpu)
    at = torch.tensor([1, 1])
    with api.level():
        d = api.pair(2)
        for write in (lambda p: p.index_put((at,), d), lambda p: p.scatter(0, at, d), lambda p: p.index_copy(0, at, d)):
            y, t = forward_ad.unpack_dual(write(torch.zeros(3, dtype=torch.float64)))
            assert [y[1].item(), t[1].item()] == [d[1].item(), api.of(d)[1].item()] and t[0].item() == 0


def test_a_tangent_is_as_it_was_given_where_elements_share_memory():
    """PyTorch refuses it for an expanded tensor, and keeps the last number for each place of an unfolded one."""
    api = Api(autograd_gpu)
    given = api.torch.arange(4, dtype=api.torch.float64).reshape(2, 2)
    with api.level():
        for x in (api.tensor(3).unfold(0, 2, 1), api.tensor(3).unfold(0, 2, 1)[None][0], api.tensor(2).expand(2, 2)):
            assert api.of(api.dual(x, given) * 1).tolist() == given.tolist()


def test_devices(device):
    """The same tangents on each device."""
    api = Api(autograd_gpu)
    torch = autograd_gpu

    def run(where):
        found = []
        with api.level():
            d = api.dual(api.tensor(3, 4).to(where).requires_grad_(), api.tensor(3, 4, turn=2).to(where))
            y = d.sin() * d
            y[0].mul_(y[1] * 1)
            y.t()[1:].exp_()
            for r in (y, y @ d.t(), y.sum(1), torch.softmax(y, 1), torch.cat([y, d]), y[torch.tensor([0, 2, 0], device=where)],
                      y.max(1).values, torch.nn.functional.layer_norm(y, (4,)), d.cpu(), d.half(), torch.complex(d, y).abs()):
                found += [r, api.of(r)]
            g, = torch.autograd.grad(y.tanh().sum(), d)
            found += [g, api.of(g)]
            p = torch.zeros(3, 4, dtype=torch.float64, device=where)
            p[1] = d[0]
            found += [api.of(p), api.of(p.t())]
        return found
    for got, want in zip(run(device), run("cpu"), strict=True):
        np.testing.assert_allclose(np.array(got.tolist()), np.array(want.tolist()), 1e-5, 1e-6)


def test_the_page_says_what_its_programs_print():
    text, names, printed = (Path(__file__).parent.parent / "docs" / "forward_mode.md").read_text(encoding="utf-8"), {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in re.findall(r"```python\n(.*?)```", text, re.S):
            exec(block, names)
    jv, projected, hv, again = printed.getvalue().splitlines()
    assert f"# {jv}\n" in text and f"# H v: {hv}\n" in text and again == hv and len(set(projected.split())) == 1

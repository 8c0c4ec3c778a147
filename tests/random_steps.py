"""The steps of random programs: their templates, and what draws them to fit the tensors that there are."""
from __future__ import annotations

import itertools
import math
import random
import re

SHAPES = [(), (1,), (3,), (3,), (4,), (2, 3), (2, 3), (3, 2), (2, 1), (1, 3), (3, 3), (2, 3, 2), (0,), (2, 0)]
LARGE = 1e4                                  # values past this, infinite and NaN are rarely used further: they say little
LARGE32 = 100                                # where there are numbers of single precision, of which a cosine, say, has no digits left

UNARY = {
    "f": ["{a}.sin()", "{a}.cos()", "{a}.tanh()", "{a}.sigmoid()", "({a} * 0.5).exp()", "-{a}", "{a} * 0.5", "{a} + 1", "1 - {a}",
          "2 / ({a} * {a} + 2)", "{a} ** 2", "{a}.abs()", "{a}.relu()", "{a}.clamp(-1, 1)", "{a}.clamp(min=0.2)", "{a}.clone()",
          "{a}.square()", "torch.where({a} > 0, {a}, {a} * 3)", "{a}.to(torch.float32)", "{a}.double()", "({a} * {a} + 1).log()",
          "({a} * {a} + 1).sqrt()", "{a}.softmax(-1)", "{a}.cumsum(0)", "{a}.floor()", "{a} > 0", "{a}.sign()", "{a}.flip(0)",
          "{a}.log_softmax(0)", "{a}.masked_fill({a} > 0.3, 2.0)", "{a} * (1 + 2j)", "{a}.exp().log1p()", "{a}.roll(1)", "{a}.tril()",
          "{a}.neg()", "{a} / 4", "{a}.pow(3)", "2 ** {a}", "{a}.type(torch.float64)", "{a}.contiguous()", "torch.zeros_like({a})",
          "torch.ones_like({a}, requires_grad=True)", "{a}.lerp({a} * 2, 0.5)", "{a}.cumprod(-1)", "{a}.erf()",
          "torch.nn.functional.softplus({a})",
          "torch.nn.functional.silu({a})", "{a}.repeat(2) * 1", "{a}.data", "{a}.round()"],
    "c": ["{a}.conj() * 1", "{a}.real", "{a}.imag", "{a}.abs()", "{a} * 2", "{a} * (1 + 2j)", "{a} ** 2", "{a}.sin()", "{a}.tanh()",
          "({a} * 0.5).exp()", "-{a}", "{a}.clone()", "{a} * {a}.conj()", "torch.view_as_real({a})", "{a}.reciprocal()",
          "1 / ({a} * {a}.conj() + 1)", "{a}.sgn()", "{a}.resolve_conj()", "{a}.mean()"],
    "i": ["{a} + 1", "{a} * 2", "-{a}", "{a}.abs()", "{a}.double()", "{a} * 0.5", "{a} % 2", "{a} // 2", "{a} > 1", "{a}.clamp(0, 3)",
          "{a}.sin()", "{a}.float()", "{a}.sum()", "{a}.cumsum(0)", "{a} / 2"],
    "b": ["~{a}", "{a}.double()", "{a}.long()", "{a}.sum()", "{a}.any()", "{a}.all()", "{a} * 2", "{a} & True", "{a}.sin()", "-{a}"],
}
BINARY = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / ({b} * {b} + 1)", "{a} * {b}", "torch.maximum({a}, {b})",
          "{a}.where({b} > 0, {b})", "torch.atan2({a}, {b} * {b} + 1)", "torch.add({a}, {b}, alpha=2)", "{a}.sub({b}, alpha=4)",
          "torch.hypot({a}, {b} + 3)", "torch.addcmul({a}, {a}, {b}, value=0.5)", "{a}.lerp({b}, 0.3)", "{a} < {b}", "{a} == {b}",
          "{a} ** 2 * {b}", "torch.minimum({a}, {b})", "{a}.copysign({b}.sign() + 0.5)", "torch.complex({a}, {b})",
          "({a} * {a} + 1) ** {b}", "torch.stack([{a}, {a} * 2])", "torch.cat([{a}, {a} * 2, {b}.expand_as({a})])",
          "{a}.fmod({b} * {b} + 0.7)"]
REDUCE = ["{a}.sum()", "{a}.sum({d})", "{a}.sum({d}, keepdim=True)", "{a}.mean()", "{a}.mean({d})", "{a}.prod({d})", "{a}.amax({d})",
          "{a}.logsumexp({d})", "{a}.var({d})", "{a}.std()", "{a}.norm()", "{a}.max()", "{a}.min()", "{a}.argmax()", "{a}.prod()",
          "{a}.amin()", "{a}.norm(dim={d})", "{a}.nansum()", "{a}.any()"]
VIEW = ["{a}.view(-1)", "{a}.reshape(-1)", "{a}.t()", "{a}.transpose(0, -1)", "{a}.unsqueeze(0)", "{a}.unsqueeze(-1)", "{a}.squeeze()",
        "{a}.squeeze(0)", "{a}.select(0, {i})", "{a}.select(-1, -1)", "{a}.narrow(0, {i}, 1)", "{a}.expand(2, *{a}.shape)",
        "{a}.diagonal()", "{a}.unfold(0, 2, 1)", "{a}.detach()", "{a}[:]", "{a}[::2]", "{a}[..., 1:]", "{a}[{i}]", "{a}[{i}:]",
        "{a}[None]", "{a}[..., 0]", "{a}.flatten()", "{a}.movedim(0, -1)", "{a}.T", "{a}.mT", "{a}.swapaxes(0, 1)",
        "{a}.permute(tuple(reversed(range({a}.ndim))))", "{a}.view({a}.shape)", "{a}.view_as({a})", "{a}.expand_as({a})",
        "{a}.reshape({a}.shape)", "{a}.expand({a}.shape)", "{a}[...]", "{a}[:, None]", "{a}[1:][:1]", "{a}.view(3, -1)",
        "{a}.view(-1, 2)", "{a}.reshape(-1, 2)", "{a}.diagonal(1)", "{a}.unbind()[0]", "{a}.split(1)[-1]", "{a}.real", "{a}.positive()",
        "{a}.broadcast_to((2, *{a}.shape))", "{a}.view({a}.dtype)", "{a}.narrow(-1, 0, 1)",
        "{a}.contiguous().as_strided((({a}.numel() + 1) // 2,), (2,))"]
VIEWS = ["{n}, {m} = {a}.split(1)[:2]", "{n}, {m} = {a}.unbind(0)[:2]", "{n}, {m} = {a}.chunk(2)", "{n}, {m} = {a}.unbind(-1)[-2:]",
         "{n}, {m} = {a}.max({d})", "{n}, {m} = {a}.min({d})", "{n}, {m} = {a}.tensor_split(2)", "{n}, {m} = {a}.split([1, 1])",
         "{n}, {m} = {a}.aminmax()", "{n}, {m} = {a}[:2]"]
INDEX = ["{a}[[0, {i}, 0]]", "{a}[torch.tensor([{i}, 0])]", "{a}[..., [0, 0]]", "{a}[{a} > 0]", "{a}[:, [{i}, 0]]",
         "{a}[torch.tensor(0)]", "{a}[[0], [0]]", "{a}.index_select(0, torch.tensor([0, {i}]))",
         "{a}[{a}.sum(-1) > 0]", "{a}[[True, False]]", "{a}[None, [0, {i}]]",
         "{a}.take(torch.tensor([0, {i}]))", "{a}.gather(0, torch.zeros_like({a}, dtype=torch.int64))",
         "{a}.masked_select({a} > 0)", "{a}[0, ..., [0]]", "{a}[7]", "{a}[torch.tensor([[0, {i}]])]", "{a}[[0, {i}], :1]",
         "{a}.index_add(0, torch.tensor([0, 0]), torch.ones_like({a})[[0, 0]])",
         "{a}.scatter_add(0, torch.zeros_like({a}, dtype=torch.int64), {a} * 2)", "{a}.index_fill(0, torch.tensor([0]), 2.0)"]
WRITE = ["{a} += 1", "{a} *= 2", "{a} -= 0.5", "{a} /= 2", "{a}.add_(1)", "{a}.mul_(0.5)", "{a}.sigmoid_()", "{a}.tanh_()", "{a}.sin_()",
         "{a}.zero_()", "{a}.fill_(0.5)", "{a}.clamp_(-0.5, 0.5)", "{a}.masked_fill_({a} > 0, 0.25)", "{a}.neg_()", "{a}.exp_()",
         "{a}.relu_()", "{a}.square_()", "{a}.pow_(2)", "{a}[0] = 0.5", "{a}[..., 0] = 1", "{a}[{a} > 0] = 0.5", "{a}[0] *= 2",
         "{a}[1:] += 1", "{a}.cos_()", "{a}.floor_()", "{a}.sqrt_()", "{a}.data.mul_(2)", "{a}.detach().add_(1)",
         "{a}[{i}].zero_()", "{a}.data.fill_(0.5)", "{a}.tril_()", "{a}[:] = 2", "{a}.erf_()", "{a}.clamp_(min=0)", "{a}.round_()",
         "{a}.gt_(0)", "{a}.reciprocal_()", "{a}.diagonal().fill_(1)", "{a}[[0, {i}]] = 0.75",
         "{a}.index_fill_(0, torch.tensor([0]), 2.0)", "{a}.abs_()", "{a}.cumsum_(0)"]
WRITE_FROM = ["{a} += {b}", "{a} *= {b}", "{a} -= {b}", "{a}.add_({b})", "{a}.mul_({b})", "{a}.copy_({b})", "{a}.copy_({b})",
              "{a}.sub_({b})", "{a}[:1] = {b}", "{a}[0] = {b}", "{a}[...] = {b}", "{a}.masked_fill_({a} > 0, {b}.sum().real)",
              "{a}[{a} > 0] = {b}.sum().real", "{a}.addcmul_({a}.clone(), {b}, value=2)", "{a}.fill_({b}.sum())", "{a}[..., -1:] = {b}",
              "{a}.lerp_({b}, 0.5)", "{a}.div_({b} * {b} + 1)", "{a}[{a} > 0] *= 2", "{a}.abs_()", "{a}[0].copy_({b})",
              "{a}.t().add_({b})", "{a}.index_add_(0, torch.tensor([0]), {b}.expand_as({a})[:1].clone())", "{a}[[0, 1]] = {b}",
              "{a}.masked_scatter_({a} > 0, {b})", "{a}.index_copy_(0, torch.tensor([0]), {b}.expand_as({a})[:1].clone())",
              "{a}.scatter_(0, torch.zeros_like({a}[:1], dtype=torch.int64), {b}.expand_as({a})[:1])", "{a}.data.copy_({b})",
              "{a}.data = {b}.detach().expand_as({a}).clone().to({a}.dtype)", "{a}.atan2_({b} * {b} + 1)", "{a}[1:] = {b}[0]",
              "{a}.detach().add_({b})", "{a}.copy_(unpack_dual({b}).primal)"]
FLAGS = ["{a}.detach_()", "{a}.requires_grad_()", "{a}.requires_grad_(False)", "{a}.requires_grad = True", "{a}.retain_grad()",
         "{a}.retain_grad()", "{a}.retain_grad()", "{a}.grad = None", "{a}.grad = torch.ones_like({a}).detach()", "{a}.grad.zero_()",
         "{n} = {a}.grad", "{a}.grad += 1", "{n} = copy.deepcopy({a})", "{n} = {a}.detach().clone().requires_grad_()", "{n} = {a}.data",
         "{n} = {a}.detach().requires_grad_()", "{n} = {a}", "del {a}", "{n} = torch.empty_like({a}).copy_({a})", "{n} = {a}.tolist()",
         "{n} = {a}.new_zeros({a}.shape)", "{n} = [x for x in {a}][0]", "{n} = {a}.grad.detach()", "{n} = {a}._base",
         "{n} = torch.zeros({a}.shape, dtype=torch.float64).copy_({a})", "{a} = {a} * 1", "{a} = {a}.clone()", "{a} = {a}.detach()"]
HOOKS = ["{h} = {a}.register_hook(see('{h}'))", "{h} = {a}.register_hook(scale('{h}', 2))", "{h} = {a}.register_hook(edit('{h}', 3))",
         "{h} = {a}.register_post_accumulate_grad_hook(see('{h}'))", "{h} = {a}.register_post_accumulate_grad_hook(edit_grad('{h}'))",
         "{h} = {a}.grad_fn.register_hook(see('{h}'))", "{h} = {a}.grad_fn.register_prehook(see('{h}'))",
         "{h} = {a}.grad_fn.register_prehook(scale_outputs('{h}'))", "{h} = {a}.grad_fn.register_hook(scale_inputs('{h}'))",
         "{h} = {a}.grad_fn.next_functions[0][0].register_hook(see('{h}'))", "{h} = {a}.register_hook(lambda g: g.sum())",
         "{h} = {a}.register_hook(see('{h}'))"]
FUNCTIONS = ["{n} = Square.apply({a})", "{n} = Tanh.apply({a})", "{n} = Dirty.apply({a})", "{n} = Same.apply({a})",
             "{n} = Flat.apply({a})", "{n}, {m}, {o} = Two.apply({a}, {b})", "{n}, {m} = Half.apply({a}, {b})", "Dirty.apply({a})",
             "{n} = Dirty.apply({a}.view(-1))"]
CHECKPOINTS = ["{n} = checkpoint(lambda x: {f}, {a}, use_reentrant={r})", "{n} = checkpoint(lambda x: {f}, {a}, use_reentrant=False)",
               "{n} = checkpoint(lambda x: {f}, {a}, use_reentrant=True)",
               "{n} = checkpoint(lambda x: checkpoint(lambda x: {f}, x.sin(), use_reentrant={s}) * x, {a}, use_reentrant={r})",
               "{n} = checkpoint(lambda x: checkpoint(lambda x: {f}, x, use_reentrant={s}), {a} * 2, use_reentrant={r})",
               "{n}, {m} = checkpoint(lambda x, y: (x.sin() * y, y.exp()), {a}, {b}, use_reentrant={r})",
               "{n}, {m} = checkpoint(lambda x, y: (({f}) * y, y.detach()), {a}, {b}, use_reentrant={r})",
               "{n} = checkpoint(lambda x, y, k: ({f}) * k + y * y, {a}, {b}, 3, use_reentrant={r}, preserve_rng_state=False)",
               "{n} = checkpoint(lambda x, k: ({f}) * k, {a}, k=2.0, use_reentrant=False)",
               "{n} = checkpoint(lambda x: {f}, {a}, use_reentrant=False, early_stop=False)",
               "{n} = checkpoint(lambda x: {f}, {a}, use_reentrant=False, determinism_check='none')",
               "{n} = checkpoint_sequential([lambda x: {f}, torch.tanh, Square.apply], 2, {a}, use_reentrant={r})",
               "{n} = checkpoint(lambda x: {f}, {a}, use_reentrant=False, context_fn=lambda: (torch.enable_grad(), saving('copy')))"]
CHECKPOINTED = ["x.sin() * x", "x.sin().exp()", "x * x", "x.sin() * {b}", "({b} * x).tanh()", "x.sin().mul_(2).cos()",
                "x.clone().mul_(2) * x", "x.detach() * x", "Square.apply(x)", "Tanh.apply(x) * x", "Half.apply(x, x.sin())[0]",
                "Two.apply(x, {b})[0]", "watch('{h}', x.sin()).sin() * x", "watch('{h}', x) * x", "noted('{h}', x).sin()", "x",
                "x.view(-1)", "x[:1] * x[:1]", "x.mul_(2).sin()", "{b}.mul_(2) * x", "x.detach_() * x",
                "grad(weigh(x * x), x, create_graph=True)[0] * x", "x.relu().softmax(-1)", "torch.where(x > 0, x.sin(), x * x)",
                "x.double() * x", "x.unsqueeze(0).exp()", "2.0", "{b} * {b}"]
FORWARD = ["{n} = make_dual({a}, direction({a}, {i}))", "{n} = make_dual({a}, direction({a}, {i}))",
           "{n} = make_dual({a}, direction({a}, 2))", "{a} = make_dual({a}, direction({a}, {i}))",
           "{n} = make_dual({a}.detach().clone(), direction({a}, {i}))", "{n} = make_dual({a}.clone(), direction({a}, {i}), level=0)",
           "{n} = make_dual({a}, {b}.clone())", "{n} = make_dual({a}, {b}.sum().expand_as({a}))",
           "{m} = direction({a}, {i}).requires_grad_(); {n} = make_dual({a}, {m} * 1)", "{n} = make_dual({a}, tangent({b}) + {a})",
           "{n} = unpack_dual({a}).primal", "{n} = unpack_dual({a}).primal", "{n} = tangent({a})", "{n} = tangent({a})",
           "{n} = tangent({a})", "make_dual({a}, direction({a}, 1)[None])", "make_dual({a}, direction({a}, 1).float())",
           "make_dual({a}.detach() > 0, direction({a}, 1))", "exit_dual_level(level=1)", "enter_dual_level()"]
BLOCKS = ["torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)",
          "torch.inference_mode()", "torch.inference_mode(False)", "saving('copy')", "saving('copy')", "saving('same')", "save_on_cpu()",
          "save_on_cpu(pin_memory=True)", "disable_saved_tensors_hooks('none')"]
BACKWARD = ["weigh({a}).backward()", "weigh({a}).backward()", "weigh({a}, {b}).backward()", "{a}.sum().backward()", "{a}.backward()",
            "weigh({a}).backward(retain_graph=True)", "{a}.backward(torch.ones_like({a}))", "weigh({a}).backward(inputs=[{b}])",
            "weigh({a}).backward(inputs=[{b}, {a}], retain_graph=True)", "torch.autograd.backward([weigh({a}), weigh({b})])",
            "weigh({a}).backward(create_graph=True)", "torch.autograd.backward([{a}, {b}], [torch.ones_like({a}), torch.ones_like({b})])",
            "{a}.backward(torch.ones_like({a}), retain_graph=True)",
            "torch.autograd.backward([{a}.sum(), weigh({b})], retain_graph=True)",
            "{a}.mean().backward(torch.tensor(2.0, dtype={a}.dtype))"]
GRAD = ["{g} = grad(weigh({a}), {b}, {options})[0]", "{g} = grad(weigh({a}), {b}, {options})[0]",
        "{g}, {k} = grad(weigh({a}), [{b}, {c}], {options})", "{g}, {k} = grad([weigh({a}), weigh({b})], [{b}, {c}], {options})",
        "{g} = grad({a}, {b}, torch.ones_like({a}), {options})[0]"]
OPTIONS = ["", "allow_unused=True", "allow_unused=True", "materialize_grads=True", "create_graph=True, allow_unused=True",
           "create_graph=True, allow_unused=True", "create_graph=True", "retain_graph=True", "retain_graph=True, allow_unused=True",
           "create_graph=True, materialize_grads=True", "create_graph=True, retain_graph=False, allow_unused=True"]


# ----------------------------------------------------------------------------------------------------------- drawing

class Draw:
    """The generator of one program, reproducible from its seed."""

    def __init__(self, seed, names):
        self.rng = random.Random(seed)
        self.names = names                   # what the program can name on PyTorch's side
        self.torch = names["torch"]
        self.count = 0
        self.hooked = False                  # whether something was drawn that sees each backward that passes
        self.recomputes = False              # whether a checkpoint was drawn in a dual level
        self.captured = []                   # tensors that the functions of reentrant checkpoints name
        self.blocks = ()
        self.blocks_made = 0
        self.large = LARGE
        self.tamed = []                      # names of tensors whose values say something
        self.duals = []                      # names of those with a tangent
        self.always_look = self.rng.random() < 0.7
        self.features = {name: self.rng.choice([0, 1, 1, 2]) for name in ("write", "hook", "block", "double", "complex", "other",
                                                                             "float32", "checkpoint")}
        self.features["forward"] = self.rng.choice([0, 0, 1, 2])
        self.offloads = self.rng.random() < 0.5              # whether save_on_cpu is drawn; else .data is: rule 3

    def new(self, letter="t"):
        """A name not used as yet."""
        self.count += 1
        return f"{letter}{self.count}"

    def tensors(self):
        """The names of the program's tensors, oldest first."""
        return [n for n, t in self.names.items() if isinstance(t, self.torch.Tensor)]

    def tame(self, t):
        """Whether a tensor's values, and its tangent's, say something."""
        def small(t):
            return t.numel() == 0 or bool((t.detach().abs() < self.large).all())
        if t.numel() > 40 or t.dtype == self.torch.bool:
            return t.numel() <= 40
        tangent = self.tangent(t)
        return small(t) and (tangent is None or small(tangent))

    def tangent(self, t):
        """A tensor's tangent, or None."""
        try:
            return self.names["unpack_dual"](t).tangent if self.in_level() else None
        except RuntimeError:                 # a view without a history
            return None

    def does(self, name, fits):
        """Whether something is true of a tensor."""
        try:
            return bool(fits(self.names[name]))
        except (RuntimeError, AttributeError):               # a view without a history: even is_leaf raises; no .grad
            return False

    def chosen(self, fits):
        """The names of the tensors that something is true of."""
        return [n for n in self.tamed if self.does(n, fits)]

    def pick(self, fits=lambda t: True):
        """A tensor's name, of the newer ones more often."""
        found = self.chosen(fits)
        if not found:
            return "missing"
        if self.rng.random() < 0.6:
            found = [n for n in found if n in self.duals] or found
        return self.rng.choice(found[-5:] if self.rng.random() < 0.6 else found)

    def floating(self, t):
        return t.is_floating_point() or t.is_complex()

    def partner(self, a):
        """A tensor that a can be combined with."""
        shape, rng = self.names[a].shape if a in self.names else (), self.rng

        def fits(t):
            return self.floating(t) and all(n == m or 1 in (n, m) for n, m in zip(reversed(t.shape), reversed(shape), strict=False))
        return self.pick(fits if rng.random() < 0.9 else self.floating)

    def kind(self, name):
        """The key of UNARY for a tensor."""
        dtype = self.names[name].dtype if name in self.names else self.torch.float64
        return "c" if dtype.is_complex else "f" if dtype.is_floating_point else "b" if dtype == self.torch.bool else "i"

    def inferring(self):
        """Whether the next step is in inference mode."""
        return any("inference_mode()" in text for _, text in self.blocks)

    def in_level(self):
        """Whether the next step is in a dual level."""
        return any(text == "dual_level()" for _, text in self.blocks)

    def fill(self, template, a, b=""):
        """A template with its names filled in."""
        t = self.names.get(a)
        ndim = t.ndim if t is not None else 0
        if t is not None and (not t.numel() and "[0" in template or not ndim and "> 0]" in template):
            return self.leaf().partition(" = ")[2]               # PyTorch has errors of its own for indices of what is empty or 0-d
        inferred = any(self.does(n, lambda t: t.is_inference()) or self.does(n, lambda t: t.is_leaf and t.grad.is_inference())
                       for n in (a, b) if n in self.names)
        aliases = inferred and any(word in template for word in ("detach", ".data", "dtype"))
        if aliases or self.inferring() and ".data =" in template or self.offloads and ".data" in template:
            return self.leaf().partition(" = ")[2]               # rules 12, 3
        return template.format(a=a, b=b, c=self.pick(self.floating), n=self.new(), m=self.new(), o=self.new(), h=self.new("h"),
                               g=self.new("g"), k=self.new("g"), d=self.rng.randrange(max(ndim, 1)),
                               i=self.rng.randrange(2), r=self.rng.random() < 0.3, s=self.rng.random() < 0.2,
                               options=self.rng.choice(OPTIONS))

    # ------------------------------------------------------------------------------------------------------- kinds of steps

    def leaf(self):
        rng, shape = self.rng, self.rng.choice(SHAPES)
        r = rng.random()
        dtype = ("float32" if r < 0.08 * self.features["float32"] else "complex128" if r < 0.15 * self.features["complex"] else
                 rng.choice(["int64", "bool"]) if r > 1 - 0.06 * self.features["other"] else "float64")

        def values(shape):
            if shape:
                return [values(shape[1:]) for _ in range(shape[0])]
            if dtype == "bool":
                return rng.random() < 0.5
            if dtype == "int64":
                return rng.randrange(-3, 5)
            x = rng.randrange(-160, 161) / 64 or 0.5
            return complex(x, rng.randrange(-160, 161) / 64) if dtype == "complex128" else x
        flag = ", requires_grad=True" if dtype not in ("int64", "bool") and rng.random() < 0.75 else ""
        return f"{self.new()} = torch.tensor({values(shape)}, dtype=torch.{dtype}{flag})"

    def unary(self):
        a = self.pick()
        return f"{self.new()} = " + self.fill(self.rng.choice(UNARY[self.kind(a)]), a)

    def binary(self):
        a = self.pick(self.floating)
        b = self.partner(a)
        barred = ("** {b}",) if self.in_level() and self.kind(a) != self.kind(b) else ()             # rule 26
        barred += ("==",) if "c" in (self.kind(a), self.kind(b)) else ()     # rule 18
        barred += ("copysign",) if a in self.duals and self.does(a, lambda t: (t == 0).any()) else ()                 # rule 23
        return f"{self.new()} = " + self.fill(self.rng.choice([f for f in BINARY if not any(x in f for x in barred)]), a, b)

    def reduce(self):
        a = self.pick(lambda t: t.numel() or not t.is_complex())             # rule 14
        barred = ()
        if self.in_level() and a in self.names:                                # rule 23
            barred = tuple([name for name, fits in (("logsumexp", lambda t: not t.numel()), ("norm", lambda t: (t == 0).any()),
                                                    ("std", lambda t: t.numel() and (t == t.flatten()[0]).all())) if self.does(a, fits)])
        return f"{self.new()} = " + self.fill(self.rng.choice([r for r in REDUCE if not any(x in r for x in barred)]), a)

    def view(self):
        return f"{self.new()} = " + self.fill(self.rng.choice(VIEW), self.pick())

    def views(self):
        return self.fill(self.rng.choice(VIEWS), self.pick(lambda t: t.ndim > 0))

    def index(self):
        return f"{self.new()} = " + self.fill(self.rng.choice(INDEX), self.pick(lambda t: t.ndim > 0 and t.numel() > 0))

    def matmul(self):
        a = self.pick(lambda t: self.floating(t) and t.ndim > 0 and t.numel() > 0)
        size = self.names[a].shape[-1:] if a in self.names else ()
        b = self.pick(lambda t: self.floating(t) and 0 < t.ndim and t.numel() > 0 and t.shape[-2:][:1] == size)
        flat = all(self.names[n].ndim < 3 for n in (a, b) if n in self.names)
        forms = ["{a} @ {b}", "{a}.matmul({b})", "{a}.t() @ {a}", "{a} @ {a}.mT"]
        forms = forms if flat else ["({a} @ {b} / 64).sin().cos()"]        # rule 11
        return f"{self.new()} = " + self.fill(self.rng.choice(forms), a, b)

    def folded(self, t):
        """Whether elements share memory other than by expand: rule 6."""
        places = {sum(i * s for i, s in zip(at, t.stride(), strict=True))
                  for at in itertools.product(*(range(n if s else 1) for n, s in zip(t.shape, t.stride(), strict=True)))}
        return len(places) < math.prod(n for n, s in zip(t.shape, t.stride(), strict=True) if s)

    def shared(self, a, t):
        """Whether a tensor lies in the memory that another does."""
        return t.untyped_storage().data_ptr() == self.names[a].untyped_storage().data_ptr()

    def write(self):
        a = self.pick(lambda t: (not t.is_leaf or not t.requires_grad or self.rng.random() < 0.15) and not self.folded(t))
        if a not in self.names or any(text in ("saving('same')", "save_on_cpu()") for _, text in self.blocks):         # rule 5
            return self.leaf()
        if self.recomputes and self.in_level() or any(self.shared(a, t) for t in self.captured):                # rules 22, 16
            return self.leaf()
        if not self.floating(self.names[a]):
            return self.fill(self.rng.choice([w for w in WRITE if all(x not in w for x in ("abs_", "cumsum_", ".data"))]), a)
        barred = () if a in self.chosen(lambda t: t.is_leaf and not t.is_complex()) else (".data.", ".data =")         # rules 3, 13
        barred += ("sqrt_",) if self.names[a].is_complex() else ("reciprocal_",) if self.does(a, lambda t: (t == 0).any()) else () # rule 18
        write, write_from = ([w for w in forms if not any(x in w for x in barred)] for forms in (WRITE, WRITE_FROM))
        if self.rng.random() < 0.5:
            return self.fill(self.rng.choice(write), a)
        b = self.partner(a)
        if b in self.names and self.shared(a, self.names[b]):
            return self.fill(self.rng.choice(WRITE_FROM[:8] if a == b and not self.in_level() else write), a, b)         # rules 7, 21
        if b in self.duals and self.names[b].dtype != self.names[a].dtype:                   # rule 24
            write_from = write
        if b in self.duals and self.names[b].shape != self.names[a].shape:
            write_from = [w for w in write_from if "{a}.copy_({b})" not in w]                # rule 24
        return self.fill(self.rng.choice(write_from), a, b)

    def flag(self):
        a = self.pick()
        tensors = [t for t in self.names.values() if hasattr(t, "_base")]
        unnamed = a in self.names and any(t.is_inference() for t in tensors) and not any(t is self.names[a]._base for t in tensors)
        barred = ("._base",) if unnamed else ()                                # rule 17
        barred += ("requires_grad", "detach_") if self.recomputes else ()    # rule 22
        barred += ("float64).copy_",) if a in self.duals and self.names[a].dtype != self.torch.float64 else ()           # rule 24
        return self.fill(self.rng.choice([f for f in FLAGS if not any(x in f for x in barred)]), a)

    def hook(self):
        self.hooked = True
        if self.rng.random() < 0.15:
            handles = [n for n in self.names if n[:1] == "h" and n[1:].isdigit()]
            if handles:
                return f"{self.rng.choice(handles)}.remove()"
        return self.fill(self.rng.choice(HOOKS), self.pick(lambda t: t.requires_grad and (
            t._base is None or t._base.dtype == t.dtype)))                     # rule 11

    def function(self):
        a = self.pick(lambda t: self.floating(t) and not self.folded(t))
        functions = [f for f in FUNCTIONS if "Dirty" not in f] if self.recomputes and self.in_level() else FUNCTIONS         # rule 22
        return self.fill(self.rng.choice(functions), a, self.partner(a))

    def checkpoint(self):
        self.hooked = True
        self.recomputes |= self.in_level()
        a = self.pick(lambda t: self.floating(t) and not self.folded(t))       # rule 6
        b = self.partner(a)
        barred = "b}.mul_" if b in self.names and self.folded(self.names[b]) else "none"
        inner = self.fill(self.rng.choice([f for f in CHECKPOINTED if barred not in f]), a, b)
        text = self.fill(self.rng.choice(CHECKPOINTS).replace("{f}", inner), a, b)
        if b in self.names and re.search(rf"\b{b}\b", inner) and "use_reentrant=True" in text:
            self.captured.append(self.names[b])
        return text

    def forward(self):
        if self.duals and not self.hooked and self.rng.random() < 0.25:
            return self.fill("{g} = grad(weigh(tangent({a}, True)), {b}, retain_graph=True, materialize_grads=True)[0].detach()",
                             self.pick(lambda t: t.requires_grad), self.pick(lambda t: t.requires_grad and t.is_leaf))         # rule 20
        a = self.pick(lambda t: self.floating(t) and not t.is_inference() and not self.folded(t))          # rules 12, 6
        x = self.names.get(a)
        return self.fill(self.rng.choice(FORWARD), a, self.pick(lambda t: t is not x and x is not None and t.dtype == x.dtype
                                                                and t.shape == x.shape))

    def differentiable(self, t):
        return t.requires_grad and (t.grad_fn is not None or self.rng.random() < 0.1)

    def backward(self):
        a = self.pick(self.differentiable)
        return self.fill(self.rng.choice(BACKWARD), a, self.pick(lambda t: t.requires_grad))

    def grad(self):
        a = self.pick(self.differentiable)
        return self.fill(self.rng.choice(GRAD), a, self.pick(lambda t: t.requires_grad))

    # --------------------------------------------------------------------------------------------------------------- a step

    def enter(self, block):
        if not self.offloads and "save_on_cpu" in block:
            block = "saving('copy')"
        self.blocks_made += 1
        self.blocks += ((self.blocks_made, block),)

    def step(self):
        """(text, blocks, whether to look) of the next step."""
        rng, f = self.rng, self.features
        single = {self.torch.float32, self.torch.complex64} & {self.names[n].dtype for n in self.tensors()}
        self.large = LARGE32 if single else LARGE
        self.tamed = [n for n in self.tensors() if self.tame(self.names[n])]
        self.duals = self.chosen(lambda t: self.tangent(t) is not None)
        levels = sum(text == "dual_level()" for _, text in self.blocks)
        if self.blocks and rng.random() < (0.3 if self.blocks[-1][1] != "dual_level()" else 0.05 if levels == 1 else 1):
            self.blocks = self.blocks[:-1]
        elif f["block"] and len(self.blocks) < 2 and rng.random() < 0.05 * f["block"]:
            self.enter(rng.choice(BLOCKS))
        elif rng.random() < (0.005 if levels else 0.15) * f["forward"]:
            self.enter("dual_level()")
        if len(self.tensors()) < 2:
            text = self.leaf()
        else:
            kinds = {self.leaf: 2, self.unary: 5, self.binary: 4, self.reduce: 2, self.view: 6, self.views: 1.5, self.index: 2,
                     self.matmul: 1, self.write: 4 * f["write"], self.flag: 2, self.hook: 1.5 * f["hook"], self.function: 1,
                     self.backward: 2.5, self.grad: 1 * f["double"], self.checkpoint: 1.5 * f["checkpoint"],
                     self.forward: self.in_level() and (4 if self.duals else 40)}
            text = rng.choices(list(kinds), list(kinds.values()))[0]()
        self.hooked |= "retain_grad" in text or "inputs=" in text
        return text, self.blocks, self.always_look or rng.random() < 0.25

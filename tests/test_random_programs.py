"""Random programs agree with PyTorch at every step (see random_programs.py), as do those in which they once did not."""
import pytest

from tests.random_programs import Step, check_all, replay

FOUND = {
    "a_view_as_another_dtype_is_no_view": """
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        y = x.view(torch.float64)
        z = torch.tensor([1, 2]).view(torch.float64)""",
    "grad_of_a_view_without_history": """
        x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
        y = x * 1
        a, b = y.unbind()
        y *= 2""",
    "grad_fn_of_a_view_without_history_in_no_grad": """
        x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
        a, b = x.unbind()
        with torch.no_grad(): a.mul_(2)
        torch.set_grad_enabled(False)
        y = a.grad_fn""",
    "hooks_of_a_single_root_that_leads_to_no_input": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = torch.ones(2, dtype=torch.float64, requires_grad=True)
        z = (x * 2).sum()
        h = z.register_hook(see('z'))
        z.retain_grad()
        w = x.register_hook(see('x'))
        g = torch.autograd.grad(z, y, allow_unused=True)
        k = torch.autograd.grad(x, y, torch.ones_like(x), allow_unused=True)""",
    "hooks_on_a_view_that_was_written_to": """
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        y = x * 1
        v = y[:2]
        y.mul_(3)
        h = v.register_hook(see('v'))
        v.retain_grad()
        weigh(v).backward()""",
    "hooks_on_a_view_without_history": """
        x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
        y = x * 1
        a, b = y.unbind()
        y *= 2
        a.register_hook(see('a'))
        a.retain_grad()
        weigh(y).backward(inputs=[a])""",
    "a_view_made_in_no_grad_is_no_root_and_no_input": """
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): v = x[:1]
        v.backward()
        g = torch.autograd.grad((v * 2).sum(), v)
        k = torch.autograd.grad((v * 2).sum(), v, allow_unused=True)""",
    "a_view_of_a_detached_base_that_was_written_to": """
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        y = x * 1
        v = y[:2]
        u = y[1:]
        y.detach_()
        a = v.grad_fn.name()
        y.mul_(3)
        b = v.grad_fn.next_functions
        weigh(v).backward()""",
    "a_view_returned_by_a_function_in_no_grad": """
        x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): v = Flat.apply(x)
        y = v.requires_grad
        z = (v * 2).requires_grad""",
    "an_unrecorded_function_that_returns_its_input": """
        x = torch.ones(2, dtype=torch.float64)
        v = Same.apply(x)
        x.mul_(torch.ones(2, dtype=torch.float64, requires_grad=True))
        y = v.grad_fn""",
    "grad_of_what_a_function_wrote_to": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = x * 1
        y.grad = torch.ones(2, dtype=torch.float64)
        Dirty.apply(y)""",
    "assignments_of_tensors": """
        x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        y, z = x * 1, (x * 1).float()
        s = x.sum()
        y[...] = x[0]
        s[...] = x.prod()
        y[:1] = x.sum().reshape(1)
        z[z > 0] = x.sum()
        z[z > 0] = x.sum() * 1j""",
    "node_hooks_see_what_is_wanted": """
        x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        w = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        y = x * w
        h = y.grad_fn.register_hook(see('mul'))
        v, i = y.max(1)
        k = v.grad_fn.register_hook(see('max'))
        g, = torch.autograd.grad(weigh(v), w)""",
    "a_view_of_what_became_a_leaf_that_requires_grad": """
        x = torch.ones(2, dtype=torch.float64)
        v = x[:1]
        x.requires_grad_()
        v.mul_(2)""",
    "requires_grad_of_a_view_without_history": """
        x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
        y = x * 1
        a, b = y.unbind()
        y.mul_(2)
        a.requires_grad_()""",
    "what_is_refused": """
        a = torch.tensor([1 + 2j]).abs_()
        b = torch.tensor([True]).sub(torch.tensor([True]), alpha=2)
        c = torch.tensor(1.0).mT""",
}


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_once_differed(name, oracle):
    steps = [Step(line.strip()) for line in FOUND[name].strip().splitlines()]
    assert replay(oracle, steps) is None


@pytest.mark.parametrize("part", range(2))
def test_random_programs(part, oracle):
    found = check_all(range(part * 1000, part * 1000 + 100))
    assert not found, found

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
        a.requires_grad_()
        with torch.no_grad(): v = x[:1]
        x.detach().mul_(2)
        v.requires_grad_(False)""",
    "a_base_that_begins_or_ceases_to_require_grad": """
        x = torch.ones(3, dtype=torch.float64)
        v = x[:2]
        x.requires_grad_()
        a = v * 2
        u = x[1:]
        with torch.no_grad(): w = x[:1]
        b = w * 2
        x.requires_grad_(False)
        c = v * 2
        d = w * 2
        e = w.requires_grad""",
    "a_view_that_requires_grad_by_itself": """
        x = torch.ones(3, dtype=torch.float64)
        v = x[:2].requires_grad_()
        x.requires_grad_()
        weigh(v * v).backward()
        x.requires_grad_(False)
        a = v.requires_grad
        with torch.no_grad(): u = v[:1]
        v.requires_grad_(False)
        b = v.requires_grad""",
    "a_node_sees_that_what_it_saved_was_written_to_whatever_is_wanted": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = x ** torch.tensor([2., 3.], dtype=torch.float64)
        y.neg_()
        y.sum().backward()
        w = torch.tensor([0.5, 1.5], dtype=torch.float64)
        z = x.lerp(torch.zeros(2, dtype=torch.float64), w)
        w.mul_(2)
        z.sum().backward()""",
    "a_node_that_was_freed_and_that_no_gradient_reaches": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = x * x
        weigh(y).backward()
        a, b = Half.apply(x, y)
        b.sum().backward()
        z = x * torch.ones(2, dtype=torch.float64)
        weigh(z).backward()
        a, b = Half.apply(x, z)
        b.sum().backward()""",
    "nodes_save_what_their_gradient_does_not_need": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = x * 1
        a, b, c, d = y.take(torch.tensor([0])), y.gather(0, torch.tensor([0])), y.masked_select(y > 0), torch.complex(y, y)
        y.mul_(2)
        weigh(a).backward()
        weigh(b).backward()
        weigh(c).backward()
        weigh(d).backward()""",
    "functions_are_recorded_in_inference_mode": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        with torch.inference_mode(), torch.enable_grad(): a, b, c = Half.apply(x, x)[0], Same.apply(x), (x * 2).requires_grad
        y = a * 2
        weigh(y).backward()
        with torch.inference_mode(), torch.enable_grad(): Two.apply(x, torch.ones(2))""",
    "hooks_see_what_a_function_gives_an_input_without_a_gradient": """
        x = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
        a, b, c = Two.apply(x, torch.ones(2, 3, dtype=torch.float64))
        h = a.grad_fn.register_hook(see('two'))
        weigh(a, c).backward()""",
    "names_of_nodes_of_in_place_forms": """
        x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True) * 0.5
        y, z, w, u = x * 1, x * 1, x.sum(), x.sum(0, keepdim=True)
        y.t_()
        y.unsqueeze_(0)
        y.squeeze_(0)
        with torch.no_grad(): y.transpose_(0, 1)
        z.lt_(x)
        w.greater_(0.5)
        u.squeeze_()
        a = torch.nn.functional.leaky_relu_(x * 1)
        b = torch.nn.functional.elu(x * 1, inplace=True)
        c = torch.fill(x * 1, 2.0)
        d = (x * 1).fill_(2.0)""",
    "autograd_does_not_see_logical_operations": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = x * 1
        y.logical_not_()
        x.logical_and_(y)""",
    "a_solution_of_which_one_operand_requires_grad": """
        x = torch.tensor([[2., 1.], [0., 3.]], dtype=torch.float64, requires_grad=True)
        y = torch.linalg.solve(x, torch.ones(2, 1, dtype=torch.float64))
        weigh(y).backward()""",
    "a_mean_beside_a_variance_that_has_no_gradient": """
        x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        a, b = torch.var_mean(x, correction=1)
        b.backward()
        c, d = torch.std_mean(x)
        d.backward()""",
    "copies_and_numbers": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = x * 2
        a, b = copy.copy(y), copy.copy(x)
        y.copy_(3)
        p = torch.nn.Parameter(y.detach())
        with torch.no_grad(): p.mul_(2)
        c, d = torch.broadcast_tensors(x, x)
        e = 2 % x
        f = x // 1""",
    "batched_gradients_of_what_is_not_used": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = torch.ones(3, dtype=torch.float64, requires_grad=True)
        g, = torch.autograd.grad(x * 2, y, torch.ones(4, 2, dtype=torch.float64), is_grads_batched=True, materialize_grads=True)""",
    "a_node_with_hooks_waits_its_turn": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        old = x * 2
        y = x * 3
        h = y.register_hook(see('y'))
        k = old.grad_fn.register_hook(see('old'))
        z = y * old.sum()
        weigh(z).backward()""",
    "a_count_has_no_gradient": """
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        x.norm(0).backward()
        g = torch.autograd.grad(x.norm(0), x, allow_unused=True)[0]""",
    "hooks_of_nodes_that_lead_nowhere": """
        x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): v = x.t()
        s = v.std()
        h = s.grad_fn.register_hook(see('std'))
        g = grad(s * x.sum(), x)[0]
        g = grad(s * 2, v)""",
    "what_is_written_over_has_a_constant_gradient": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y, z, w, v = x * 1, x * 1, x * 1, x * 1
        y.zero_()
        z.fill_(2)
        w.copy_(x)
        v.fill_(x.sum())
        weigh(y * y).backward(create_graph=True)
        g, = torch.autograd.grad(weigh(z * z), x, create_graph=True)
        k, = torch.autograd.grad(weigh(w * w), x, create_graph=True)
        m, = torch.autograd.grad(weigh(v * v), x, create_graph=True)""",
    "node_hooks_see_none_for_what_leads_nowhere": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        w = torch.ones(2, dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): v = x[:1]
        y, z = v.sin(), torch.stack([v, x[:1]])
        a, b, c = Two.apply(x, w)
        h, k, m = y.grad_fn.register_hook(see('sin')), z.grad_fn.register_hook(see('stack')), a.grad_fn.register_hook(see('two'))
        y.backward()
        weigh(z).backward()
        g, = grad(weigh(a), x)""",
    "a_hook_that_edits_grad_changes_no_other_hooks_gradient": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y = x[:]
        h = x.register_post_accumulate_grad_hook(edit_grad('x'))
        k = y.grad_fn.next_functions[0][0].register_hook(see('leaf'))
        weigh(y).backward(inputs=[x, y])""",
    "a_leaf_that_is_detached_after_a_view_of_it_was_made": """
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): v = x[:1]
        x.detach_()
        y = v * 2""",
    "a_functions_posthook_sees_gradients_that_nobody_wants": """
        x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        y = Flat.apply(x)
        h = y.grad_fn.register_hook(see('h'))
        z = x.clone().abs()
        u, n, v = Two.apply(x, x * 2)
        k = u.grad_fn.register_hook(see('k'))
        w = x.reshape(-1)
        c = torch.cat([x, x])
        l = c.grad_fn.register_hook(see('l'))
        weigh(y).backward(inputs=[z, y], retain_graph=True)
        weigh(u).backward(inputs=[z, u], retain_graph=True)
        weigh(c).backward(inputs=[z, c], retain_graph=True)
        weigh(y).backward(inputs=[y], retain_graph=True)""",
    "a_function_saves_a_part_that_it_has_written_to": """
        x = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
        a, b = x.split(1)[:2]
        with saving('copy'): y = checkpoint(lambda x: a.mul_(2) * x, a, use_reentrant=True)
        with torch.no_grad(): z = x.split(1)[0].mul_(2)""",
    "a_function_saves_a_view_made_in_no_grad_that_it_has_written_to": """
        x = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): a = x[:1]
        with saving('same'): y = checkpoint(lambda x: x.mul_(2).sin(), a, use_reentrant=True)""",
    "formulas_that_nobody_wants_are_not_run": """
        x = torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): y = x[None]
        def f(x): return torch.where(x > 0, x.sin(), x * x)
        with saving('copy'): z = checkpoint(f, y, use_reentrant=False, determinism_check='none')
        weigh(z).backward(inputs=[y, z], retain_graph=True)""",
    "the_reciprocal_of_a_complex_zero": """
        x = torch.zeros(3, dtype=torch.complex128)
        y, z = x.reciprocal(), x ** -1
        w, v = x.rsqrt(), (x + 1).clone().sub_(1).reciprocal_()""",
    "a_packed_view_that_leads_nowhere_is_no_result": """
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        with torch.no_grad(): y = x[:2]
        with saving('copy'): z = Square.apply(y)
        weigh(z).backward(create_graph=True)""",
    "the_tangent_of_a_view_taken_in_inference_mode_has_a_history": """
        x = torch.tensor([1.0, -1.5, 2.0], dtype=torch.float64, requires_grad=True)
        enter_dual_level()
        y = make_dual(x * 1, x.sum().expand_as(x))
        with torch.inference_mode(): z = y[1:]
        g = grad(weigh(tangent(z, True)), x, retain_graph=True, materialize_grads=True)[0].detach()
        exit_dual_level()""",
    "what_was_not_saved_is_not_looked_at": """
        x = torch.tensor(-1.5, dtype=torch.float64)
        y = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
        z = torch.addcmul(x, x, y, value=0.5)
        z.sum().backward()
        weigh(z).backward(inputs=[z], retain_graph=True)""",
    "what_nobody_wants_is_looked_at_all_the_same": """
        x = torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)
        y = torch.tensor([1.5, 3.0], dtype=torch.float64, requires_grad=True)
        z = x * y
        with torch.no_grad(): x.add_(1)
        g = grad(weigh(z), x)[0]""",
    "as_strided_of_a_view_whose_data_lies_elsewhere": """
        x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
        y = x[1:]
        y.data = torch.arange(6, dtype=torch.float64)[::2]
        z = y[:1].as_strided((2,), (2,))
        w = x[1:].as_strided((2,), (2,), 0)""",
    "what_a_forward_computes_has_no_gradient_inside": """
        x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True) * 1
        h = x.register_hook(see('h'))
        y = checkpoint(lambda x: grad(weigh(x * x), x, create_graph=True)[0] * x, x, use_reentrant=True)""",
    "a_running_product_along_one_element_or_of_none": """
        x = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
        g, = grad(x.cumprod(-1).sum(), x, create_graph=True)
        y = torch.ones(0, 2, dtype=torch.float64, requires_grad=True)
        h, = grad(y.cumprod(-1).sum(), y, create_graph=True)""",
    "a_real_view_of_no_elements": """
        x = torch.ones(2, 0, dtype=torch.complex128, requires_grad=True)
        y = x * 1
        v = y.real
        y -= y
        weigh(v).backward()""",
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
    found = check_all(range(part * 1000, part * 1000 + 150))
    assert not found, found

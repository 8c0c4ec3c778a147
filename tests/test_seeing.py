"""graph.draw and graph.saved_bytes: what they show is what the graph holds."""
import gc
import re
import xml.etree.ElementTree as ElementTree

import pytest

import autograd_gpu as torch
from autograd_gpu.autograd import drawing, graph
from autograd_gpu.engine.grad_mode import everywhere
from autograd_gpu.utils.checkpoint import checkpoint


def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def rows(loss):
    return {(row.name, row.line): row.nbytes for row in graph.saved_bytes(loss)}


# -------------------------------------------------------------------------------------------------------------- saved_bytes

def test_memory_counts_once_and_leaves_apart():
    w = torch.ones(100, requires_grad=True)
    x = torch.ones(100)
    y = w * x                                # saves x
    z = y.sin() + y.cos() + y.exp()          # y once, exp's result
    loss = (z * w).sum()                     # saves z and the leaf w
    found = graph.saved_bytes(loss)
    assert {row.name: row.nbytes for row in found} == {"MulBackward0": 800, "SinBackward0": 400, "CosBackward0": 0, "ExpBackward0": 400}
    assert found.total == 1600 and found.leaves == 400
    assert [row.nbytes for row in found] == sorted([row.nbytes for row in found], reverse=True)


def test_a_view_keeps_the_whole():
    x = torch.ones(1000).requires_grad_() * 1
    assert rows((x[:1] * x[1:2]).sum())["MulBackward0", ""] == 4000


def test_what_a_backward_frees_counts_no_more():
    x = torch.ones(10, requires_grad=True)
    loss = x.exp().sum()
    loss.backward(retain_graph=True)
    assert graph.saved_bytes(loss).total == 40
    loss.backward()
    assert graph.saved_bytes(loss).total == 0 and list(graph.saved_bytes(loss)) == []


def test_functions_views_and_checkpoints():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x * x
            ctx.save_for_backward(x, out)
            ctx.inner = "the user's own"
            return out

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]
    x = torch.ones(10, requires_grad=True) * 1
    assert rows(Square.apply(x).sum()) == {("SquareBackward", ""): 80}
    y = x.clone()
    y[:5].mul_(torch.ones(5))
    assert rows(y.sum()) == {("CopySlices", ""): 20}
    assert graph.saved_bytes(checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False).sum()).total == 0
    with graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
        packed = x.exp().sum()
    assert rows(packed) == {("ExpBackward0", ""): 80}
    with graph.saved_tensors_hooks(lambda t: (t.device, {"copy": [t.double()]}), lambda p: p[1]["copy"][0].float()):
        packed = x.exp().sum()
    assert rows(packed) == {("ExpBackward0", ""): 80}


def test_lists_numbers_edges_and_several():
    x = torch.ones(10, requires_grad=True) * 1
    y = torch.stack([x, x * 2.0]).exp()
    assert rows([y.sum(), y.sin().sum()]) == {("ExpBackward0", ""): 80, ("SinBackward0", ""): 0}
    assert graph.saved_bytes(y.grad_fn).total == graph.saved_bytes(graph.get_gradient_edge(y)).total == 80
    assert graph.saved_bytes((y.sum(),)).total == 80
    with pytest.raises(RuntimeError, match="does not require grad"):
        graph.saved_bytes(torch.ones(3))
    with pytest.raises(TypeError, match="got int"):
        graph.saved_bytes(3)


def test_lines():
    x = torch.ones(10, requires_grad=True)
    with graph.record_lines():
        y = x.exp()                          # here
        with graph.record_lines():
            z = y.sin() * y
        loss = z.sum()
    outside = loss * 2
    told = rows(outside)
    assert {name: re.sub(r"\d+", "N", line) for name, line in told} == {
        "ExpBackward0": "test_seeing.py:N: y = x.exp()                          # here",
        "SinBackward0": "test_seeing.py:N: z = y.sin() * y",
        "MulBackward0": "test_seeing.py:N: z = y.sin() * y"}
    assert not everywhere.noting and "line_" not in outside.grad_fn.metadata
    text = str(graph.saved_bytes(outside))
    assert "ExpBackward0" in text and "here" in text and text.endswith("Saved for backward: 80 B; of leaves, which live on anyway: 0 B")


def test_anomaly_mode_gives_lines_too():
    x = torch.ones(10, requires_grad=True)
    with pytest.warns(UserWarning), torch.autograd.detect_anomaly():
        with graph.record_lines():
            y = x.exp()
        z = y.sin()
    assert [line.partition(": ")[2] for _, line in rows(z)] == ["y = x.exp()", "z = y.sin()"]
    assert len(z.grad_fn.metadata["traceback_"]) > 1


@graph.record_lines()
def decorated(x):
    return x.exp()


def test_lines_in_a_decorated_function():
    assert [line.partition(": ")[2] for _, line in rows(decorated(torch.ones(3, requires_grad=True)))] == ["return x.exp()"]


# --------------------------------------------------------------------------------------------------------------------- draw

def test_a_picture():
    model = net()
    loss = torch.nn.functional.cross_entropy(model(torch.ones(16, 4)), torch.zeros(16, dtype=torch.int64))
    picture = graph.draw(loss, model.named_parameters())
    root = ElementTree.fromstring(picture._repr_svg_())
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sorted([t for t in texts if "." in t or t == "output"]) == ["0.bias", "0.weight", "2.bias", "2.weight", "output"]
    for told in ("AddmmBackward0", "TanhBackward0", "LogSoftmaxBackward0", "(8, 4) float32 cpu", "(16, 8) float32", "saves 512 B",
                 "() float32 cpu"):
        assert told in texts, told
    assert str(picture) == picture._repr_svg_()


def test_boxes_do_not_overlap_and_arrows_lead_down():
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(4)])
    y = model(torch.ones(2, 3))
    loss = y.sum() + sum(p.square().sum() for p in model.parameters()) + (y.exp() * y).sum()
    found = drawing.boxes(loss)
    laid, chains = drawing.laid_out(found)
    for row in laid:
        places = sorted([(box.x - box.width / 2, box.x + box.width / 2) for box in row])
        assert all(right <= left + 1e-6 for (_, right), (left, _) in zip(places, places[1:], strict=False))
    assert all(b.layer == a.layer + 1 for chain in chains for a, b in zip(chain, chain[1:], strict=False))
    assert len(chains) == sum(len(box.inputs) for box in found) and sum(map(len, laid)) >= len(found)


def test_texts(tmp_path):
    x = torch.ones(2, 3, requires_grad=True)
    y = x * torch.ones(3)
    picture = graph.draw(y.sum(), {'the "x" <1>': x, "y": y})
    for name, words in [("a.svg", ["<svg", "the &quot;x&quot; &lt;1&gt;", "MulBackward0"]),
                        ("a.dot", ["digraph {", 'the \\"x\\" <1>\\n(2, 3) float32 cpu', "n0 -> n1;", "MulBackward0\\ny\\n(2, 3)"]),
                        ("a.mmd", ["flowchart TB", "the &quot;x&quot; &lt;1&gt;<br>", "n0 --> n1", "classDef leaf"])]:
        picture.save(tmp_path / name)
        text = (tmp_path / name).read_text()
        assert all(word in text for word in words), (name, text)
    with pytest.raises(ValueError, match="none of .svg"):
        picture.save(tmp_path / "a.png")
    assert str(graph.draw(y, format="dot")).startswith("digraph {") and str(graph.draw(y, format="mermaid")).startswith("flowchart")


def test_what_is_drawn_of_other_nodes():
    x = torch.ones(6, requires_grad=True) * 1
    a, b = x.split(3)
    y = torch.cat([a, b * 2, x[:2]])
    z = x.clone()
    z[1:].add_(y[:5])
    text = str(graph.draw([z, y.sum()], format="mermaid"))
    assert "CopySlices<br>(6,) float32" in text and "SplitBackward0<br>(3,) float32<br>(3,) float32" in text
    assert "MaxBackward0<br>(2,) float32<br>(2,) int64" in str(graph.draw(x.reshape(2, 3).max(1)[0], format="mermaid"))
    assert text.count('"output<br>') == 2
    assert "CatBackward0<br>(8,) float32" in text


def test_lines_are_drawn():
    with graph.record_lines():
        y = torch.ones(2, requires_grad=True).exp()
    assert "test_seeing.py" in str(graph.draw(y))


def test_wrong_calls():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="svg, dot, mermaid, not 'png'"):
        graph.draw(x, format="png")
    with pytest.raises(RuntimeError, match="does not require grad"):
        graph.draw(torch.ones(2))
    y = x
    for _ in range(30):
        y = y + 1
    with pytest.raises(ValueError, match="more than limit=20"):
        graph.draw(y, limit=20)
    assert graph.draw(x)._repr_svg_().count("<rect") == 3        # the ground, a leaf and an output


def test_a_deep_graph_needs_no_stack(in_small_stack):
    def work():
        y = torch.ones(2, requires_grad=True)
        for _ in range(20000):
            y = y.exp()
        return graph.saved_bytes(y).total
    assert in_small_stack(work) == 20000 * 8


def test_a_drawing_keeps_no_graph():
    x = torch.ones(1000, requires_grad=True)
    y = x.exp()
    picture = graph.draw(y)
    node = y.grad_fn
    del y
    gc.collect()
    assert node not in gc.get_referrers(picture) and not any(isinstance(r, drawing.Box) for r in gc.get_referrers(node))

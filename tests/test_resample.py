"""Interpolation and moved pixels beside PyTorch: values, first and second derivatives, dtypes, modules, errors."""
import itertools

import numpy as np
import pytest

import autograd_gpu
from tests.parity import said
from tests.test_pooling import agree, drawn, twice

MODES = {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,), "bicubic": (2,),
         "trilinear": (3,)}
TARGETS = [{"size": 3}, {"size": 9}, {"size": 1}, {"scale_factor": 2}, {"scale_factor": 1.7}, {"scale_factor": 0.6},
           {"scale_factor": 2.3, "recompute_scale_factor": True}]
CASES = {f"{mode} {dims}d {options}": (dims, dict(options, mode=mode)) for mode, found in MODES.items() for dims in found
         for options in TARGETS + [dict(t, align_corners=True) for t in TARGETS if "linear" in mode or mode == "bicubic"]}
MOVED = {"pixel_shuffle": ((2, 3, 12, 3, 2), 2), "pixel_unshuffle": ((2, 6, 4), 2), "channel_shuffle": ((2, 6, 4, 3), 2)}
SHAPES = {3: (2, 3, 5), 4: (2, 3, 4, 5), 5: (1, 2, 4, 3, 5)}


def moved(torch, name, *args):
    return lambda x: getattr(torch.nn.functional, name)(x, *args)


@pytest.mark.parametrize("case", CASES)
def test_interpolate(case, oracle, close):
    dims, options = CASES[case]
    agree(close, *[twice(torch, lambda x, torch=torch: torch.nn.functional.interpolate(x, **options), drawn(*SHAPES[dims + 2]))
                   for torch in (autograd_gpu, oracle)])


def test_interpolate_sizes_per_dimension(oracle, close):
    for options in ({"size": (3, 7)}, {"scale_factor": (2.0, 0.5), "mode": "bilinear"}, {"size": [5, 2], "mode": "bicubic"}):
        agree(close, *[twice(torch, lambda x, torch=torch, options=options: torch.nn.functional.interpolate(x, **options),
                             drawn(2, 3, 4, 5)) for torch in (autograd_gpu, oracle)])


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_floating_dtypes(mode, dtype, oracle, close):
    array = np.round(drawn(1, 2, 4, 4) * 4) / 4
    found = [twice(torch, lambda x, torch=torch: torch.nn.functional.interpolate(x, scale_factor=2, mode=mode), array, dtype)
             for torch in (autograd_gpu, oracle)]
    assert found[0][0] == found[1][0]
    close(found[0][1], found[1][1])
    close(found[0][2], found[1][2])


def test_other_dtypes(oracle):
    for mode, dtype in itertools.product(["nearest", "nearest-exact", "bilinear", "bicubic"], ["bool", "uint8", "int64", "complex64"]):
        def run(torch, mode=mode, dtype=dtype):
            x = torch.full((1, 1, 3, 3), 7).to(getattr(torch, dtype))
            return torch.nn.functional.interpolate(x, scale_factor=2, mode=mode).tolist()
        expected = said(lambda run=run: run(oracle), "not implemented for")
        assert said(lambda run=run: run(autograd_gpu), "not implemented for") == expected
        assert expected or run(autograd_gpu) == run(oracle)


REFUSED = [
    ((2, 3, 4, 5), {}, "either size or scale_factor"), ((2, 3, 4, 5), {"size": 3, "scale_factor": 2}, "only one of size"),
    ((2, 3, 4, 5), {"size": (3, 3, 3)}, "same number of spatial dimensions"), ((2, 3, 4, 5), {"size": 0}, "should be greater than 0"),
    ((2, 3, 4, 5), {"scale_factor": 0.1}, "should be greater than 0"), ((2, 3, 4, 5), {"size": 3, "align_corners": True}, "align_corners"),
    ((2, 3, 4, 5), {"size": 3, "mode": "linear"}, "linear mode needs 3D"), ((2, 3, 4, 5), {"size": 3, "mode": "odd"}, "Input Error"),
    ((2, 3), {"size": 3}, "Input Error"), ((2, 3, 4, 5), {"size": 3, "recompute_scale_factor": True}, "not meaningful"),
    ((2, 0, 4, 5), {"size": 3}, "Non-empty 4D"), ((2, 3, 4, 5), {"size": 3, "antialias": True}, "Anti-alias"),
    ((2, 3, 4, 5), {"scale_factor": (2, 2, 2)}, "scale_factor")]


@pytest.mark.parametrize(("shape", "options", "word"), REFUSED)
def test_interpolate_refusals(shape, options, word, oracle):
    found = [said(lambda torch=torch: torch.nn.functional.interpolate(torch.ones(shape), **options), word)
             for torch in (autograd_gpu, oracle)]
    assert found[0] == found[1] and found[0][1] == [True]


@pytest.mark.parametrize("name", MOVED)
def test_moved_pixels(name, oracle, close):
    shape, factor = MOVED[name]
    agree(close, *[twice(torch, moved(torch, name, factor), drawn(*shape)) for torch in (autograd_gpu, oracle)])
    for wrong in ((shape, 0), (shape, 5), ((4, 4), 2)):
        found = [said(lambda torch=torch, wrong=wrong: moved(torch, name, wrong[1])(torch.ones(wrong[0])), "expects", "roup")
                 for torch in (autograd_gpu, oracle)]
        assert found[0] is not None and found[0] == found[1]
    for torch in (autograd_gpu, oracle):
        assert getattr(torch, name)(torch.arange(24).view(1, 6, 2, 2)[:, :4], 2).dtype == torch.int64


MODULES = {"Upsample(scale_factor=2)": 4, "Upsample(size=3)": 3, "Upsample((2, 3), mode='bilinear', align_corners=True)": 4,
           "Upsample(scale_factor=(2, 1.5), mode='bicubic')": 4, "UpsamplingNearest2d(scale_factor=2)": 4,
           "UpsamplingBilinear2d(size=7)": 4,
           "PixelShuffle(1)": 4, "PixelUnshuffle(1)": 3, "ChannelShuffle(3)": 4}


@pytest.mark.parametrize("text", MODULES)
def test_modules(text, oracle, close):
    def run(torch):
        module = eval("torch.nn." + text, {"torch": torch})
        return repr(module), module(torch.tensor(drawn(*SHAPES[MODULES[text]])))
    ours, theirs = run(autograd_gpu), run(oracle)
    assert ours[0] == theirs[0]
    close(ours[1], theirs[1])


@pytest.mark.filterwarnings("ignore")
def test_former_names(oracle, close):
    for name, options in (("upsample", {"mode": "bilinear"}), ("upsample_nearest", {}), ("upsample_bilinear", {})):
        close(*[getattr(torch.nn.functional, name)(torch.tensor(drawn(1, 2, 3, 3)), scale_factor=2, **options)
                for torch in (autograd_gpu, oracle)])

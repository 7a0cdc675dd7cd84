"""16-bit models and autocast adapt like float32: the errors on the digits stream differ by less than a point."""

import copy
import importlib.util
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import note_tta as tta
from note_tta.data import open_dataset

DIGITS = Path(__file__).parents[2] / "examples" / "digits_model.py"
METHODS = {
    "note": (tta.NOTE, "iabn", {}),
    "tent": (tta.TENT, "bn", {}),
    "cotta": (tta.CoTTA, "bn", {"augmentations": 4}),
}


@pytest.fixture(scope="module")
def models():
    spec = importlib.util.spec_from_file_location("digits_model", DIGITS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {norm: module.train_digits(norm) for norm in ("iabn", "bn")}


@pytest.fixture(scope="module")
def stream():
    drifted = open_dataset("digits").domain("style")
    x, y = drifted.inputs(slice(1000)), drifted.labels[:1000]
    order = tta.streams.dirichlet(y, generator=torch.Generator().manual_seed(0))
    return [(x[part], y[part]) for part in order.split(64)]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_error_on_the_digits_is_within_a_point_of_float32s(name, models, stream):
    kind, norm, settings = METHODS[name]
    errors = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, "autocast"):
        model = copy.deepcopy(models[norm])
        method = kind(model if dtype == "autocast" else model.to(dtype), **settings)
        narrow = torch.autocast("cpu", torch.bfloat16) if dtype == "autocast" else nullcontext()
        with torch.backends.mkldnn.flags(enabled=False), narrow:  # its 16-bit convolutions crash on some CPUs
            errors[dtype] = tta.evaluate(method, stream).error
        assert method.counters["updates"] >= len(stream) - 1 and method.counters["rejected_updates"] == 0
    assert all(abs(error - errors[torch.float32]) <= 1 for error in errors.values()), errors

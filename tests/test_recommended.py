"""`tta.adapt`: its choices for each family of models, what it prints, and that it keeps the contract."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import note_tta as tta
from note_tta.checks import check_method, equal, example_images
from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.worker import build_method
from note_tta.methods import find_method, method_title
from note_tta.models import build_model
from note_tta.recommended import WARM_START


def network(norm, channels=6):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        norm(),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * channels, 5),
    ).eval()


FAMILIES = {
    "batch": (partial(nn.BatchNorm2d, 6), "IABN in place of BatchNorm, in a copy"),
    "iabn": (partial(tta.IABN2d, 6), "the model's own layers (IABN2d)"),
    "group": (partial(nn.GroupNorm, 2, 6), "the model's own layers (GroupNorm)"),
    "layer": (partial(nn.LayerNorm, (6, 8, 8)), "the model's own layers (LayerNorm)"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_it_chooses_for_each_family_and_leaves_the_model_alone(family):
    norm, words = FAMILIES[family]
    model = network(norm)
    before, kinds = copy.deepcopy(model.state_dict()), [type(module) for module in model.modules()]
    adapted = tta.adapt(model, interval=32)
    answers = adapted(example_images(200))
    assert answers.shape == (200, 5) and torch.isfinite(answers).all()
    assert adapted.counters["updates"] == 6
    assert f"- {words}" in repr(adapted)
    assert equal(model.state_dict(), before)
    assert [type(module) for module in model.modules()] == kinds and not model.training
    learned = [
        name for name, tensor in adapted.model.state_dict().items() if not torch.equal(tensor, before[name])
    ]
    assert any(name == "1.weight" for name in learned)
    assert not any(name.startswith(("0.", "5.")) for name in learned)


def test_it_adapts_a_vision_transformer():
    model = build_model("vit_tiny", 10)
    adapted = tta.adapt(model, interval=8)
    assert adapted(torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))).shape == (16, 10)
    assert adapted.counters["updates"] == 2
    assert "(LayerNorm): they have no running statistics to move" in repr(adapted)
    assert "warm_start" not in repr(adapted)


def test_it_is_the_composition_that_it_names():
    model, x = network(partial(nn.BatchNorm2d, 6)), example_images(200)
    by_hand = tta.TemporalFilter(tta.NOTE(tta.convert_iabn(copy.deepcopy(model)), warm_start=10))
    assert torch.equal(tta.adapt(model)(x), by_hand(x))
    trained_with_iabn = network(partial(tta.IABN2d, 6))
    by_hand = tta.TemporalFilter(tta.NOTE(trained_with_iabn, warm_start=10))
    assert torch.equal(tta.adapt(trained_with_iabn)(x), by_hand(x))


def test_the_copy_shares_the_frozen_tensors():
    model = network(partial(nn.BatchNorm2d, 6))
    adapted = tta.adapt(model)
    assert adapted.model[0].weight is model[0].weight
    assert adapted.model[1].weight is not model[1].weight
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(ValueError, match="was changed after the method was made"):
        adapted(example_images(1))


def test_every_part_can_be_replaced():
    model, x = network(partial(nn.BatchNorm2d, 6)), example_images(100)
    memory = tta.FIFO(16)
    kept = tta.adapt(model, memory, layers="keep", warm_start=None, filter=None, momentum=0.1, interval=16)
    with pytest.warns(RuntimeWarning, match="PBRS-only"):
        plain = tta.NOTE(model, tta.FIFO(16), momentum=0.1, interval=16)
    assert kept.memory is memory
    assert torch.equal(kept(x), plain(x))
    assert 'layers="keep" was given' in repr(kept) and "warm_start" not in repr(kept)
    other = tta.adapt(model, method=tta.RoTTA, filter=None)
    assert torch.equal(other(x), tta.RoTTA(tta.convert_iabn(copy.deepcopy(model)))(x))
    watched = tta.adapt(model, watch=tta.Watch)
    assert isinstance(watched.method.method, tta.Watch) and "- Watch, as given" in repr(watched)
    assert watched.health.state == "learning"


def test_it_says_what_it_chose_and_why():
    text = repr(tta.adapt(network(partial(nn.BatchNorm2d, 6))))
    assert text.startswith("adapt chose\n  - IABN in place of BatchNorm")
    assert "- warm_start=10: statistics move fast at first" in text
    assert "- a temporal filter: if labels come in runs" in text
    assert "TemporalFilter: the order is not informative" in text and "NOTE(Sequential)" in text


def test_a_model_without_norm_layers_is_told_what_to_use():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(
        ValueError, match=r"Sequential has no norm layer to adapt: use tta.TemporalFilter\(tta.Source"
    ):
        tta.adapt(model)
    assert tta.adapt(model, method=tta.Source)(torch.rand(4, 3, 2, 2)).shape == (4, 3)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match='layers must be "iabn", "keep" or None, got \'bn\''):
        tta.adapt(network(partial(nn.BatchNorm2d, 6)), layers="bn")
    with pytest.raises(ValueError, match='no BatchNorm that IABN could replace: use layers="keep"'):
        tta.adapt(network(partial(nn.GroupNorm, 2, 6)), layers="iabn")
    with pytest.raises(TypeError, match=r"model must be an .*Module, got str"):
        tta.adapt("resnet18")
    with pytest.raises(ValueError, match="warm_start must be at least 0, got -1"):
        tta.adapt(network(partial(nn.BatchNorm2d, 6)), warm_start=-1)


@pytest.mark.parametrize("family", ["batch", "group"])
def test_it_keeps_the_contract_of_methods(family):
    check_method(tta.adapt, model=network(FAMILIES[family][0]), interval=16)


def test_it_goes_on_from_a_file_as_if_never_stopped(tmp_path):
    model, x = network(partial(nn.BatchNorm2d, 6)), example_images(120)
    adapted = tta.adapt(model, interval=16)
    adapted(x[:70])
    tta.save_state(tmp_path / "state", adapted)
    twin, fork = tta.adapt(model, interval=16), adapted.fork()
    tta.load_state(tmp_path / "state", twin)
    expected = adapted(x[70:])
    assert torch.equal(twin(x[70:]), expected) and torch.equal(fork(x[70:]), expected)
    twin.reset()
    assert torch.equal(twin(x), tta.adapt(model, interval=16)(x))
    with pytest.raises(ValueError, match="the state belongs to Adapted, but this method is TemporalFilter"):
        tta.load_state(tmp_path / "state", adapted.method)


def test_experiments_know_it_by_name():
    assert find_method("adapt") is tta.adapt
    assert method_title("adapt") == "adapt (ours)"
    with pytest.raises(ValueError, match=r"unknown method 'adopt'; known are .*petta, adapt, or your own"):
        find_method("adopt")
    cell = Cell(Stream("digits", "contrast", "iid", None, 0), "adapt", model="digits_cnn", norm="iabn")
    method = build_method(cell, network(partial(tta.IABN2d, 6)))
    assert repr(method).startswith("adapt chose")
    assert method.memory.generator.initial_seed() != tta.PBRS(64).generator.initial_seed()


def test_a_fleet_holds_adapted_streams():
    model, x = network(partial(nn.BatchNorm2d, 6)), example_images(80)
    fleet = tta.Fleet(model, method=partial(tta.adapt, interval=16))
    ids = ["left", "right"] * 40
    answers = fleet(ids, x)
    for start, name in enumerate(("left", "right")):
        alone = tta.adapt(model, interval=16)
        torch.testing.assert_close(answers[start::2], alone(x[start::2]), atol=1e-4, rtol=1e-4)
        assert fleet.counters(name) == alone.counters


def test_note_with_keywords_gets_the_warm_start_and_a_given_one_is_never_lost():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)).eval()
    assert tta.adapt(model, method=partial(tta.NOTE, lr=1e-3)).inner.warm_start == WARM_START
    assert tta.adapt(model, method=partial(tta.NOTE, warm_start=3)).inner.warm_start == 3
    assert tta.adapt(model, method=partial(tta.NOTE, lr=1e-3), warm_start=5).inner.warm_start == 5
    with pytest.raises(TypeError, match="warm_start"):
        tta.adapt(model, method=tta.TENT, warm_start=5)

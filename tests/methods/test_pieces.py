"""An update in pieces: the same result as in one, no piece over too many samples, and what is not cut."""

import copy

import pytest
import torch
from networks import images, make, network, without_batch_norm
from torch import nn
from torch.nn.utils import parametrizations

import note_tta as tta
from note_tta.methods.pieces import SAMPLES, Pieces

COUNT = 2 * SAMPLES + 5
"""Samples of three pieces, the last of them smaller."""


@pytest.fixture
def seen(monkeypatch):
    """The number of samples of each convolution that is computed."""
    sizes = []
    forward = nn.Conv2d.forward

    def noting(self, input):
        sizes.append(len(input))
        return forward(self, input)

    monkeypatch.setattr(nn.Conv2d, "forward", noting)
    return sizes


def learned(method, x):
    """What an update on samples results in."""
    for sample in x:
        method(sample[None])
    method(images(1, seed=9))  # the delay of one sample
    assert method.counters["updates"] == 1
    return {name: tensor.detach().clone() for name, tensor in method.tensors.items()}


@pytest.mark.filterwarnings("ignore:this model has BatchNorm and no IABN")
@pytest.mark.parametrize("kind", ["iabn", "bn", "ln", "vit"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_result_is_that_of_whole_layers(kind, layout):
    model = without_batch_norm(kind) if kind in ("ln", "vit") else network(kind)
    model, x = model.to(memory_format=layout), images(COUNT).contiguous(memory_format=layout)
    whole, cut = (
        learned(tta.NOTE(model, tta.PBRS(COUNT), interval=COUNT, lr=1e-2, momentum=0.2, delay=delay), x)
        for delay in (0, 1)
    )
    assert whole.keys() == cut.keys()
    for name, tensor in whole.items():
        torch.testing.assert_close(cut[name], tensor, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("convert", [tta.convert_iabn, tta.prepack_convolutions])
def test_no_piece_of_a_delayed_update_has_more_samples(seen, convert):
    method = make("note", model=convert(network("iabn")), interval=COUNT, memory=tta.PBRS(COUNT), delay=1)
    seen.clear()
    learned(method, images(COUNT))
    assert max(seen) <= SAMPLES and any(size > 1 for size in seen)


def test_without_a_delay_layers_are_computed_whole(seen):
    method = make("note", interval=COUNT, memory=tta.PBRS(COUNT))
    seen.clear()
    learned(method, images(COUNT))
    assert set(seen) == {1, COUNT}


@pytest.mark.parametrize("samples", [4, SAMPLES, SAMPLES + 1, COUNT])
def test_every_piece_is_reported(samples):
    method, reports = make("note", interval=8), []
    draft = method.make_draft()
    draft.report(lambda: reports.append(torch.is_grad_enabled()))
    method.learn(draft, images(samples))
    convolutions = sum(isinstance(layer, nn.Conv2d) for layer in draft.module.modules())
    norms = len(method.backbone.layers)
    parts = -(-samples // SAMPLES) if samples > SAMPLES else 0
    assert reports.count(True) == norms + parts * convolutions  # forward
    assert reports.count(False) == norms + parts * (convolutions - 1)  # the samples need no gradient
    # the count is a little high: the first convolution has no backward pass, and the head is too small to be cut
    assert draft.count_pieces(samples) == len(reports) + 3 * parts


def test_nothing_is_reported_before_somebody_asks_and_after():
    method = make("note", interval=8)
    draft = method.make_draft()
    method.learn(draft, images(COUNT))
    reports = []
    draft.report(lambda: reports.append(1))
    draft.report(None)
    method.learn(draft, images(COUNT))
    assert not reports


class Doubled(nn.Conv2d):
    def forward(self, input):
        return super().forward(input) * (2 if len(input) > SAMPLES else 1)


def own_forward(layer):
    layer.forward = lambda input: nn.Conv2d.forward(layer, input)
    return layer


def learning(layer):
    return layer.requires_grad_(True)


def compiled(layer):
    layer.compile(backend="eager")
    return layer


@pytest.mark.parametrize("change", [None, parametrizations.weight_norm, own_forward, learning, compiled])
def test_only_plain_frozen_layers_are_cut(change, seen):
    layer = nn.Conv2d(3, 4, 3).requires_grad_(False)
    run_in_pieces(nn.Sequential(layer if change is None else change(layer)), images(COUNT))
    assert seen == ([13, 13, 11] if change is None else [COUNT])


def test_a_subclass_is_left_whole():
    layer = Doubled(3, 4, 3).requires_grad_(False)
    expected = copy.deepcopy(layer)(images(COUNT))
    assert torch.equal(run_in_pieces(layer, images(COUNT)), expected)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(20, 4, 3), (20, 9)),  # one sample, without an axis for the batch
        (nn.Linear(20, 4), (COUNT, 20)),
    ],
)
def test_what_is_not_a_batch_or_not_worth_it_is_left_whole(layer, shape):
    layer.requires_grad_(False)
    x = torch.rand(shape)
    expected = copy.deepcopy(layer)(x)
    assert torch.equal(run_in_pieces(layer, x), expected)


def test_a_model_that_folds_an_axis_into_the_batch_has_as_many_pieces(seen):
    layer = nn.Conv2d(3, 4, 3).requires_grad_(False)
    run_in_pieces(layer, images(4 * COUNT), samples=COUNT)
    assert seen == [50, 50, 48]


def run_in_pieces(module, x, samples=None):
    reporter = Pieces(module)
    reporter.done = lambda: None
    reporter.begin(len(x) if samples is None else samples)
    return module(x)

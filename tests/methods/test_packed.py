"""Nested dicts in buffers: they read like the dict, as a whole and entry by entry."""

import torch
from torch import nn

from note_tta.methods.draft import copy_all
from note_tta.methods.packed import Packed

VALUES = {
    "weight": nn.Parameter(torch.tensor([1.0, 2.0])),
    "count": torch.tensor(7),
    "moments": {0: {"square": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(3.0)}, "lr": 0.1},
    "bias": torch.tensor([4.0]),
}


def same(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return (
        one.dtype == other.dtype and torch.equal(one, other)
        if isinstance(one, torch.Tensor)
        else one == other
    )


def test_it_reads_like_the_dict_entry_by_entry_and_as_a_whole():
    packed = Packed.of(VALUES)
    assert same(dict(packed), VALUES)
    assert same(packed.views(), VALUES)


def test_entries_and_views_are_the_buffers_themselves():
    packed = Packed.of(VALUES)
    packed.views()["moments"][0]["square"][1, 2] = 50
    packed["bias"].fill_(60)
    assert packed["moments"][0]["square"][1, 2] == 50 and packed.views()["bias"] == 60
    assert VALUES["bias"] == 4, "what it was made of is another thing"
    assert not any(isinstance(view, nn.Parameter) for view in packed.views().values())


def test_values_are_copied_between_dicts_of_any_kind_and_order():
    wanted = {"a": torch.tensor([1.0, 2.0]), "b": torch.ones(2, 2)}
    backwards = dict(reversed(wanted.items()))
    for values in (wanted, backwards, Packed.of(wanted), Packed.of(backwards)):
        for into in (
            {name: torch.zeros_like(tensor) for name, tensor in wanted.items()},
            Packed.of({name: torch.zeros_like(tensor) for name, tensor in wanted.items()}),
        ):
            copy_all(into, values)
            assert same(dict(into), wanted)

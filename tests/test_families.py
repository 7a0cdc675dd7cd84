import copy

import pytest
import torch
from torch import nn

import note_tta as tta
from note_tta.families import FAMILIES, examine
from note_tta.models import build_model


class FrozenBatchNorm2d(nn.Module):
    """Like torchvision's, it is not a subclass of BatchNorm."""


def net(*layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 3))


MODELS = {
    "converted": lambda: tta.convert_iabn(net(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8))),
    "batch": lambda: build_model("resnet20", 10),
    "series": lambda: build_model("sensor_cnn4", 12, in_channels=6),
    "table": lambda: net(nn.Linear(4, 8), nn.BatchNorm1d(8)),
    "mixed": lambda: net(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.GroupNorm(2, 8)),
    "sample": lambda: build_model("vit_tiny", 10),
    "instance": lambda: net(nn.Conv2d(1, 8, 3), nn.InstanceNorm2d(8, affine=True)),
    "frozen": lambda: net(nn.Conv2d(1, 8, 3), FrozenBatchNorm2d()),
    "none": lambda: net(nn.Conv2d(1, 8, 3)),
}


def test_every_family_is_tried():
    assert MODELS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("family", MODELS)
def test_a_model_is_put_into_its_family_and_left_as_it_is(family):
    model = MODELS[family]()
    before = copy.deepcopy(model.state_dict())
    found = examine(model)
    assert found.family == family
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert {*found.takes, *found.with_source, *found.refuses} == set(tta.METHODS)
    assert {"source", "cotta"} <= set(found.takes)
    assert ("note" in found.takes) == (family not in ("frozen", "none"))
    assert ("onda" in found.takes) == (family in ("converted", "batch", "series", "table", "mixed"))


def test_counts_are_those_of_the_model():
    found = examine(net(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8)))
    assert (found.layers, found.adapting, found.parameters) == ({"BatchNorm1d": 2}, 32, 4 * 8 + 8 + 32 + 27)
    assert "no IABN layer" in found.refuses["note_iid"]


@pytest.mark.parametrize(
    "name",
    ["ResNet", "MobileNet", "EfficientNet", "ConvNeXt", "ViT", "sensor CNNs", "MLPs for tables", "detection"],
)
def test_the_families_of_the_guide_are_there(name):
    assert any(name in family.examples for family in FAMILIES.values())

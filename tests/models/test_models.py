"""Every network of the paper: shapes, keys, arguments, and the public weights' known accuracy."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from note_tta.models import MODELS, Normalize, architecture, build_model
from note_tta.nn import IABN1d, IABN2d, convert_bn, convert_iabn


def example(name: str, batch: int = 2) -> torch.Tensor:
    channels = MODELS[name].in_channels
    if name.startswith("sensor"):
        return torch.rand(batch, channels, 5 if name == "sensor_cnn2" else 50)
    return torch.rand(batch, channels, 32, 32)


@pytest.mark.parametrize(("name", "norm"), [(name, norm) for name in MODELS for norm in MODELS[name].norms])
def test_forward_shape_and_rebuild(name, norm):
    model = build_model(name, 7, norm=norm, width=8).eval()
    with torch.no_grad():
        logits = model(example(name))
    assert logits.shape == (2, 7)
    twin = build_model(**architecture(model)).eval()
    twin.load_state_dict(model.state_dict())
    x = example(name)
    with torch.no_grad():
        assert torch.equal(twin(x), model(x))


@pytest.mark.parametrize("name", [name for name in MODELS if "iabn" in MODELS[name].norms])
def test_iabn_has_batchnorms_keys(name):
    plain = build_model(name, 3, width=8).state_dict()
    aware = build_model(name, 3, width=8, norm="iabn").state_dict()
    assert list(plain) == list(aware)
    assert not any(key.startswith("normalize") for key in plain)


def norm_layers(model):
    return [m for m in model.modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d, IABN1d, IABN2d))]


@pytest.mark.parametrize(
    ("name", "convolutions", "parameters"),
    [
        ("resnet18", 20, 11_173_962),
        ("resnet50", 53, 23_520_842),
        ("resnet20", 19, 269_722),
        ("resnet20_projection", 21, 272_474),
        ("resnet32", 31, 464_154),
        ("resnet44", 43, 658_586),
        ("resnet56", 55, 853_018),
    ],
)
def test_published_sizes(name, convolutions, parameters):
    """The counts the networks' authors and re-implementers give for ten classes."""
    model = build_model(name, 10)
    assert sum(isinstance(m, nn.Conv2d) for m in model.modules()) == convolutions
    assert len(norm_layers(model)) == convolutions
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18_imagenet", 11_689_512),
        ("resnet34_imagenet", 21_797_672),
        ("resnet50_imagenet", 25_557_032),
    ],
)
def test_imagenet_networks_have_torchvisions_size_and_keys(name, parameters):
    model = build_model(name, 1000)
    assert sum(p.numel() for p in model.parameters()) == parameters
    state = model.state_dict()
    assert state["conv1.weight"].shape == (64, 3, 7, 7)
    last = "bn3" if "50" in name else "bn2"
    expected = {
        "bn1.running_mean",
        "layer1.0.conv1.weight",
        f"layer4.1.{last}.num_batches_tracked",
        "layer2.0.downsample.0.weight",
        "layer2.0.downsample.1.running_var",
        "fc.weight",
        "fc.bias",
    }
    assert expected <= set(state)
    assert ("layer1.0.downsample.0.weight" in state) == ("50" in name)


def test_imagenet_keys_equal_torchvisions():
    torchvision = pytest.importorskip(
        "torchvision", reason="torchvision is not installed", exc_type=ImportError
    )
    for depth in (18, 34, 50):
        theirs = getattr(torchvision.models, f"resnet{depth}")(weights=None)
        ours = build_model(f"resnet{depth}_imagenet", 1000, mean=(0, 0, 0), std=(1, 1, 1))
        ours.load_state_dict(theirs.state_dict(), strict=True)
        x = torch.rand(1, 3, 64, 64)
        with torch.no_grad():
            assert torch.allclose(ours.eval()(x), theirs.eval()(x), atol=1e-5)


@pytest.mark.parametrize(("name", "convolutions"), [("sensor_cnn4", 4), ("sensor_cnn2", 2)])
def test_sensor_networks_are_the_papers(name, convolutions):
    """So many convolutions, a norm layer after each, one linear layer."""
    model = build_model(name, 5)
    kinds = [type(m) for m in model.modules() if isinstance(m, (nn.Conv1d, nn.BatchNorm1d, nn.Linear))]
    assert kinds == [nn.Conv1d, nn.BatchNorm1d] * convolutions + [nn.Linear]
    assert model(torch.rand(2, MODELS[name].in_channels, 23)).shape == (2, 5)


def test_digits_network_has_the_strides_asked_for():
    model = build_model("digits_cnn", 10)
    assert [m.stride[0] for m in model.modules() if isinstance(m, nn.Conv2d)] == [1, 1, 2, 1, 2, 1]


def test_quarter_width():
    model = build_model("resnet18", 10, width=16)
    assert model.fc.in_features == 128


def test_option_a_shortcut_pads_channels_and_drops_pixels():
    block = build_model("resnet20", 10).layer2[0]
    x = torch.rand(1, 16, 6, 6)
    shortcut = block._shortcut(x)
    assert shortcut.shape == (1, 32, 3, 3)
    assert torch.equal(shortcut[:, 8:24], x[:, :, ::2, ::2])
    assert not shortcut[:, :8].any()
    assert not shortcut[:, 24:].any()


def test_normalisation_happens_inside():
    inner = build_model("resnet20", 10, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)).eval()
    outer = build_model("resnet20", 10, mean=(0, 0, 0), std=(1, 1, 1)).eval()
    outer.load_state_dict(inner.state_dict())
    x = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    with torch.no_grad():
        assert torch.allclose(inner(x), outer((x - mean.view(3, 1, 1)) / std.view(3, 1, 1)), atol=1e-6)
    assert outer.normalize(x) is x


def test_normalisation_follows_dtype_and_deepcopy():
    model = copy.deepcopy(build_model("digits_cnn", 3, mean=[0.5], std=[0.25])).double().eval()
    assert model.normalize.mean.dtype == torch.float64
    assert model(torch.rand(1, 1, 32, 32, dtype=torch.float64)).dtype == torch.float64


def test_architecture_reads_the_norm_from_the_layers():
    model = build_model("resnet20", 10)
    assert architecture(model)["norm"] == "bn"
    model = convert_iabn(model, alpha=math.inf, correction=1)
    card = architecture(model)
    assert (card["norm"], card["alpha"], card["correction"]) == ("iabn", math.inf, 1)
    assert architecture(convert_bn(model))["norm"] == "bn"


def test_in_is_iabn_that_always_trusts_the_instance():
    model = build_model("resnet20", 10, norm="in")
    assert {layer.alpha for layer in norm_layers(model)} == {0.0}
    assert architecture(model)["norm"] == "in"


NORM_FREE = [
    *[("resnet20", "gn"), ("resnet20_gn", "gn"), ("sensor_cnn4", "gn")],
    *[("vit_tiny", "ln"), ("convnext_atto", "ln")],
]


@pytest.mark.parametrize(("name", "norm"), NORM_FREE)
def test_networks_without_batchnorm_answer_each_sample_by_itself(name, norm):
    """Also in train mode: there are no statistics over a batch."""
    torch.manual_seed(0)
    model = build_model(name, 5, norm=norm, width=16).train()
    x = example(name, 4)
    with torch.no_grad():
        together, alone = model(x), torch.cat([model(sample[None]) for sample in x])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert not norm_layers(model)
    assert not any("running" in key for key in model.state_dict())
    kind = nn.GroupNorm if norm == "gn" else nn.LayerNorm
    assert any(isinstance(module, kind) for module in model.modules())
    assert architecture(model)["norm"] == norm


def test_group_norm_has_eight_groups_where_they_divide_the_channels():
    layers = [m for m in build_model("resnet20", 10, norm="gn").modules() if isinstance(m, nn.GroupNorm)]
    assert len(layers) == 19
    assert {layer.num_groups for layer in layers} == {8}
    narrow = build_model("resnet20", 10, norm="gn", width=6)
    assert {m.num_groups for m in narrow.modules() if isinstance(m, nn.GroupNorm)} == {2, 4, 8}


def test_the_transformer_is_sensitive_to_where_things_are():
    """Positions count: the same patches in another order give another answer."""
    torch.manual_seed(0)
    model = build_model("vit_tiny", 5, width=32).eval()
    x = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert not torch.allclose(model(x), model(x.flip(3)), atol=1e-4)
    with pytest.raises(ValueError, match="images must be 32x32, got 28x28"):
        model(torch.rand(1, 3, 28, 28))


@pytest.mark.parametrize(("name", "parameters"), [("vit_tiny", 2_693_578), ("convnext_atto", 3_376_290)])
def test_sizes_without_batchnorm(name, parameters):
    """Added up by hand from the layers' shapes."""
    assert sum(p.numel() for p in build_model(name, 10).parameters()) == parameters


@pytest.mark.parametrize(("name", "norm"), NORM_FREE[3:])
def test_networks_without_batchnorm_learn(name, norm):
    """A few steps on eight samples bring the loss down."""
    torch.manual_seed(0)
    model = build_model(name, 2, norm=norm, width=16)
    x, y = torch.rand(8, 3, 32, 32), torch.arange(8) % 2
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_architecture_of_a_foreign_model():
    with pytest.raises(ValueError, match="Linear was not made by build_model"):
        architecture(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "vgg"}, "unknown model 'vgg'; known are resnet18, "),
        ({"norm": "ln"}, "norm of resnet20 must be one of bn, iabn, in, gn, got 'ln'"),
        ({"name": "vit_tiny", "norm": "iabn"}, "norm of vit_tiny must be one of ln, got 'iabn'"),
        ({"name": "vit_tiny", "width": 200}, "width must be a multiple of 64 or less than 128, got 200"),
        ({"num_classes": 0}, "num_classes must be a whole number of at least 1, got 0"),
        ({"width": 1.5}, "width must be a whole number of at least 1, got 1.5"),
        ({"mean": (0, 0, 0)}, "mean and std go together"),
        ({"mean": (0, 0), "std": (1, 1)}, "mean has 2 values but the input 3 channels"),
        ({"mean": (0, 0, 0), "std": (1, 0, 1)}, "std must be positive, got"),
        ({"mean": (0, 0, 0), "std": (1, 1)}, "one value per channel each, got 3 and 2"),
        ({"norm": "iabn", "correction": 2}, "correction must be 0 or 1, got 2"),
        ({"norm": "iabn", "alpha": -1}, "alpha must be at least 0, got -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_model(**{"name": "resnet20", "num_classes": 10, **arguments})


def test_empty_normalisation():
    with pytest.raises(ValueError, match="one value per channel"):
        Normalize([], [])


CIFAR100_INPUT = {"mean": (0.5070, 0.4865, 0.4409), "std": (0.2673, 0.2564, 0.2761)}


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "weights", "error", "options"),
    [
        ("resnet20", "resnet20_cifar10_akamaster", 8.27, {}),
        ("resnet20_projection", "resnet20_cifar100_bn_reinserted", 31.17, CIFAR100_INPUT),
    ],
)
def test_public_weights_reach_their_published_error(data_root, name, weights, error, options):
    path = data_root / "weights" / f"{weights}.pt"
    folder, key = (
        ("cifar-100-python/test", b"fine_labels")
        if options
        else ("cifar-10-batches-py/test_batch", b"labels")
    )
    batch = data_root / folder
    if not path.exists() or not batch.exists():
        pytest.skip(f"needs {path} and {batch}")
    with batch.open("rb") as file:
        content = pickle.load(file, encoding="bytes")
    images = torch.from_numpy(content[b"data"]).view(-1, 3, 32, 32).float() / 255
    labels = torch.tensor(content[key])
    model = build_model(name, 100 if options else 10, **options)
    model.load_state_dict(torch.load(path, weights_only=True))
    model.eval()
    with torch.no_grad():
        predictions = torch.cat([model(part).argmax(1) for part in images.split(250)])
    assert 100 * (predictions != labels).double().mean().item() == pytest.approx(error, abs=0.02)

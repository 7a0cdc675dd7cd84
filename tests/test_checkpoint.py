import json
import math
import os
import stat
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch.nn import functional as F

from note_tta.checkpoint import (
    load_checkpoint,
    load_weights,
    read_card,
    save_checkpoint,
    save_state,
    weights_fingerprint,
    write_atomically,
)
from note_tta.methods import Source
from note_tta.models import AUTHORS_INPUT, build_model
from note_tta.nn import IABN2d, convert_iabn


def small(**arguments):
    return build_model("digits_cnn", 10, width=4, **arguments)


def disturb(model):
    """Give buffers and parameters values no fresh network has."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return model


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "models" / "digits.safetensors"
    model = disturb(small(norm="iabn", alpha=2.5, correction=1, mean=[0.3], std=[0.4]))
    save_checkpoint(path, model, {"dataset": "digits", "clean_error": 1.5})
    return path, model.eval()


def test_the_fingerprint_is_of_the_weights_not_of_the_card(saved, tmp_path):
    path, model = saved
    first = weights_fingerprint(path)
    torch.save(model.state_dict(), tmp_path / "plain.pt")
    save_checkpoint(path, model, {"dataset": "digits", "clean_error": 1.5, "seconds": 3.0})
    assert first == weights_fingerprint(path) == weights_fingerprint(model)
    assert first == weights_fingerprint(tmp_path / "plain.pt")


def test_any_change_of_the_weights_changes_the_fingerprint(saved):
    _, model = saved
    first = weights_fingerprint(model)
    for name, tensor in model.state_dict().items():
        if not tensor.numel() or not tensor.is_floating_point():
            continue
        kept = tensor.clone()
        tensor.view(-1)[-1] = torch.nextafter(kept.view(-1)[-1], torch.tensor(9.0))
        assert weights_fingerprint(model) != first, name
        tensor.copy_(kept)
    assert weights_fingerprint(model) == first


def test_round_trip(saved):
    path, model = saved
    loaded, card = load_checkpoint(path)
    x = torch.rand(3, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    assert not loaded.training
    assert card["dataset"] == "digits"
    assert json.loads(path.with_suffix(".json").read_text()) == card == read_card(path)
    layer = next(m for m in loaded.modules() if isinstance(m, IABN2d))
    assert (layer.alpha, layer.correction) == (2.5, 1)
    assert sorted(p.name for p in path.parent.iterdir()) == ["digits.json", "digits.safetensors"]


def test_infinite_alpha_survives_json(tmp_path):
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, small(norm="iabn", alpha=math.inf), {})
    json.loads(path.with_suffix(".json").read_text(), parse_constant=pytest.fail)
    model, _ = load_checkpoint(path)
    assert all(m.alpha == math.inf for m in model.modules() if isinstance(m, IABN2d))


def test_a_converted_model_is_saved_as_what_it_is(tmp_path):
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, convert_iabn(small()), {})
    assert load_checkpoint(path)[1]["architecture"]["norm"] == "iabn"


def test_the_card_cannot_part_from_its_weights(saved):
    """The JSON beside is for people: without it, or with another's, the checkpoint is still itself."""
    path, _ = saved
    path.with_suffix(".json").write_text('{"architecture": {}}')
    assert load_checkpoint(path)[1]["dataset"] == "digits"


def test_wrong_class_count_or_channels(saved):
    path, _ = saved
    load_checkpoint(path, num_classes=10, in_channels=1)
    with pytest.raises(ValueError, match=r"digits.safetensors holds .* num_classes 10, but 100 are needed"):
        load_checkpoint(path, num_classes=100)
    with pytest.raises(ValueError, match="in_channels 1, but 3 are needed"):
        load_checkpoint(path, in_channels=3)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not this", b"\xff" * 64, b'{"a": 1}'])
def test_not_safetensors(tmp_path, content):
    path = tmp_path / "odd.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.safetensors is not a whole safetensors file"):
        load_checkpoint(path)
    with pytest.raises(ValueError, match=r"odd\.safetensors"):
        load_weights(small(), path)


def test_truncated(saved):
    path, _ = saved
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"digits\.safetensors is not a whole safetensors file"):
        load_checkpoint(path)


def test_missing_file_and_wrong_suffix(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nothing\.safetensors"):
        load_checkpoint(tmp_path / "nothing.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nothing\.pt"):
        load_weights(small(), tmp_path / "nothing.pt")
    with pytest.raises(ValueError, match=r"ends in \.safetensors, got .*model\.pt"):
        save_checkpoint(tmp_path / "model.pt", small(), {})


def forge(path, card):
    text = card if isinstance(card, str) else json.dumps(card)
    path.write_bytes(save({"a": torch.zeros(1)}, metadata={"note_tta_card": text}))


GOOD = {
    "name": "digits_cnn",
    "num_classes": 10,
    "norm": "bn",
    "width": 4,
    "in_channels": 1,
    "mean": [0.0],
    "std": [1.0],
}


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("not json", "a card that is not JSON"),
        ("[" * 100_000, "a card that is not JSON"),
        ([1], "a card without an architecture"),
        ({"architecture": 5}, "a card without an architecture"),
        ({"architecture": {"name": "resnet20"}}, "lacks in_channels, mean, norm, num_classes, std, width"),
        ({"architecture": {**GOOD, "name": "vgg"}}, "no network that can be built: unknown model 'vgg'"),
        ({"architecture": {**GOOD, "name": []}}, "no network that can be built"),
        ({"architecture": {**GOOD, "exec": 1}}, "no network that can be built: .*exec"),
        ({"architecture": {**GOOD, "mean": {"a": 1}}}, "no network that can be built"),
        ({"architecture": {**GOOD, "in_channels": 10**12}}, "mean has 1 values but the input"),
        ({"architecture": {**GOOD, "width": 10**7}}, "does not fit the network"),
        ({"architecture": {**GOOD, "width": 10**12}}, "no network that can be built"),
        ({"architecture": {**GOOD, "norm": "iabn", "alpha": "much"}}, "no network that can be built"),
        (
            {"architecture": GOOD},
            r"does not fit the network: .* missing \(features.0.weight, .*not the model's \(a\)",
        ),
    ],
)
def test_crafted_cards(tmp_path, card, message):
    path = tmp_path / "forged.safetensors"
    forge(path, card)
    with pytest.raises(ValueError, match=message) as caught:
        load_checkpoint(path)
    assert "forged.safetensors" in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_mutated_files_raise_value_error_or_load(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "f.safetensors"
    save_checkpoint(path, build_model("digits_cnn", 2, width=1), {})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, min(len(content), 4000) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        load_checkpoint(path)
    except ValueError as error:
        assert "f.safetensors" in str(error)


def test_foreign_safetensors_without_card(tmp_path):
    path = tmp_path / "theirs.safetensors"
    model = disturb(small())
    save_file(model.state_dict(), path)
    with pytest.raises(ValueError, match=r"theirs\.safetensors has no card of note-tta; load_weights"):
        load_checkpoint(path)
    target = load_weights(small(norm="iabn"), path)
    assert torch.equal(target.features[1].running_var, model.features[1].running_var)


def test_card_must_be_plain(tmp_path):
    for value in (torch.zeros(1), math.nan):
        with pytest.raises(
            ValueError, match=r"the card of .*a\.safetensors must hold plain JSON values only"
        ):
            save_checkpoint(tmp_path / "a.safetensors", small(), {"x": value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrap", [None, "state_dict", "model", "net"])
@pytest.mark.parametrize("prefix", ["", "module.", "module.module."])
def test_weights_from_elsewhere(tmp_path, wrap, prefix):
    source = disturb(small())
    state = {prefix + name: tensor for name, tensor in source.state_dict().items()}
    path = tmp_path / "w.pt"
    torch.save({wrap: state, "epoch": 3} if wrap else state, path)
    target = load_weights(small(), path)
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor), name


AUTHORS_LAYERS = """
    conv1 64 3 3 3, bn1._bn 64,
    layer1.0.conv1 64 64 3 3, layer1.0.bn1._bn 64, layer1.0.conv2 64 64 3 3, layer1.0.bn2._bn 64,
    layer1.1.conv1 64 64 3 3, layer1.1.bn1._bn 64, layer1.1.conv2 64 64 3 3, layer1.1.bn2._bn 64,
    layer2.0.conv1 128 64 3 3, layer2.0.bn1._bn 128, layer2.0.conv2 128 128 3 3, layer2.0.bn2._bn 128,
    layer2.0.shortcut.0 128 64 1 1, layer2.0.shortcut.1._bn 128,
    layer2.1.conv1 128 128 3 3, layer2.1.bn1._bn 128, layer2.1.conv2 128 128 3 3, layer2.1.bn2._bn 128,
    layer3.0.conv1 256 128 3 3, layer3.0.bn1._bn 256, layer3.0.conv2 256 256 3 3, layer3.0.bn2._bn 256,
    layer3.0.shortcut.0 256 128 1 1, layer3.0.shortcut.1._bn 256,
    layer3.1.conv1 256 256 3 3, layer3.1.bn1._bn 256, layer3.1.conv2 256 256 3 3, layer3.1.bn2._bn 256,
    layer4.0.conv1 512 256 3 3, layer4.0.bn1._bn 512, layer4.0.conv2 512 512 3 3, layer4.0.bn2._bn 512,
    layer4.0.shortcut.0 512 256 1 1, layer4.0.shortcut.1._bn 512,
    layer4.1.conv1 512 512 3 3, layer4.1.bn1._bn 512, layer4.1.conv2 512 512 3 3, layer4.1.bn2._bn 512"""
"""The layers in a CIFAR checkpoint of the paper's authors, as their code names them, and their shapes."""


@pytest.fixture(scope="module")
def authors():
    """A state dict with the keys of the authors' release; its weights keep activations near 1."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    state = {"fc.weight": normal(10, 512), "fc.bias": normal(10)}
    for entry in AUTHORS_LAYERS.split(","):
        name, *sizes = entry.split()
        shape = [int(size) for size in sizes]
        if len(shape) == 4:
            state[f"{name}.weight"] = normal(*shape) * (2 / (shape[1] * shape[2] * shape[3])) ** 0.5
            continue
        state |= {
            f"{name}.weight": 1 + normal(*shape) / 10,
            f"{name}.bias": normal(*shape) / 10,
            f"{name}.running_mean": normal(*shape) / 10,
            f"{name}.running_var": 1 + normal(*shape).abs(),
            f"{name}.num_batches_tracked": torch.tensor(78200),
        }
    return state


def authors_forward(state, x):
    """The authors' network in eval mode, written from its description: IABN with alpha 4, unbiased."""

    def conv(x, name, stride=1):
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def iabn(x, name):
        places = x.shape[2] * x.shape[3]
        m, v, weight, bias = (
            state[f"{name}._bn.{leaf}"].view(1, -1, 1, 1)
            for leaf in ("running_mean", "running_var", "weight", "bias")
        )
        mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True)
        mean = m + F.softshrink((mean - m) / (width := 4 * ((v + 1e-5) / places).sqrt()), 1) * width
        width = 4 * (v + 1e-5) * (2 / (places - 1)) ** 0.5
        var = (v + F.softshrink((var - v) / width, 1) * width).relu()
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2471, 0.2435, 0.2616])
    x = (x - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    x = iabn(conv(x, "conv1"), "bn1").relu()
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = iabn(conv(x, f"{name}.conv1", stride), f"{name}.bn1").relu()
            y = iabn(conv(y, f"{name}.conv2"), f"{name}.bn2")
            if stride == 2:
                x = iabn(conv(x, f"{name}.shortcut.0", 2), f"{name}.shortcut.1")
            x = (x + y).relu()
    return x.mean((2, 3)) @ state["fc.weight"].T + state["fc.bias"]


def test_the_authors_checkpoints_load_and_compute_the_same(tmp_path, authors):
    assert len(authors) == 122
    torch.save(authors, tmp_path / "cp_last.pth.tar")
    mean, std = AUTHORS_INPUT[10]
    model = build_model("resnet18", 10, norm="iabn", correction=1, mean=mean, std=std)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_weights(model, tmp_path / "cp_last.pth.tar")
    assert torch.equal(model.layer3[0].downsample[1].bias, authors["layer3.0.shortcut.1._bn.bias"])
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), authors_forward(authors, x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("built_with", "message"),
    [
        ({"norm": "bn"}, r"its layers are IABN of alpha=4, correction=1, but the model has BatchNorm layers"),
        (
            {"norm": "iabn"},
            r"the model has IABN layers of alpha=4, correction=0: convert_iabn",
        ),
    ],
)
def test_other_norm_layers_than_the_files_are_said(tmp_path, authors, built_with, message):
    torch.save(authors, tmp_path / "w.pt")
    mean, std = AUTHORS_INPUT[10]
    with pytest.warns(UserWarning, match=message) as caught:
        load_weights(build_model("resnet18", 10, mean=mean, std=std, **built_with), tmp_path / "w.pt")
    assert len(caught) == 1


def test_another_input_normalisation_than_the_authors_is_said(tmp_path, authors):
    torch.save(authors, tmp_path / "w.pt")
    model = build_model("resnet18", 10, norm="iabn", correction=1)
    message = r"mean \(0.4914, 0.4822, 0.4465\).*the model has other values"
    with pytest.warns(UserWarning, match=message) as caught:
        load_weights(model, tmp_path / "w.pt")
    assert len(caught) == 1


def test_the_card_of_a_file_tells_of_its_norm_layers(saved, tmp_path):
    path, _ = saved
    with pytest.warns(UserWarning, match=r"IABN of alpha=2.5, correction=1, but the model has BatchNorm"):
        load_weights(small(), path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_weights(small(norm="iabn", alpha=2.5, correction=1), path)
        save_checkpoint(tmp_path / "bn.safetensors", small(), {})
        load_weights(small(norm="iabn"), tmp_path / "bn.safetensors")


def test_weights_without_batch_counters(tmp_path):
    state = {n: t for n, t in disturb(small()).state_dict().items() if "num_batches" not in n}
    torch.save(state, tmp_path / "w.pt")
    load_weights(small(), tmp_path / "w.pt")


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("bomb-went-off",))


def test_no_code_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Bomb()}, "w.pt")
    with pytest.raises(ValueError, match=r"w\.pt cannot be read as a file of weights only"):
        load_weights(small(), "w.pt")
    assert [p.name for p in tmp_path.iterdir()] == ["w.pt"]


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x04K\x01.", b"PK\x03\x04"])
def test_unreadable_weights(tmp_path, content):
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"w\.pt"):
        load_weights(small(), tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("content", "message"), [([1], "but a list"), ({"a": 1}, "'a' is a int"), ({}, "but a dict")]
)
def test_files_that_hold_no_state_dict(tmp_path, content, message):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=rf"w\.pt holds no state dict.*{message}"):
        load_weights(small(), tmp_path / "w.pt")


def test_other_class_count_and_new_head(tmp_path):
    source = disturb(build_model("digits_cnn", 7, width=4))
    torch.save(source.state_dict(), tmp_path / "w.pt")
    target = small()
    before = {n: t.clone() for n, t in target.state_dict().items()}
    with pytest.raises(ValueError, match=r"w\.pt has 7 classes, the model 10; new_head=True"):
        load_weights(target, tmp_path / "w.pt")
    assert all(torch.equal(before[n], t) for n, t in target.state_dict().items())
    load_weights(target, tmp_path / "w.pt", new_head=True)
    assert torch.equal(target.fc.weight, before["fc.weight"])
    assert torch.equal(target.features[0].weight, source.features[0].weight)


def test_other_architecture(tmp_path):
    torch.save(build_model("resnet20", 10).state_dict(), tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"w\.pt does not fit the network: .*missing.*not the model's"):
        load_weights(small(), tmp_path / "w.pt")
    torch.save(build_model("resnet18", 10, width=4).state_dict(), tmp_path / "w.pt")
    with pytest.raises(
        ValueError, match=r"differ in shape \(conv1.weight \(4, 3, 3, 3\) against \(8, 3, 3, 3\)"
    ):
        load_weights(build_model("resnet18", 10, width=8), tmp_path / "w.pt")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomically(path, b"old")

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_batch_norm_weights_start_a_network_with_group_norm(tmp_path):
    with_batch_norm, with_group_norm = (
        build_model("digits_cnn", 3, width=4, norm=norm) for norm in ("bn", "gn")
    )
    for p in with_batch_norm.parameters():
        torch.nn.init.normal_(p)
    torch.save(with_batch_norm.state_dict(), tmp_path / "bn.pt")
    with pytest.warns(
        UserWarning, match=r"bn\.pt: its layers are BatchNorm, the model's are not: train the model"
    ):
        load_weights(with_group_norm, tmp_path / "bn.pt")
    for (name, ours), theirs in zip(
        with_group_norm.named_parameters(), with_batch_norm.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs), name


def test_saving_one_stream_leaves_the_unfinished_file_of_another_alone(tmp_path):
    method = Source(build_model("digits_cnn", 3, width=4))
    other, own = tmp_path / ".cam.1.77-88.part", tmp_path / ".cam.77-88.part"
    for path in (other, own):
        path.write_bytes(b"unfinished")
    save_state(tmp_path / "cam", method)
    assert other.exists()
    assert not own.exists()

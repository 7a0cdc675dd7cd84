import copy

import pytest
import torch
from networks import images, make, network
from torch import nn

import note_tta as tta
from note_tta.methods import note
from note_tta.methods.norm import affine_parameters, norm_layers, running_statistics
from note_tta.methods.objectives import entropy


def close(a, b):
    if isinstance(a, torch.Tensor):
        if a.is_floating_point():
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
        else:
            assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            close(a[key], b[key])
    else:
        assert a == b


def fed(sizes, count=1000, **keywords):
    method = make("note", memory=tta.PBRS(64, torch.Generator().manual_seed(7)), **keywords)
    x, logits = images(count, seed=3), []
    while len(x):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        logits.append(method(x[:size]))
        x = x[size:]
    return torch.cat(logits), method


@pytest.mark.parametrize("sizes", [[1], [7], [64], [200], [1, 63, 65, 0, 130, 7, 300]])
def test_batch_boundaries_make_no_difference(sizes):
    expected, whole = fed([1000], lr=1e-2, momentum=0.1)
    logits, method = fed(sizes, lr=1e-2, momentum=0.1)
    assert torch.equal(logits.argmax(1), expected.argmax(1))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    close(method.state_dict(), whole.state_dict())
    assert method.counters["updates"] == 1000 // 64


def by_the_book(model, x, interval, memory, lr, momentum):
    """NOTE written down again: one sample at a time, whole-model switches, autograd on everything."""
    model = copy.deepcopy(model)
    affine = [p for m in model.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    optimizer = torch.optim.Adam(affine, lr=lr)
    logits = []
    for i in range(len(x)):
        model.eval()
        with torch.no_grad():
            out = model(x[i : i + 1])
        logits.append(out)
        memory.add(x[i], int(out.argmax()))
        if (i + 1) % interval == 0:
            for m in model.modules():
                if isinstance(m, nn.BatchNorm2d):
                    m.train()
                    m.momentum = momentum
            p = model(memory.inputs()).softmax(1)
            optimizer.zero_grad()
            (-(p * p.log()).sum(1)).mean().backward()
            optimizer.step()
    return torch.cat(logits), model.eval()


@pytest.mark.parametrize("norm", ["bn", "iabn"])
def test_equals_the_method_written_down_again(norm):
    x = images(300)
    expected, trained = by_the_book(network(norm), x, 50, tta.PBRS(40), 1e-2, 0.1)
    method = tta.NOTE(network(norm), tta.PBRS(40), interval=50, lr=1e-2, momentum=0.1)
    torch.testing.assert_close(method(x), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(method.model.state_dict(), trained.state_dict(), atol=1e-4, rtol=1e-4)


def test_only_norm_statistics_and_affine_parameters_change():
    from note_tta.models import build_model

    torch.manual_seed(0)
    model = build_model("resnet20", num_classes=10, norm="iabn")
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    may_change = affine_parameters(norm_layers(model)) | running_statistics(norm_layers(model))
    method = tta.NOTE(model, tta.PBRS(8), interval=8)
    method(torch.rand(20, 3, 32, 32))
    changed = {key for key, tensor in model.state_dict().items() if not torch.equal(tensor, before[key])}
    assert changed == set(may_change)
    method.reset()
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_one_forward_pass_a_sample_and_one_over_memory_an_update():
    method = make("note", memory=tta.PBRS(32), interval=32)
    seen = []
    method.model.register_forward_hook(lambda module, args, out: seen.append(len(args[0])))
    method(images(100))
    assert sum(seen) == 100 + 3 * 32
    seen.clear()
    method(images(1))
    assert seen == [1]


def test_no_gradient_is_computed_for_what_is_not_learned():
    method = make("note", memory=tta.PBRS(32), interval=32)
    touched = []
    for name, p in method.model.named_parameters():
        p.register_hook(lambda grad, name=name: touched.append(name))
    method(images(32))
    assert set(touched) == set(affine_parameters(norm_layers(method.model)))


def test_the_prediction_returned_is_the_one_stored():
    method = make("note", memory=tta.FIFO(40))
    logits = method(images(40))
    assert method.memory.labels() == logits.argmax(1).tolist()


def test_entropy_averaged_over_classes_is_a_weight_decay_times_the_classes(monkeypatch):
    summed, _ = fed([256], count=256, lr=1e-2, weight_decay=0.05 * 4)
    monkeypatch.setattr(note, "entropy", lambda logits: entropy(logits) / 4)
    averaged, _ = fed([256], count=256, lr=1e-2, weight_decay=0.05)
    undecayed, _ = fed([256], count=256, lr=1e-2, weight_decay=0.0)
    torch.testing.assert_close(averaged, summed, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(averaged, undecayed, atol=1e-3)


def test_dropout_stays_off_in_an_update():
    a, b = make("note"), make("note")
    torch.manual_seed(0)
    a(images(64))
    torch.manual_seed(1)
    b(images(64))
    close(a.state_dict(), b.state_dict())


def test_a_memory_of_one_leaves_statistics_alone_and_still_steps():
    method = make("note", memory=tta.PBRS(1), interval=3)
    stats = {k: v.clone() for k, v in running_statistics(norm_layers(method.model)).items()}
    weight = method.model[1].weight.clone()
    method(images(3))
    assert all(torch.equal(v, stats[k]) for k, v in running_statistics(norm_layers(method.model)).items())
    assert not torch.equal(method.model[1].weight, weight) and method.counters["updates"] == 1


def test_another_spatial_size_is_refused_until_reset():
    method = make("note")
    method(images(5))
    before = method.state_dict()
    with pytest.raises(ValueError, match=r"the memory holds samples of shape \(3, 8, 8\), got \(3, 16, 16\)"):
        method(torch.rand(2, 3, 16, 16))
    close(method.state_dict(), before)
    method.reset()
    assert method(torch.rand(2, 3, 16, 16)).shape == (2, 5)


@pytest.mark.parametrize("where", ["parameters", "statistics"])
def test_an_update_that_comes_out_non_finite_is_rolled_back_whole(where):
    method = make("note", memory=tta.PBRS(16), interval=16)
    method(images(16))
    good = method.state_dict()
    if where == "parameters":
        method.model[-1].register_forward_hook(
            lambda module, args, out: out * torch.inf if torch.is_grad_enabled() else None
        )
    else:
        method.model[0].register_forward_hook(
            lambda module, args, out: out * 3e38 if torch.is_grad_enabled() else None
        )
    method(images(16, seed=9))
    after = method.state_dict()
    assert method.counters["rejected_updates"] == 1 and method.counters["updates"] == 1
    close(after["model"], good["model"])
    close(after["parts"]["optimizer"], good["parts"]["optimizer"])
    assert len(method.memory) == 0


def test_rejected_samples_do_not_advance_the_interval():
    method = make("note", memory=tta.PBRS(8), interval=8)
    x = images(12)
    x[:4] = torch.nan
    method(x[:11])
    assert method.counters["updates"] == 0
    method(x[11:])
    assert method.counters["updates"] == 1


def test_the_papers_ablations_are_plain_constructions():
    x = images(70)
    for method in (
        tta.Source(network("iabn")),
        tta.NOTE(network("bn")),
        tta.NOTE(network("iabn"), tta.Reservoir(64)),
        tta.NOTE(tta.convert_iabn(network("bn"), alpha=0)),
        tta.Source(tta.convert_iabn(network("bn"))),
        tta.NOTE(tta.convert_iabn(network("bn"))),
    ):
        assert torch.isfinite(method(x)).all()


def test_layers_without_affine_parameters_still_move_their_statistics():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Flatten(), nn.Linear(144, 5)
    )
    method = tta.NOTE(tta.convert_iabn(model), interval=10)
    method(images(10))
    assert method.model[1].num_batches_tracked == 1 and method.counters["updates"] == 1


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"interval": 0}, "interval must be at least 1, got 0"),
        ({"momentum": 1.5}, r"momentum must be in \[0, 1\], got 1.5"),
        ({"lr": 0}, "lr must be greater than 0, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("note", **keywords)


def test_models_it_cannot_adapt_are_refused():
    with pytest.raises(ValueError, match="has no BatchNorm layer to adapt: use Source, LAME or CoTTA"):
        tta.NOTE(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="layer '1' keeps no running statistics"):
        tta.NOTE(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)))


def test_holds_little_beyond_the_model_and_its_samples():
    method = make("note")
    method(images(64))
    held = sum(t.numel() for t in method.state_dict()["model"].values())
    assert held == sum(
        t.numel() for t in (affine_parameters(method._layers) | running_statistics(method._layers)).values()
    )

import copy
import warnings

import pytest
import torch
from networks import images, make, network, without_batch_norm
from torch import nn

import note_tta as tta
from note_tta.methods import note
from note_tta.methods.norm import affine_parameters, norm_tensors, running_statistics
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
    """An independent NOTE: one sample at a time, the whole model switched between modes, autograd on everything."""
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
    method = tta.NOTE(model, tta.PBRS(8), interval=8)
    method(torch.rand(20, 3, 32, 32))
    adapted = method.model.state_dict()
    changed = {key for key, tensor in adapted.items() if not torch.equal(tensor, before[key])}
    assert changed == set(norm_tensors(model))
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    shared = {k for k, t in model.state_dict().items() if t.data_ptr() == adapted[k].data_ptr()}
    assert shared == set(before) - changed
    method.reset()
    assert all(torch.equal(tensor, before[key]) for key, tensor in method.model.state_dict().items())


def test_one_forward_pass_per_sample_and_one_over_memory_per_update():
    method = make("note", memory=tta.PBRS(32), interval=32)
    seen = []
    run = method.backbone.run
    method.backbone.run = lambda module, x: seen.append((len(x), torch.is_grad_enabled())) or run(module, x)
    method(images(100))
    assert seen == [(32, False), (32, True)] * 3 + [(4, False)]
    seen.clear()
    method(images(1))
    assert seen == [(1, False)]


def test_no_gradient_is_computed_for_what_is_not_learned():
    model = network("iabn")
    assert all(p.requires_grad for p in model.parameters())
    method = tta.NOTE(model, tta.PBRS(32), interval=32)
    with_gradient = []
    step = tta.methods.draft.Draft.step

    def looked_at(draft, loss=None):
        step(draft, loss)
        with_gradient.append({n for n, p in draft.module.named_parameters() if p.grad is not None})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tta.methods.draft.Draft, "step", looked_at)
        method(images(32))
    assert with_gradient == [set(affine_parameters(model))]
    assert all(p.grad is None for p in model.parameters())


def test_the_prediction_returned_is_the_one_stored():
    method = make("note", memory=tta.FIFO(40))
    logits = method(images(40))
    assert method.memory.labels() == logits.argmax(1).tolist()


class KeepsItsAnswer(nn.Module):
    """A network that writes every answer into the same tensor, as a CUDA graph does."""

    def __init__(self):
        super().__init__()
        self.inner, self.answer = network("iabn"), None

    def forward(self, x):
        logits = self.inner(x)
        if self.answer is None or torch.is_grad_enabled():
            self.answer = logits
            return logits
        return self.answer.copy_(logits)


@pytest.mark.parametrize("name", ["note", "source", "bn_stats"])
def test_an_answer_stays_when_the_model_uses_its_tensor_again(name):
    method = make(name, model=KeepsItsAnswer())
    first = method(images(1, seed=1))
    kept = first.clone()
    method(images(1, seed=2))
    assert torch.equal(first, kept)


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
    stats = {k: v.clone() for k, v in running_statistics(method.model).items()}
    weight = method.model[1].weight.clone()
    method(images(3))
    assert all(torch.equal(v, stats[k]) for k, v in running_statistics(method.model).items())
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


class Spoiling(nn.Module):
    """A layer whose output overflows whenever a graph is built, as in an update."""

    def __init__(self, factor):
        super().__init__()
        self.factor, self.on = factor, [False]

    def forward(self, x):
        return x * self.factor if torch.is_grad_enabled() and self.on[0] else x

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize(("place", "factor"), [(10, torch.inf), (1, 3e38)], ids=["parameters", "statistics"])
@pytest.mark.parametrize("delay", [0, 4, 15])
def test_an_update_that_comes_out_non_finite_is_rolled_back_whole(place, factor, delay):
    layers = list(network("iabn"))
    spoiling = Spoiling(factor)
    layers.insert(place, spoiling)
    method = tta.NOTE(nn.Sequential(*layers), tta.PBRS(16), interval=16, delay=delay)
    method(images(16 + delay))
    good = method.state_dict()
    spoiling.on[0] = True
    method(images(16, seed=9))
    after = method.state_dict()
    assert method.counters["rejected_updates"] == 1 and method.counters["updates"] == 1
    close(after["model"], good["model"])
    close(after["parts"]["optimizer"], good["parts"]["optimizer"])
    assert len(method.memory) == 0


def test_updates_rejected_in_a_row_are_warned_of_once():
    layers = [*network("iabn"), Spoiling(torch.inf)]
    layers[-1].on[0] = True
    method = tta.NOTE(nn.Sequential(*layers), interval=4)
    with pytest.warns(RuntimeWarning, match="the last 3 updates were not finite") as caught:
        method(images(40))
    assert len(caught) == 1 and method.counters["rejected_updates"] == 10


def test_nan_in_a_row_is_warned_of_once():
    method = make("note")
    with pytest.warns(RuntimeWarning, match="the last 64 samples were answered with NaN") as caught:
        for _ in range(100):
            method(torch.full((1, 3, 8, 8), torch.nan))
    assert len(caught) == 1
    assert caught[0].filename == __file__  # the caller's line, not one of the library or torch


def test_a_model_without_iabn_is_said_to_be_the_ablation_once():
    with pytest.warns(
        RuntimeWarning, match="PBRS-only ablation: for NOTE, use tta.NOTE\\(tta.convert_iabn\\(model\\)\\)"
    ):
        method = tta.NOTE(network("bn"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.fork()(images(70))
        tta.NOTE(network("iabn"))


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
        ({"lr": 0}, "lr must be greater than 0 and finite, got 0"),
        ({"lr": float("inf")}, "lr must be greater than 0 and finite, got inf"),
        ({"weight_decay": -1}, "weight_decay must be at least 0 and finite, got -1"),
        ({"delay": 65}, "delay must be from 0 to 64, got 65"),
        ({"learn_from": 0}, "learn_from must be at least 1, got 0"),
        ({"warm_start": -1}, "warm_start must be at least 0, got -1"),
        ({"executor": "fork"}, "executor must be one of .*, got 'fork'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("note", **keywords)


def test_models_it_cannot_adapt_are_refused():
    with pytest.raises(
        ValueError, match="has no norm layer with affine parameters to adapt: use Source, LAME"
    ):
        tta.NOTE(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="layer '1' has no running statistics"):
        tta.NOTE(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)))


def test_holds_little_beyond_the_model_and_its_samples():
    """A new method or fork holds the adapted tensors twice (source values and its own), and no frozen ones."""
    model = network("iabn")
    method = tta.NOTE(model)
    own = {id(t.untyped_storage()): t.untyped_storage().nbytes() for t in model.state_dict().values()}
    held = [*method.tensors.values(), *method.backbone.module.state_dict().values()]
    extra = sum(t.numel() * t.element_size() for t in held if t.data_ptr() not in addresses(model))
    adapting = sum(t.numel() * t.element_size() for t in norm_tensors(model).values())
    assert extra == 2 * adapting and own


def addresses(model):
    return {t.data_ptr() for t in model.state_dict().values()}


def test_warm_start_moves_the_statistics_fast_at_first_and_calmly_later():
    method = make("note", warm_start=4, momentum=0.15, interval=8, memory=tta.PBRS(8))
    paper = make("note", momentum=0.15, interval=8, memory=tta.PBRS(8))
    rates = []
    for _ in range(4):
        rates.append(method.current_momentum())
        method(images(8))
    assert rates == [1 / 5, 1 / 6, 0.15, 0.15] and paper.current_momentum() == 0.15
    reference = network("iabn")
    reference[1].train().momentum = 1 / 5
    reference(images(8))
    twin = make("note", warm_start=4, interval=8, memory=tta.PBRS(8))
    twin(images(8))
    torch.testing.assert_close(twin.model[1].running_mean, reference[1].running_mean)


def test_an_update_looks_at_learn_from_samples_drawn_anew():
    method = make("note", learn_from=5, interval=16)
    seen = []
    learn = method.learn
    method.learn = lambda draft, x: seen.append(x) or learn(draft, x)
    method(images(64))
    held = {tuple(sample.flatten().tolist()) for sample in images(64)}
    assert [len(x) for x in seen] == [5] * 4
    assert all(tuple(sample.flatten().tolist()) in held for x in seen for sample in x)
    assert not torch.equal(seen[1], seen[2])
    whole = make("note", learn_from=1000)
    assert torch.equal(whole(images(200)), make("note")(images(200)))


@pytest.mark.parametrize("delay", [1, 5, 15])
def test_a_delayed_update_is_the_same_one_taking_effect_later(delay):
    """By hand: after every 16th sample an update is computed from the current state and used `delay` later."""
    x = images(120)
    method = make("note", memory=tta.PBRS(16), interval=16, delay=delay, lr=1e-2, momentum=0.2)
    worker = make("note", memory=tta.PBRS(16), interval=16, lr=1e-2, momentum=0.2)
    answers, pending = [], None
    for index, sample in enumerate(x):
        if pending is not None and pending[0] == index:
            worker.load_state_dict(
                worker.state_dict()
                | {"model": pending[1]["model"]}
                | {"parts": worker.state_dict()["parts"] | {"optimizer": pending[1]["parts"]["optimizer"]}}
            )
            pending = None
        paused = worker.fork()
        paused.pause()
        answers.append(paused(sample[None]))
        if (index + 1) % 16 == 0:
            ahead = worker.fork()
            ahead(sample[None])  # reads and takes effect at once, in the fork
            pending = (index + 1 + delay, ahead.state_dict())
            kept = worker.state_dict()
            parts = ahead.state_dict()["parts"] | {"optimizer": kept["parts"]["optimizer"]}
            worker.load_state_dict(kept | {"parts": parts})
        else:
            worker(sample[None])
    torch.testing.assert_close(method(x), torch.cat(answers), atol=1e-5, rtol=1e-5)
    assert method.counters["updates"] == (len(x) - delay) // 16


def test_a_memory_given_to_two_methods_is_refused():
    memory = tta.PBRS(8)
    tta.NOTE(network("iabn"), memory)
    with pytest.raises(ValueError, match="this PBRS is in use by another method: each method needs its own"):
        tta.NOTE(network("iabn"), memory)


def test_a_states_settings_are_taken_over_all_of_them():
    saver = make("note", interval=16, lr=1e-2, momentum=0.2, learn_from=8, delay=3)
    saver(images(50))
    taker = make("note")
    taker(images(64, seed=5))  # it has learned by its own settings before
    taker.load_state_dict(saver.state_dict())
    assert taker.settings() == saver.settings()
    assert torch.equal(taker(images(70, seed=2)), saver(images(70, seed=2)))
    taker.reset()
    assert torch.equal(taker(images(130)), make("note")(images(130)))
    with pytest.raises(ValueError, match="interval must be at least 1, got 0"):
        taker.load_state_dict(saver.state_dict() | {"settings": saver.settings() | {"interval": 0}})


@pytest.mark.parametrize("kind", ["layer", "group", "rms", "mixed"])
def test_models_without_batch_norm_adapt_by_the_step_alone(kind):
    torch.manual_seed(0)
    norm = {
        "layer": nn.LayerNorm([8, 6, 6]),
        "group": nn.GroupNorm(2, 8),
        "rms": nn.RMSNorm([8, 6, 6]),
        "mixed": nn.Sequential(nn.GroupNorm(2, 8), tta.IABN2d(8)),
    }[kind]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).eval()
    method = tta.NOTE(model, interval=8)
    method(images(8))
    adapted = method.model.state_dict()
    changed = {k for k, t in model.state_dict().items() if not torch.equal(t, adapted[k])}
    assert changed == set(norm_tensors(model))
    assert torch.equal(method(images(3, seed=2)), method.model(images(3, seed=2)).detach())


@pytest.mark.parametrize("name", ["note", "tent"])
def test_a_channels_last_group_norm_learns_as_a_contiguous_one(name):
    learned = []
    for layout in (torch.contiguous_format, torch.channels_last):  # torch crashed in the second one
        model = without_batch_norm("gn").to(memory_format=layout)
        method = tta.METHODS[name](model)
        method(images(64).contiguous(memory_format=layout))
        learned.append(method.tensors)
    for key, tensor in learned[0].items():
        torch.testing.assert_close(learned[1][key], tensor, atol=1e-6, rtol=1e-5)

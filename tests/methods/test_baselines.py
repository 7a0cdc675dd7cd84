from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from networks import images, make, network
from plain import with_batch_statistics
from torch import nn

import note_tta as tta
from note_tta.methods.augment import random_view
from note_tta.methods.lame import assign, nearest_neighbours


def test_bn_stats_normalises_with_the_batch():
    x = images(30)
    method = make("bn_stats")
    before = {k: v.clone() for k, v in method.model.state_dict().items()}
    torch.testing.assert_close(method(x), with_batch_statistics(network())(x).detach())
    assert all(torch.equal(v, before[k]) for k, v in method.model.state_dict().items())


@pytest.mark.parametrize("name", ["tent", "pl", "note_iid"])
def test_batch_learners_take_one_adam_step_a_batch(name):
    method = make(name)
    reference = with_batch_statistics(network()) if name != "note_iid" else network("iabn")
    layers = [m for m in reference.modules() if hasattr(m, "num_features")]
    optimizer = torch.optim.Adam([p for m in layers for p in m.parameters()], lr=1e-3)
    for x in images(192).split(64):
        if name == "note_iid":
            [m.train() for m in layers]
        logits = reference(x)
        if name == "pl":
            loss = F.nll_loss(logits.log_softmax(1), logits.argmax(1))
        else:
            loss = torch.distributions.Categorical(logits=logits).entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(method(x), logits.detach(), atol=1e-4, rtol=1e-4)
    ours = [p for m in method.model.modules() if hasattr(m, "num_features") for p in m.parameters()]
    theirs = [p for m in layers for p in m.parameters()]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert method.counters["updates"] == 3


def test_tent_takes_sgd_too():
    method = make("tent", lr=0.00025, optimizer="sgd")
    weight = method.model[1].weight.clone()
    method(images(64))
    assert not torch.equal(method.model[1].weight, weight)
    with pytest.raises(ValueError, match="optimizer must be 'adam' or 'sgd', got 'lion'"):
        make("tent", optimizer="lion")


@pytest.mark.parametrize("name", ["bn_stats", "tent", "pl", "cotta", "note_iid"])
def test_a_single_value_a_channel_falls_back_to_the_running_statistics(name):
    torch.manual_seed(0)
    norm = tta.IABN2d(4) if name == "note_iid" else nn.BatchNorm2d(4)
    model = nn.Sequential(nn.Conv2d(3, 4, 8), norm, nn.Flatten(), nn.Linear(4, 5)).eval()
    x = images(1)
    expected = model(x).detach()
    torch.testing.assert_close(
        tta.METHODS[name](model, **({"p_th": 0.0} if name == "cotta" else {}))(x), expected
    )


def test_onda_moves_statistics_every_ten_samples():
    method = make("onda")
    reference = network()
    x = images(25)
    torch.testing.assert_close(method(x[:10]), reference(x[:10]).detach())
    reference[1].train(), reference[4].train()
    reference(x[:10])
    torch.testing.assert_close(method.model.state_dict(), reference.state_dict())
    reference.eval()
    torch.testing.assert_close(method(x[10:15]), reference(x[10:15]).detach())
    method(x[15:])
    assert method.counters["updates"] == 2


def test_onda_does_not_depend_on_batch_boundaries():
    x = images(95)
    a, b = make("onda"), make("onda")
    torch.testing.assert_close(a(x), torch.cat([b(part) for part in x.split(7)]), atol=1e-5, rtol=1e-4)


class TestLAME:
    @pytest.mark.parametrize("symmetric", [False, True])
    def test_the_answers_are_the_fixed_point(self, symmetric):
        torch.manual_seed(0)
        log_p = (3 * torch.randn(40, 6)).log_softmax(1)
        affinity = nearest_neighbours(torch.randn(40, 8), 5, symmetric=symmetric)
        final = assign(log_p, affinity, 100)
        assert not torch.allclose(assign(log_p, affinity, 3), final, atol=1e-3)
        torch.testing.assert_close(final, (log_p + affinity @ final.exp()).log_softmax(1), atol=1e-4, rtol=0)

    def test_the_energy_never_rises_if_the_affinity_is_symmetric(self):
        torch.manual_seed(0)
        log_p = (3 * torch.randn(40, 6)).log_softmax(1).double()
        affinity = nearest_neighbours(torch.randn(40, 8), 5, symmetric=True).double()

        def energy(log_z):
            z = log_z.exp()
            return (z * (log_z - log_p)).sum() - (z * (affinity @ z)).sum() / 2

        energies = [float(energy(assign(log_p, affinity, steps))) for steps in range(1, 30)]
        assert all(b <= a + 1e-12 for a, b in pairwise(energies))

    def test_affinity_ties_each_sample_to_its_nearest_by_angle(self):
        features = torch.tensor([[1.0, 0.0], [10.0, 0.1], [0.0, 1.0], [0.1, 5.0]])
        expected = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]).float()
        torch.testing.assert_close(nearest_neighbours(features, 1), expected)

    def test_ties_go_one_way_as_in_lames_own_code_and_both_ways_where_asked(self):
        features = torch.tensor([[1.0, 0.0], [0.9, 0.5], [0.5, 0.9]])
        one_way = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 1, 0]]).float()
        torch.testing.assert_close(nearest_neighbours(features, 1), one_way)
        torch.testing.assert_close(nearest_neighbours(features, 1, symmetric=True), (one_way + one_way.T) / 2)
        x = images(40)
        assert not torch.equal(make("lame")(x), make("lame", symmetric=True)(x))

    def test_neighbours_pull_an_outvoted_sample_over(self):
        log_p = torch.tensor([[0.9, 0.1]] * 5 + [[0.45, 0.55]]).log()
        assert assign(log_p, nearest_neighbours(torch.ones(6, 3), 5), 100).argmax(1).tolist() == [0] * 6

    def test_returns_finite_log_assignments(self):
        out = make("lame")(100 * images(20))
        assert torch.isfinite(out).all() and (out <= 0).all()
        torch.testing.assert_close(out.exp().sum(1), torch.ones(20))

    def test_a_single_sample_keeps_its_prediction(self):
        x = images(1)
        torch.testing.assert_close(make("lame")(x), network()(x).log_softmax(1).detach())

    def test_the_classifier_may_be_named_and_must_exist(self):
        assert make("lame").classifier == "9"
        assert make("lame", classifier="7")(images(3)).shape == (3, 5)
        with pytest.raises(ValueError, match="no module 'head' to take features from"):
            make("lame", classifier="head")
        with pytest.raises(ValueError, match=r"has no nn\.Linear: give the name of its classifier"):
            tta.LAME(nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten()))
        with pytest.raises(ValueError, match="neighbours must be at least 1, got 0"):
            make("lame", neighbours=0)

    def test_the_model_it_hands_out_has_no_hook(self):
        model = network()
        method = tta.LAME(model)
        method(images(3))
        for module in (model, method.model):
            assert not module[-1]._forward_pre_hooks
        assert all(a is b for a, b in zip(model.parameters(), method.model.parameters(), strict=True))

    def test_functional_heads_and_nested_models_work(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(12, 5)
                self.stem = nn.Conv2d(3, 12, 3)

            def forward(self, x):
                return self.head(self.stem(x).mean((2, 3)))

        assert tta.LAME(Model())(images(7)).shape == (7, 5)


class TestCoTTA:
    def student(self, method):
        return method.student.tensors

    def test_answers_with_the_teacher_and_learns_on_all_parameters(self):
        method = make("cotta", p_th=0.0, restore=0.0)
        x = images(64)
        before = {k: v.clone() for k, v in method.model.named_parameters()}
        torch.testing.assert_close(method(x), with_batch_statistics(network())(x).detach())
        for name, teacher in method.model.named_parameters():
            student = self.student(method)[name]
            assert not torch.equal(student, before[name])
            torch.testing.assert_close(teacher, 0.999 * before[name] + 0.001 * student)

    def test_an_unsure_source_model_asks_for_augmented_views(self):
        sure, unsure = make("cotta", p_th=0.0), make("cotta", p_th=1.0, augmentations=4)
        x = images(16).clamp(0, 1)
        calls = []
        predict = unsure.predict
        unsure.predict = lambda view: calls.append(view) or predict(view)
        assert not torch.allclose(sure(x), unsure(x))
        assert len(calls) == 4 and not torch.equal(calls[0], calls[1])

    def test_weights_return_to_the_source_with_the_given_probability(self):
        method = make("cotta", p_th=0.0, restore=1.0)
        before = {k: v.clone() for k, v in method.model.named_parameters()}
        method(images(32))
        assert all(torch.equal(p, before[k]) for k, p in self.student(method).items())

    def test_about_one_weight_in_a_hundred_returns(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 400), nn.BatchNorm1d(400), nn.Linear(400, 5))
        before = model[1].weight.clone()
        method = tta.CoTTA(model, p_th=0.0)
        method(images(32))
        share = (self.student(method)["1.weight"] == before).float().mean()
        assert 0.008 < share < 0.012

    def test_time_series_are_not_augmented(self):
        model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 5))
        method = tta.CoTTA(model, p_th=1.0)
        calls = []
        predict = method.predict
        method.predict = lambda x: calls.append(1) or predict(x)
        method(torch.randn(6, 3, 8))
        assert calls == [1]

    def test_works_without_batch_norm(self):
        method = tta.CoTTA(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))
        assert method(images(4)).shape == (4, 5)

    @pytest.mark.parametrize(
        ("keywords", "message"), [({"p_th": 2}, "p_th must be in"), ({"augmentations": 0}, "at least 1")]
    )
    def test_settings_that_make_no_sense_are_refused(self, keywords, message):
        with pytest.raises(ValueError, match=message):
            make("cotta", **keywords)


class TestRandomView:
    @pytest.mark.parametrize("channels", [1, 3])
    def test_stays_an_image_and_repeats_with_the_seed(self, channels):
        x = torch.rand(4, channels, 16, 16)
        views = [random_view(x, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
        assert views[0].shape == x.shape and views[0].min() >= 0 and views[0].max() <= 1
        assert torch.equal(views[0], views[1]) and not torch.allclose(views[0], views[2], atol=0.02)

    def test_is_a_mild_change(self):
        x = torch.nn.functional.interpolate(torch.rand(8, 3, 4, 4), size=32, mode="bilinear")
        views = torch.stack([random_view(x, torch.Generator().manual_seed(seed)) for seed in range(64)])
        either = torch.minimum(
            (views - x).abs().mean((1, 2, 3, 4)), (views - x.flip(-1)).abs().mean((1, 2, 3, 4))
        )
        assert either.mean() < 0.25

    def test_a_grey_image_of_three_channels_stays_grey(self):
        x = torch.rand(2, 1, 12, 12).expand(2, 3, 12, 12)
        view = random_view(x, torch.Generator().manual_seed(2))
        assert (view - view.mean(1, keepdim=True)).abs().max() < 0.05

import pytest
import torch
from networks import WITHOUT_BATCH_NORM, images, make, network, without_batch_norm
from plain import affine
from torch import nn

import note_tta as tta
from note_tta.checks import check_method


def converted(**keywords):
    return tta.convert_unmix_tns(network(), **keywords)


def test_answers_and_moves_as_the_converted_model_in_train_mode_does():
    method, reference = make("unmix_tns"), converted()
    layers = [m for m in reference if isinstance(m, tta.UnMixTNS2d)]
    for x in images(250).split(100):
        [m.train() for m in layers]
        torch.testing.assert_close(method(x), reference(x).detach())
    torch.testing.assert_close(method.model[4].component_var, reference[4].component_var)
    assert method.counters["updates"] == 3


def test_the_callers_layers_stay_and_the_rest_is_shared():
    model = network()
    method = tta.UnMixTNS(model)
    method(images(64))
    assert type(model[1]) is nn.BatchNorm2d and set(dict(model[1].named_buffers())) == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }
    assert method.model[0].weight is model[0].weight and method.model[1].weight is model[1].weight


def test_without_momentum_it_is_batch_free_and_nothing_moves():
    x = images(100)
    whole, parts = make("unmix_tns", momentum=0.0), make("unmix_tns", momentum=0.0)
    torch.testing.assert_close(whole(x), torch.cat([parts(part) for part in x.split(7)]))
    assert torch.equal(whole.model[1].component_mean, converted()[1].component_mean)


def test_one_component_is_instance_norm():
    method = make("unmix_tns", components=1)
    reference = tta.convert_iabn(network(), alpha=0)
    torch.testing.assert_close(method(images(30)), reference(images(30)).detach(), atol=1e-5, rtol=1e-4)


def test_an_answer_does_not_depend_on_the_others_of_its_batch():
    x = images(20)
    torch.testing.assert_close(make("unmix_tns")(x)[:3], make("unmix_tns")(x[:3]))


def test_paused_it_moves_nothing():
    method = make("unmix_tns")
    method.pause()
    before = method.state_dict()["model"]
    method(images(64))
    assert all(torch.equal(t, before[name]) for name, t in method.tensors.items())


def test_a_state_belongs_to_the_components_it_began_with():
    method = make("unmix_tns")
    method(images(64))
    other = make("unmix_tns", generator=torch.Generator().manual_seed(5))
    with pytest.raises(ValueError, match="belongs to another model"):
        other.load_state_dict(method.state_dict())


@pytest.mark.parametrize(
    "name", ["tent", "sar", "roid", "eta", "note", "rotta", "sotta", "pl", "cotta", "onda"]
)
def test_the_layers_go_together_with_other_methods(name):
    model = converted()
    start = model[1].component_mean.clone()
    keywords = {"sotta": {"confidence": 0.0}, "eta": {"margin": 2.0}, "sar": {"margin": 2.0}}.get(name, {})
    method = make(name, model=model, **keywords)
    x = images(64).clamp(0, 1)
    method(x)
    assert method.counters["updates"] == (6 if name == "onda" else 1)
    assert torch.equal(model[1].component_mean, start), "the caller's stay"
    assert not torch.equal(method.model[1].component_mean, start), "the method's moved"
    method.reset()
    assert torch.equal(method.model[1].component_mean, start)


@pytest.mark.parametrize("name", ["tent", "note"])
def test_other_methods_keep_the_contract_on_the_layers(name):
    check_method(tta.METHODS[name], model=converted())


def test_tent_on_the_layers_takes_its_step_under_their_statistics():
    method, reference = make("tent", model=converted()), converted()
    optimizer = torch.optim.Adam(affine(reference), lr=1e-3)
    for x in images(192).split(64):
        [m.train() for m in reference if isinstance(m, tta.UnMixTNS2d)]
        p = reference(x).softmax(1)
        optimizer.zero_grad()
        (-(p * p.log()).sum(1)).mean().backward()
        optimizer.step()
        method(x)
    torch.testing.assert_close(affine(method.model), affine(reference), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(
        method.model[4].component_mean, reference[4].component_mean, atol=1e-4, rtol=1e-3
    )


@pytest.mark.parametrize("kind", [kind for kind in WITHOUT_BATCH_NORM if kind != "mixed"])
def test_models_without_batch_norm_are_refused(kind):
    with pytest.raises(
        ValueError, match=r"replaces BatchNorm2d layers, but .* has none: use NOTE, SAR or RoTTA"
    ):
        tta.UnMixTNS(without_batch_norm(kind))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"components": 0}, "components must be at least 1, got 0"),
        ({"momentum": -0.1}, "momentum must be in"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("unmix_tns", **keywords)


def test_what_is_not_a_model_is_refused():
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        tta.UnMixTNS("model")
    with pytest.raises(ValueError, match="has no shape yet"):
        tta.UnMixTNS(nn.Sequential(nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d()))


def test_batch_norms_over_features_are_the_callers_and_stay_as_they_are():
    torch.manual_seed(0)
    maps = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*maps, nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    method, x = tta.UnMixTNS(model), torch.rand(16, 3, 8, 8)
    alone = method.fork()(x[:1])
    torch.testing.assert_close(method(x)[:1], alone)  # also that layer is not normalised by the batch
    method(x)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from note_tta import streams
from note_tta.experiments import worker
from note_tta.experiments.cell import PROTOCOLS, Stream, options
from note_tta.experiments.experiment import Point, stream_at, template_for
from note_tta.experiments.source_models import SourceModels, find_checkpoint
from note_tta.experiments.store import Store, cumulative_error
from note_tta.experiments.worker import Worker, build_method, draw_stream
from note_tta.memory import FIFO, PBRS, Reservoir
from note_tta.models import build_model
from note_tta.nn import IABN2d

TIMES = {"seconds", "samples_per_second", "latency_ms"}


def cell(tiny, row="note", dataset="cifar10", domain="fog", **fixed):
    fixed = {"model": "resnet18", "width": tiny.width, **fixed}
    return template_for(dataset, row, fixed.pop("point", None), domain=domain, **fixed)


def test_a_result_says_what_came_out_and_where_it_came_from(tiny):
    tiny.save_models("cifar10")
    record = Worker(tiny.settings).run(cell(tiny))
    assert record.result["samples"] == tiny.samples
    assert 0 <= record.result["error"] <= 100
    assert sum(record.result["wrong"]) == round(record.result["error"] * tiny.samples / 100)
    assert cumulative_error(record.result)[-1] == pytest.approx(record.result["error"], abs=0.01)
    assert len(record.result["labels"]) == tiny.samples
    assert record.result["mean_run_length"] > 2
    assert record.result["counters"]["updates"] == 1
    assert len(record.result["per_class_error"]) == 3
    wanted = {
        "version",
        "commit",
        "dirty",
        "torch",
        "numpy",
        "python",
        "machine",
        "threads",
        "time",
        "device",
    }
    assert record.provenance.keys() >= wanted | {"wall_seconds", "data", "checkpoint"}
    assert record.provenance["data"]["fingerprint"].startswith("sha256:")
    assert record.provenance["checkpoint"]["name"] == "cifar10-resnet18-w4-iabn-seed0.safetensors"
    assert record.provenance["checkpoint"]["card"]["clean_error"] == 12.5


def test_a_result_is_small(tiny):
    tiny.save_models("cifar10")
    store = Store(tiny.folder / "results")
    store.save(Worker(tiny.settings).run(cell(tiny)))
    assert sum(path.stat().st_size for path in store.folder.iterdir()) < 2_500


@pytest.mark.parametrize("row", ["note", "cotta", "iabn_rs", "tent"])
def test_the_same_cell_gives_the_same_result_whatever_ran_before(tiny, row):
    tiny.save_models("cifar10")
    worker = Worker(tiny.settings)
    worker.run(cell(tiny, "tent", domain="gaussian_noise"))
    after = worker.run(cell(tiny, row)).result
    fresh = Worker(tiny.settings).run(cell(tiny, row)).result
    assert {k: v for k, v in after.items() if k not in TIMES} == {
        k: v for k, v in fresh.items() if k not in TIMES
    }


@pytest.mark.parametrize("row", ["source", "note"])
def test_a_filter_uses_the_answers_of_the_run_before(tiny, row, monkeypatch):
    tiny.save_models("cifar10")
    worker = Worker(tiny.settings)
    whole = worker.run(cell(tiny, f"{row}+filter")).result
    inner = worker.run(cell(tiny, row)).result
    monkeypatch.setattr("note_tta.experiments.worker.build_method", None)  # nothing is run again
    replayed = worker.run(cell(tiny, f"{row}+filter")).result
    assert {k: v for k, v in replayed.items() if k not in TIMES} == {
        k: v for k, v in whole.items() if k not in TIMES
    }
    assert replayed["seconds"] > inner["seconds"]


def test_a_filter_does_not_use_the_answers_of_another_run(tiny):
    tiny.save_models("cifar10")
    worker = Worker(tiny.settings)
    fresh = worker.run(cell(tiny, "note+filter")).result
    worker.run(cell(tiny, "note", seed=1))
    worker.run(cell(tiny, "pbrs"))
    after = worker.run(cell(tiny, "note+filter")).result
    assert after["predictions_sha256"] == fresh["predictions_sha256"]


def test_each_domain_and_seed_has_its_own_order_and_all_methods_share_it(tiny):
    labels = torch.arange(90) % 3
    orders = {
        (domain, seed, row): tuple(
            draw_stream(cell(tiny, row, domain=domain, seed=seed).stream, {domain: labels}).index.tolist()
        )
        for domain in ("fog", "gaussian_noise")
        for seed in (0, 1)
        for row in ("source", "note")
    }
    assert len(set(orders.values())) == 4
    assert orders["fog", 0, "source"] == orders["fog", 0, "note"]


@pytest.mark.parametrize("stream", ["dirichlet", "iid", "sorted", "chronological"])
def test_every_sample_comes_once(stream):
    delta = 0.1 if stream == "dirichlet" else None
    order = draw_stream(Stream("cifar10", "fog", stream, delta=delta), {"fog": torch.arange(30) % 3})
    assert sorted(order.index.tolist()) == list(range(30))


def test_only_the_first_samples_of_each_domain_are_used(tiny):
    record = Worker(tiny.settings).run(stream_at("cifar10", Point(), domain="fog", samples=30))
    assert record.result["samples"] == 30


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_goes_over_several_domains_and_tells_each_visits_error(tiny, protocol):
    tiny.save_models("cifar10", norms=("bn",))
    visits = 3 if protocol == "recurring" else 1
    stream = Stream("cifar10", "fog+gaussian_noise", protocol, samples=60, visits=visits)
    record = Worker(tiny.settings).run(dataclasses.replace(cell(tiny, "source"), stream=stream))
    errors = record.result["visits"]
    assert list(errors) == ["fog", "gaussian_noise"]
    assert {len(of_domain) for of_domain in errors.values()} == {visits}
    if protocol in ("continual", "recurring", "mixed"):
        assert record.result["samples"] == 120 * visits
        mean = sum(sum(of_domain) for of_domain in errors.values()) / (2 * visits)
        assert record.result["error"] == pytest.approx(mean, abs=1e-3)


def test_eata_gets_a_random_part_of_the_source_and_petta_all_in_its_own_order(monkeypatch):
    labels = torch.arange(2500) // 250  # sorted by class
    domain = SimpleNamespace(labels=labels)
    domain.batches = lambda order=slice(None): [(labels[order], None)]
    given = {}
    for name in ("eata", "petta"):
        monkeypatch.setattr(
            worker, "find_method", lambda name: lambda model, source, **_: given.update({name: list(source)})
        )
        build_method(template_for("cifar10", name), None, SimpleNamespace(domain=lambda _: domain))
    (some,), (all_of_them,) = given["eata"], given["petta"]
    assert torch.equal(all_of_them, labels)
    assert len(some) == 2000 and some[:64].unique().tolist() == list(range(10))


def test_the_names_of_protocols_are_those_of_the_streams():
    assert tuple(streams.PROTOCOLS) == PROTOCOLS


def test_a_stream_alone_needs_no_model(tiny):
    record = Worker(tiny.settings).run(stream_at("cifar10", Point(), domain="fog"))
    assert record.result.keys() == {"samples", "labels", "mean_run_length"}
    assert "checkpoint" not in record.provenance


def test_the_seeds_own_checkpoint_is_taken_where_there_is_one(tiny):
    tiny.save_models("cifar10", seeds=(0, 1))
    worker = Worker(tiny.settings)
    used = [worker.run(cell(tiny, seed=seed)).provenance["checkpoint"]["name"] for seed in (0, 1, 2)]
    assert [name.split("-")[-1] for name in used] == [f"seed{n}.safetensors" for n in (0, 1, 0)]


def test_a_missing_checkpoint_is_told_with_the_command_that_makes_it(tiny):
    with pytest.raises(
        FileNotFoundError, match="train it with: note-tta train --dataset cifar10 --model resnet18"
    ):
        find_checkpoint(cell(tiny), tiny.folder)


def test_other_training_data_has_source_models_of_its_own(tmp_path):
    usual = template_for("extrasensory", "source", domain="4FC", model="sensor_cnn2")
    drawn = dataclasses.replace(
        usual, stream=dataclasses.replace(usual.stream, data_options=options(source_seed=1))
    )
    (tmp_path / "extrasensory-sensor_cnn2-bn-seed0.safetensors").touch()
    assert find_checkpoint(usual, tmp_path).is_file()
    with pytest.raises(FileNotFoundError, match="--norm bn --data-option source_seed=1"):
        find_checkpoint(drawn, tmp_path)
    own = tmp_path / "extrasensory-source_seed1-sensor_cnn2-bn-seed0.safetensors"
    own.touch()
    assert find_checkpoint(drawn, tmp_path) == own


def test_iabn_star_converts_a_batchnorm_model_at_test_time(tiny):
    tiny.save_models("cifar10")
    models, data = SourceModels(tiny.settings.models_folder), Worker(tiny.settings).dataset("cifar10")
    converted, origin = models.get(cell(tiny, "iabn_star"), data)
    assert any(isinstance(module, IABN2d) for module in converted.modules())
    assert "-bn-" in origin["name"]
    plain, _ = models.get(cell(tiny, "source"), data)
    assert not any(isinstance(module, IABN2d) for module in plain.modules())


def test_norm_options_reach_the_layers(tiny):
    tiny.save_models("cifar10")
    changed = dataclasses.replace(cell(tiny), norm_options=options(correction=1))
    models, data = SourceModels(tiny.settings.models_folder), Worker(tiny.settings).dataset("cifar10")
    model, _ = models.get(changed, data)
    assert {(m.alpha, m.correction) for m in model.modules() if isinstance(m, IABN2d)} == {(4.0, 1)}
    model, _ = models.get(cell(tiny, "in_pbrs"), data)
    assert {m.alpha for m in model.modules() if isinstance(m, IABN2d)} == {0.0}


def test_options_make_the_method(tiny):
    model = build_model("resnet20", 3, width=4)
    made = {row: build_method(cell(tiny, row), model) for row in ("note", "iabn_rs")}
    assert type(made["note"].memory) is PBRS
    assert type(made["iabn_rs"].memory) is Reservoir
    small = build_method(cell(tiny, point=Point(batch_size=16)), model)
    assert (small.memory.capacity, small.interval) == (16, 16)
    fifo = dataclasses.replace(cell(tiny), method_options=options(memory="fifo", capacity=8))
    assert type(build_method(fifo, model).memory) is FIFO


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'; known are source, bn_stats"),
        ({"method_options": options(memory="none")}, "memory must be pbrs, reservoir or fifo, got 'none'"),
        ({"method_options": options(depth=3)}, "note does not accept these options: depth"),
        ({"model": "resnet9"}, "unknown model 'resnet9'; known are resnet18"),
        ({"width": 8}, "no source model cifar10-resnet18-w8-iabn-seed0"),
        ({"stream": Stream("cifar10", "rain", "iid")}, "unknown domain 'rain' of cifar10"),
    ],
)
def test_what_does_not_fit_is_told(tiny, change, message):
    tiny.save_models("cifar10")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Worker(tiny.settings).run(dataclasses.replace(cell(tiny), **change))


def test_a_checkpoint_of_another_architecture_is_refused(tiny):
    tiny.save_models("cifar10")
    path = tiny.folder / "models" / "cifar10-resnet18-w4-bn-seed0.safetensors"
    other = dataclasses.replace(cell(tiny), checkpoint=str(path))
    with pytest.raises(
        ValueError, match="holds resnet18 of width 4 with bn, but resnet18 of width 4 with iabn"
    ):
        Worker(tiny.settings).run(other)


def test_a_checkpoint_of_another_class_count_is_refused(tiny):
    from note_tta.checkpoint import save_checkpoint

    path = tiny.folder / "many.safetensors"
    save_checkpoint(path, build_model("resnet18", 7, norm="iabn", width=4), {})
    with pytest.raises(ValueError, match="num_classes 7, but 3 are needed"):
        Worker(tiny.settings).run(dataclasses.replace(cell(tiny), checkpoint=str(path)))


def test_public_weights_without_a_card_load_into_the_named_network(tiny):
    path = tiny.folder / "public.pt"
    torch.save(build_model("resnet18", 3, width=4).state_dict(), path)
    public = dataclasses.replace(cell(tiny, "source"), checkpoint=str(path))
    record = Worker(tiny.settings).run(public)
    assert record.provenance["checkpoint"]["name"] == "public.pt"

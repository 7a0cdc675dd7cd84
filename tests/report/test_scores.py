from dataclasses import replace
from statistics import pstdev

import pytest

from note_tta.experiments.experiment import Point
from note_tta.report.coverage import Coverage, coverage_text
from note_tta.report.paper_numbers import Number
from note_tta.report.scores import Scores, Setup, average

SETUP = Setup("cifar10", "resnet18")


def scored(fakes, errors, **fixed):
    """Scores whose NOTE row on CIFAR10-C has the errors `{(domain, seed): error}`."""
    domains, seeds = sorted({d for d, _ in errors}), sorted({s for _, s in errors})
    targets = {"cifar10": domains}
    cells = fakes.cells("table1", datasets=["cifar10"], targets=targets, seeds=seeds, rows=["note"], **fixed)
    kept = {c: errors.get((c.stream.domain, c.stream.seed)) for c in cells if c.stream.order == "dirichlet"}
    return Scores([fakes.record(c, error) for c, error in kept.items() if error])


def test_mean_over_domains_and_spread_over_seeds(fakes):
    scores = scored(fakes, {("fog", 0): 10.0, ("snow", 0): 20.0, ("fog", 1): 14.0, ("snow", 1): 24.0})
    score = scores.of(SETUP.row("note"))
    assert score.number == Number(17.0, pstdev([15.0, 19.0]))
    assert score.by_domain["fog"] == Number(12.0, 2.0)
    assert score.coverage == (None, ("fog", "snow"), (0, 1), False)


def test_one_seed_has_no_spread(fakes):
    assert scored(fakes, {("fog", 0): 10.0}).of(SETUP.row("note")).number == Number(10.0, None)


def test_a_seed_that_a_stopped_run_left_behind_does_not_count(fakes):
    scores = scored(fakes, {("fog", 0): 10.0, ("snow", 0): 20.0, ("fog", 1): 90.0})
    score = scores.of(SETUP.row("note"))
    assert score.number == Number(15.0, None)
    assert score.coverage.seeds == (0,)


def test_only_common_domains_are_averaged_where_seeds_differ(fakes):
    scores = scored(fakes, {("fog", 0): 10.0, ("snow", 0): 50.0, ("fog", 1): 20.0, ("frost", 1): 90.0})
    score = scores.of(SETUP.row("note"))
    assert score.coverage.domains == ("fog",)
    assert score.number.mean == 15.0


def test_the_longest_run_of_a_row_is_taken(fakes):
    cells = fakes.cells("table1", datasets=["cifar10"], seeds=(0,), rows=["note"])
    short = fakes.cells("table1", datasets=["cifar10"], seeds=(0,), rows=["note"], samples=100)
    scores = Scores([fakes.record(c, 10.0) for c in cells] + [fakes.record(c, 99.0) for c in short])
    assert scores.of(SETUP.row("note")).number.mean == 10.0


def test_rows_side_by_side_are_over_the_seeds_that_all_have(fakes):
    targets = {"cifar10": ["fog"]}
    records = []
    for row, seeds, samples in (("note", (0, 1), None), ("tent", (0,), None), ("cotta", (0, 1), 100)):
        cells = fakes.cells(
            "table1", datasets=["cifar10"], targets=targets, seeds=seeds, rows=[row], samples=samples
        )
        records += [fakes.record(c, 10.0 + 10 * c.stream.seed) for c in cells]
    scores = Scores(records)
    found = scores.together({row: SETUP.row(row) for row in ("note", "tent", "cotta", "source")})
    assert found["source"] is None
    assert {row: found[row].coverage.seeds for row in ("note", "tent")} == {"note": (0,), "tent": (0,)}
    assert found["note"].number == Number(10.0, None)
    assert found["cotta"].number == Number(15.0, 5.0)  # over other samples: nothing to share


def compared(fakes, *runs):
    """NOTE's and Source's errors in a pair, from runs `(row, samples, domains, seeds, error)`."""
    records = []
    for row, samples, domains, seeds, error in runs:
        cells = fakes.cells(
            "table3",
            datasets=["cifar10"],
            targets={"cifar10": domains},
            seeds=seeds,
            rows=[row],
            samples=samples,
        )
        records += [fakes.record(cell, error) for cell in cells]
    pair = Scores(records).pair(SETUP.row("note"), SETUP.row("source"))
    return pair and tuple((score.number.mean, score.coverage[:3]) for score in pair)


def test_two_rows_are_compared_over_the_domains_and_seeds_they_share(fakes):
    runs = (
        ("note", None, ["fog", "snow"], [0, 1], 10.0),
        ("note", None, ["frost"], [0, 1], 90.0),
        ("source", None, ["fog", "snow"], [1], 20.0),
    )
    over = (None, ("fog", "snow"), (1,))
    assert compared(fakes, *runs) == ((10.0, over), (20.0, over))


def test_two_rows_are_compared_on_streams_of_one_length_where_there_are(fakes):
    long, short = ("note", 5000, ["fog"], [0], 10.0), ("note", 500, ["fog"], [0], 15.0)
    over = (500, ("fog",), (0,))
    assert compared(fakes, long, short, ("source", 500, ["fog"], [0], 20.0)) == ((15.0, over), (20.0, over))


def test_streams_of_different_length_are_compared_before_fewer_domains(fakes):
    both = ["fog", "snow"]
    runs = (
        ("note", 5000, both, [0], 10.0),
        ("note", 500, ["fog"], [0], 15.0),
        ("source", 500, both, [0], 20.0),
    )
    assert compared(fakes, *runs) == (
        (10.0, (5000, ("fog", "snow"), (0,))),
        (20.0, (500, ("fog", "snow"), (0,))),
    )


def test_rows_that_share_nothing_are_not_compared(fakes):
    assert compared(fakes, ("note", None, ["fog"], [0], 10.0), ("source", None, ["fog"], [1], 20.0)) is None
    assert compared(fakes, ("note", None, ["fog"], [0], 10.0)) is None


def test_other_backbones_do_not_mix(fakes):
    scores = Scores(
        [fakes.record(c, 10.0) for c in fakes.cells("table1", datasets=["cifar10"], rows=["note"])]
        + [
            fakes.record(c, 90.0)
            for c in fakes.cells("table1", datasets=["cifar10"], rows=["note"], width=16)
        ]
    )
    assert scores.setups("cifar10") == [SETUP, Setup("cifar10", "resnet18", 16)]
    assert scores.of(SETUP.row("note")).number.mean == 10.0
    assert scores.of(Setup("cifar10", "resnet18", 16).row("note")).number.mean == 90.0


def test_streams_and_options_are_told_apart(fakes):
    scores = Scores(fakes.records("figure5a", "figure5b", "table3", seeds=(0,)))
    numbers = {
        scores.of(SETUP.row("note", point)).number.mean
        for point in (Point(), Point("iid"), Point(delta=10.0), Point(batch_size=16))
    }
    assert len(numbers) == 4
    assert scores.of(SETUP.row("iabn_rs")).number != scores.of(SETUP.row("note")).number


def test_source_domain_is_apart_from_the_targets(fakes):
    scores = Scores(fakes.records("table-source", datasets=["hapt"]))
    setup = Setup("hapt", "sensor_cnn4")
    assert scores.of(setup.row("source")).coverage.domains == ("user22", "user23")
    assert scores.of(setup.row("source"), source=True).coverage.domains == ("test",)


def test_rows_of_no_experiment_are_listed(fakes):
    known = fakes.cells("table1", datasets=["cifar10"], seeds=(0,), rows=["note"])
    odd = [replace(cell, method_options=(("weight_decay", 0.0005),)) for cell in known]
    more = fakes.cells("table1", datasets=["cifar10"], seeds=(1,), rows=["note"])
    records = [fakes.record(cell, 20.0) for cell in known] + [fakes.record(cell, 90.0) for cell in more]
    found = Scores(records + [fakes.record(cell, 21.0) for cell in odd]).others()
    assert [other.row.method_options for other in found] == [(("weight_decay", 0.0005),)] * 2
    assert [(other.score.number.mean, other.plain.number.mean) for other in found] == [(21.0, 20.0)] * 2


def test_rows_of_no_experiment_come_in_the_order_of_their_options(fakes):
    (cell,) = fakes.cells("figure-realtime", datasets=["hapt"], seeds=(0,), rows=["note"])[:1]
    settings = [
        {"lr": 0.5},
        {"lr": 0.5, "memory": "fifo"},
        {"momentum": 0.5},
        {"momentum": 0.5, "reach": 9},
    ]
    odd = [replace(cell, method_options=tuple(sorted(one.items()))) for one in settings]
    found = Scores([fakes.record(one, 20.0) for one in reversed(odd)]).others()
    assert [dict(other.row.method_options) for other in found] == settings


@pytest.mark.parametrize(
    ("setup", "label"),
    [
        (Setup("cifar10", "resnet18"), ""),
        (Setup("cifar10", "resnet20"), "resnet20"),
        (Setup("cifar10", "resnet18", 16), "resnet18, width 16"),
        (Setup("cifar10", "resnet18", None, "", (("severity", 3),)), "severity 3"),
    ],
)
def test_setup_in_words(setup, label):
    assert setup.label == label


def test_average_needs_every_number():
    assert average([Number(1.0), Number(3.0)]) == Number(2.0)
    assert average([Number(1.0), None]) is None
    assert average([]) is None


def test_a_stream_over_several_domains_counts_for_each(fakes):
    cells = fakes.cells("table1", datasets=["cifar10"], seeds=(0, 1), rows=["note"])
    practical = [
        replace(cell, stream=replace(cell.stream, domain="fog+snow", order="ptta", delta=None))
        for cell in cells
        if cell.stream.domain == "fog" and cell.stream.order == "dirichlet"
    ]
    records = [fakes.record(cell, 30.0 + cell.stream.seed) for cell in practical]
    for record in records:
        record.result["visits"] = {"fog": [10.0, 14.0], "snow": [40.0 + record.job.stream.seed, 44.0]}
    score = Scores(records).of(practical[0].row())
    assert score.coverage[:3] == (None, ("fog", "snow"), (0, 1))
    assert score.by_domain == {"fog": Number(12.0, 0.0), "snow": Number(42.25, 0.25)}
    assert score.number.mean == pytest.approx(27.125)


def test_a_regenerated_dataset_is_called_so(fakes):
    records = scored(fakes, {("fog", 0): 10.0, ("snow", 0): 20.0}).of(SETUP.row("note")).records
    records["fog"][0].provenance["data"]["origin"] = "regenerated"
    again = Scores([record for found in records.values() for record in found])
    assert again.of(SETUP.row("note")).coverage.regenerated


def test_a_network_without_batch_norm_is_beside_no_number_of_the_paper():
    assert Setup("cifar10", "resnet20").paper("correlated", "note") is not None
    assert Setup("cifar10", "vit_tiny").paper("correlated", "note") is None


def test_seeds_far_apart_are_listed_and_seeds_in_a_row_are_a_range():
    assert coverage_text("", Coverage(None, (), (3, 4, 5))) == "seeds 3–5"
    assert coverage_text("", Coverage(None, (), (0, 1, 10**20))) == "seeds 0, 1, 100000000000000000000"

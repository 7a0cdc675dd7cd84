import pytest

from note_tta.data import DATASETS
from note_tta.experiments.catalog import EXPERIMENTS, find
from note_tta.experiments.cell import Stream
from note_tta.experiments.experiment import Point, template_for
from note_tta.experiments.variants import DATASET_OPTIONS, VARIANTS, Variant
from note_tta.methods import METHODS, find_method
from note_tta.methods.states import keywords
from note_tta.recommended import WARM_START

IDS = [
    "table1",
    "table2",
    "table3",
    "table-iabn-star",
    "table-domains",
    "table-mnist",
    "table-ablation",
    "table-source",
    "table-hapt",
    "table-filter",
    "table-options",
    "table-ptta",
    "table-continual",
    "table-mixed",
    "table-recurring",
    "figure-recurring",
    "figure2",
    "figure4",
    "figure5a",
    "figure5b",
    "figure-cumulative",
    "figure-realtime",
    "table-methods",
]


def cells(name, dataset, targets=("a", "b"), seeds=(0,), **fixed):
    return EXPERIMENTS[name].cells(dataset, targets, seeds, model="m", **fixed)


def test_the_ids_are_these():
    assert list(EXPERIMENTS) == IDS


def test_an_unknown_id_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="unknown experiment 'table9'; known are table1, table2"):
        find("table9")


def test_table_1_runs_nine_methods_on_iid_and_eight_on_correlated_streams():
    made = cells("table1", "cifar10", targets=["fog"])
    assert len([cell for cell in made if cell.stream.order == "iid"]) == 9
    correlated = [cell for cell in made if cell.stream.order == "dirichlet"]
    assert len(correlated) == 8
    assert {cell.stream.delta for cell in correlated} == {0.1}


def test_every_domain_and_seed_has_its_cell():
    made = cells("table2", "harth", targets=["S008", "S018"], seeds=[0, 1, 2])
    assert len(made) == 8 * 2 * 3
    assert len(set(made)) == len(made)


def test_tables_share_cells():
    first = set(cells("table1", "cifar10"))
    assert set(cells("figure2", "cifar10")) < first
    shared = first & set(cells("figure5a", "cifar10"))
    assert {cell.method for cell in shared} >= {"source", "note", "tent"}
    assert set(cells("figure-realtime", "harth")) == set(cells("table2", "harth"))


@pytest.mark.parametrize(
    ("row", "norm", "method", "options", "norm_options"),
    [
        ("iabn", "iabn", "source", {}, {}),
        ("pbrs", "bn", "note", {}, {}),
        ("iabn_rs", "iabn", "note", {"memory": "reservoir"}, {}),
        ("in_pbrs", "in", "note", {}, {}),
        ("in_star_pbrs", "iabn*", "note", {}, {"alpha": 0.0}),
        ("iabn_star", "iabn*", "source", {}, {}),
        ("iabn_star_pbrs", "iabn*", "note", {}, {}),
    ],
)
def test_ablations_are_constructions_of_the_same_parts(row, norm, method, options, norm_options):
    cell = template_for("cifar10", row)
    assert (cell.norm, cell.method) == (norm, method)
    assert dict(cell.method_options) == options
    assert dict(cell.norm_options) == norm_options


@pytest.mark.parametrize(
    ("row", "dataset", "options"),
    [
        ("cotta", "cifar10", {}),
        ("cotta", "cifar100", {"p_th": 0.72}),
        ("cotta", "kitti", {"p_th": 0.55}),
        ("cotta", "imagenet", {"p_th": 0.1}),
        ("tent", "imagenet", {"optimizer": "sgd", "lr": 0.00025}),
        ("tent", "cifar10", {}),
        ("eata", "cifar10", {"optimizer": "adam", "lr": 0.001, "redundancy": 0.4, "weight": 1.0}),
        ("eta", "cifar100", {"optimizer": "adam", "lr": 0.001, "redundancy": 0.1}),
        ("eta", "imagenet", {}),
        ("sar", "cifar100", {"lr": 0.001}),
        ("sotta", "cifar100", {"confidence": 0.66}),
    ],
)
def test_what_is_set_by_dataset(row, dataset, options):
    assert dict(template_for(dataset, row).method_options) == options


@pytest.mark.parametrize("row", VARIANTS)
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "imagenet"])
def test_every_option_of_a_row_is_one_its_method_takes(row, dataset):
    cell = template_for(dataset, row)
    inner = find_method(cell.method.partition("+")[0])
    assert {name for name, _ in cell.method_options} <= {*keywords(inner)}


def test_a_protocol_is_one_stream_through_all_domains():
    made = cells("table-ptta", "cifar10", targets=["fog", "motion_blur"], seeds=[0, 1])
    assert {cell.stream.domain for cell in made} == {"motion_blur+fog"}
    assert {cell.stream.order for cell in made} == {"ptta"}
    assert {cell.method for cell in made} >= {*METHODS} - {"note_iid"}
    mixed = cells("table-mixed", "cifar10", targets=["fog", "motion_blur"])
    assert {(cell.stream.order, cell.stream.domain) for cell in mixed} == {
        ("mixed", "fog+motion_blur"),
        ("mixed-correlated", "fog+motion_blur"),
    }


def test_a_recurring_stream_is_visited_twenty_times():
    made = cells("table-recurring", "cifar10", targets=["fog"])
    assert {cell.stream.visits for cell in made} == {20}
    assert made == cells("figure-recurring", "cifar10", targets=["fog"])
    forms = {(cell.norm, cell.method) for cell in made if cell.method == "note"}
    assert forms == {("iabn", "note"), ("iabn*", "note"), ("bn", "note")}


def test_streams_can_be_chosen():
    assert {c.stream.order for c in cells("table1", "cifar10", streams=["correlated"])} == {"dirichlet"}
    assert {c.stream.order for c in cells("table-filter", "cifar10", streams=["iid"])} == {"iid"}


def test_the_filter_is_shown_around_source_and_around_note():
    made = cells("table-filter", "hapt", targets=["a"])
    assert {(cell.method, cell.norm) for cell in made} >= {
        ("source", "bn"),
        ("source+filter", "bn"),
        ("note", "iabn"),
        ("note+filter", "iabn"),
    }


def test_the_options_of_note_are_each_changed_alone():
    made = cells("table-options", "cifar10", targets=["a"])
    assert [dict(cell.method_options) for cell in made] == [
        {},
        {"delay": 64},
        {"learn_from": 16},
        {"warm_start": WARM_START},
    ]


def test_batch_size_is_notes_memory_and_interval():
    note = template_for("cifar10", "note", Point(batch_size=16))
    assert dict(note.method_options) == {"capacity": 16, "interval": 16}
    assert template_for("cifar10", "note", Point(batch_size=64)) == template_for("cifar10", "note")
    assert template_for("cifar10", "tent", Point(batch_size=16)).batch_size == 16


@pytest.mark.parametrize("row", ["source", "onda"])
def test_a_method_without_batches_has_one_cell_for_all_sizes(row):
    sizes = {template_for("cifar10", row, point) for point in EXPERIMENTS["figure5b"].points}
    assert len(sizes) == 1


def test_recorded_streams_have_no_iid_order():
    assert {cell.stream.order for cell in cells("table-domains", "harth")} == {"chronological"}
    assert {cell.stream.order for cell in cells("table-domains", "imagenet")} == {"sorted", "iid"}


def test_figure_4_needs_streams_alone_and_one_domain():
    made = cells("figure4", "cifar10", width=8, samples=50)
    assert {(type(stream), stream.domain, stream.samples) for stream in made} == {(Stream, "a", 50)}
    assert [stream.delta for stream in made] == [0.001, 0.01, 0.1, 1.0, 10.0, None]


def test_source_errors_include_the_source_domain():
    assert {cell.stream.domain for cell in cells("table-source", "hapt")} == {"test", "a", "b"}


def test_every_dataset_has_a_title_and_an_order():
    used = {dataset for experiment in EXPERIMENTS.values() for dataset in experiment.datasets}
    assert used == set(DATASETS)


def test_a_row_is_called_what_its_class_says():
    assert VARIANTS["bn_stats"].title == METHODS["bn_stats"].title == "BN Stats"
    assert (VARIANTS["rotta"].title, VARIANTS["pbrs"].title) == ("RoTTA", "PBRS")
    assert Variant("note+filter").title == "NOTE + filter"
    assert (Variant("note+filter").norm, Variant("tent").norm) == ("iabn", "bn")


def test_methods_for_images_have_no_cells_on_sensors():
    assert "rotta" in {cell.method for cell in cells("table-methods", "cifar10")}
    assert not {"rotta", "roid", "petta"} & {cell.method for cell in cells("table-methods", "hapt")}


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_methods_that_add_to_eta_select_samples_as_eta_does(dataset):
    selection = {key: DATASET_OPTIONS["eta", dataset][key] for key in ("optimizer", "lr", "redundancy")}
    for name in ("eata", "rdumb"):
        assert selection.items() <= DATASET_OPTIONS[name, dataset].items(), name


def test_unmix_tns_has_more_components_where_a_batch_holds_several_domains():
    components = {
        stream: dict(template_for("cifar100", "unmix_tns", Point(stream=stream)).method_options).get(
            "components"
        )
        for stream in ("ptta", "mixed", "mixed-correlated")
    }
    assert components == {"ptta": None, "mixed": 128, "mixed-correlated": 128}


class TestNetworksWithoutBatchNorm:
    @pytest.mark.parametrize(("model", "norm"), [("vit_tiny", "ln"), ("resnet20_gn", "gn")])
    def test_a_row_uses_the_networks_own_norm_layers(self, model, norm):
        made = EXPERIMENTS["table-methods"].cells("cifar10", ["fog"], [0], model=model)
        assert {cell.norm for cell in made} == {norm}
        assert {"source", "tent", "sar", "note"} <= {cell.method for cell in made}

    @pytest.mark.parametrize("name", ["table-methods", "table3", "table-iabn-star", "table-ptta"])
    def test_rows_that_need_batch_norm_are_left_out(self, name):
        made = EXPERIMENTS[name].cells("cifar10", ["fog"], [0], model="vit_tiny")
        assert not {"bn_stats", "onda", "unmix_tns", "note_iid"} & {cell.method for cell in made}
        assert len(made) == len(set(made))  # no row is another one under a second name

    def test_a_network_with_batch_norm_keeps_its_rows(self):
        made = EXPERIMENTS["table3"].cells("cifar10", ["fog"], [0], streams=["correlated"], model="resnet20")
        assert [cell.norm for cell in made] == ["bn", "iabn", "bn", "iabn", "iabn", "in"]

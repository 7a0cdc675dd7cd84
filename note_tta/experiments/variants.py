"""The rows of tables: a method, its source model, and the settings that differ from the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..names import METHOD_HOMES
from .cell import Options, options


@dataclass(frozen=True)
class Variant:
    """A row of a table: a method, its source model, and the settings that differ from the defaults."""

    method: str  # a name for `find_method`
    called: str = ""  # its name in tables; by default the method's title
    trained_with: str = ""  # the norm layers of the source model; by default those of the method's class
    method_options: Options = ()  # keywords of the method
    norm_options: Options = ()  # `alpha` and `correction` of the IABN layers

    @property
    def title(self) -> str:
        """Its name in tables."""
        from ..methods import method_title

        return self.called or method_title(self.method)

    @property
    def norm(self) -> str:
        """The norm layers of its source model."""
        from ..methods import method_class

        return self.trained_with or method_class(self.method).trained_with


VARIANTS = {name: Variant(name) for name in METHOD_HOMES} | {
    "iabn": Variant("source", "IABN", "iabn"),
    "pbrs": Variant("note", "PBRS", "bn"),
    "iabn_rs": Variant("note", "IABN+RS", "iabn", method_options=options(memory="reservoir")),
    "in_pbrs": Variant("note", "IN+PBRS", "in"),
    "in_star_pbrs": Variant("note", "IN*+PBRS", "iabn*", norm_options=options(alpha=0.0)),
    "iabn_star": Variant("source", "IABN*", "iabn*"),
    "iabn_star_pbrs": Variant("note", "IABN*+PBRS", "iabn*"),
    "source+filter": Variant("source+filter", "Source + filter (ours)"),
    "note+filter": Variant("note+filter", "NOTE + filter (ours)"),
    "adapt": Variant("adapt"),
    "note_delay": Variant("note", "NOTE, delay=64 (ours)", method_options=options(delay=64)),
    "note_learn_from": Variant("note", "NOTE, learn_from=16 (ours)", method_options=options(learn_from=16)),
    "note_warm_start": Variant("note", "NOTE, warm_start=10 (ours)", method_options=options(warm_start=10)),
}
"""Every row of every table by name: the methods, the paper's ablations, and our combinations."""

BASELINES = ("source", "bn_stats", "onda", "pl", "tent", "lame", "cotta")
METHOD_ROWS = (*BASELINES, "note")
ABLATION_ROWS = ("source", "iabn", "pbrs", "iabn_rs", "note", "in_pbrs")

FILTER_ROWS = ("source", "source+filter", "lame", "note", "note+filter", "adapt")
OPTION_ROWS = ("note", "note_delay", "note_learn_from", "note_warm_start")
_SINCE = tuple(name for name in METHOD_HOMES if name not in (*METHOD_ROWS, "note_iid"))
_FORMS_AND_OURS = ("note", "iabn_star_pbrs", "pbrs", "note+filter", "adapt")
PROTOCOL_ROWS = (*BASELINES, *_SINCE, "source+filter", *_FORMS_AND_OURS)
RECURRING_ROWS = ("source", "lame", "rotta", "sotta", "unmix_tns", "rdumb", "petta", *_FORMS_AND_OURS)

AS_ABLATION = (("note", "IABN+PBRS"),)
FORMS_OF_NOTE = (("iabn_star_pbrs", "NOTE, IABN swapped in"), ("pbrs", "NOTE, BatchNorm only"))

_ADAM = {"optimizer": "adam", "lr": 0.001}

# Settings per dataset that differ from the defaults, from the papers or else from the authors' code.
DATASET_OPTIONS: dict[tuple[str, str], Mapping[str, Any]] = {
    ("cotta", "cifar100"): {"p_th": 0.72},
    ("cotta", "imagenet"): {"p_th": 0.1},
    ("cotta", "kitti"): {"p_th": 0.55},
    ("tent", "imagenet"): {"optimizer": "sgd", "lr": 0.00025},
    ("sotta", "cifar100"): {"confidence": 0.66},
    ("sotta", "imagenet"): {"confidence": 0.33},
    ("eta", "cifar10"): {**_ADAM, "redundancy": 0.4},
    ("eta", "cifar100"): {**_ADAM, "redundancy": 0.1},
    ("eata", "cifar10"): {**_ADAM, "redundancy": 0.4, "weight": 1.0},
    ("eata", "cifar100"): {**_ADAM, "redundancy": 0.1, "weight": 1.0},
    ("rdumb", "cifar10"): {**_ADAM, "redundancy": 0.4},
    ("rdumb", "cifar100"): {**_ADAM, "redundancy": 0.1},
    ("sar", "cifar10"): {"lr": 0.001},
    ("sar", "cifar100"): {"lr": 0.001},
    ("roid", "cifar10"): _ADAM,
    ("roid", "cifar100"): _ADAM,
    ("petta", "imagenet"): {"loss": "ce"},
    ("unmix_tns", "imagenet"): {"batch_size": 16},
}

# The same per protocol: its authors give UnMix-TNS more components where a batch holds several domains.
PROTOCOL_OPTIONS: dict[tuple[str, str], Mapping[str, Any]] = {
    ("unmix_tns", "mixed"): {"components": 128},
    ("unmix_tns", "mixed-correlated"): {"components": 128},
}

"""Tables of all methods and all datasets, made from their classes and records."""

from __future__ import annotations

from markdown_table import markdown_table

from note_tta.data import DATASETS
from note_tta.families import FAMILIES
from note_tta.methods import METHODS, Method

NORMS = {"": "", "any": "norm layers", "batch": "BatchNorm", "IABN": "IABN"}


def method_table() -> str:
    """One row per method: what it needs, what it costs, and the licence of its authors' code."""
    heads = ("Method", "Name", "Needs", "Batch-free", "Passes", "Keeps", "Original code", "Paper")
    return markdown_table(
        heads,
        (
            (
                kind.title.replace("*", r"\*"),
                f"`{name}`",
                _needs(kind),
                "yes" if kind.batch_free else "no",
                kind.passes,
                kind.keeps,
                kind.licence or "–",
                kind.citation or "–",
            )
            for name, kind in METHODS.items()
        ),
        words=len(heads),
    )


def method_entries() -> str:
    """An entry of the reference for each method."""
    return "\n".join(f"::: note_tta.{kind.__name__}" for kind in METHODS.values())


def _needs(kind: type[Method]) -> str:
    needs = (
        NORMS[kind.needs_norm],
        "images" if kind.needs_images else "",
        "source samples" if kind.needs_source else "",
    )
    return ", ".join(filter(None, needs)) or "–"


def dataset_table() -> str:
    """One row per dataset."""
    heads = ("Dataset", "Name", "Classes", "Targets", "Correlated order", "Network", "Download")
    return markdown_table(
        heads,
        (
            (
                record.title,
                f"`{name}`",
                record.classes,
                len(record.targets),
                record.stream,
                f"`{record.network}`",
                " + ".join(archive.size for archive in record.archives) or "nothing",
            )
            for name, record in DATASETS.items()
        ),
        words=len(heads),
    )


def family_sections() -> str:
    """One section per family of models."""
    return "\n\n".join(
        f"### {family.title}\n\nSuch as {family.examples}.\n\n- **First**: {family.convert}\n"
        f"- **Works**: {family.works}\n- **Expect**: {family.expect}".replace("NOTE*", r"NOTE\*")
        for family in FAMILIES.values()
    )

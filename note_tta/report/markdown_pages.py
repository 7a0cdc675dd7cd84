"""The results as Markdown pages: an overview, and one per dataset with every table and figure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..data import DATASETS
from ..experiments.catalog import EXPERIMENTS
from ..experiments.experiment import Point
from .claims import CLAIMS, SIGNS, Claim, Ordering
from .coverage import coverage_text
from .figures import Figure
from .markdown_tables import LEGEND, escaped, markdown, number, table_line
from .paper_numbers import Number
from .scores import Other, Score, Scores, visit_errors
from .tables import Table, mean_run

BESIDE = ("table1", "table2", "table-hapt", "table-mnist", "table3", "table-ablation")
"""What the page shows beside the paper's numbers."""
BEYOND = (
    *("table-filter", "table-options", "table-ptta", "table-recurring", "figure-recurring"),
    *("table-continual", "table-mixed", "table-methods"),
)
"""What the page shows that the paper does not have."""

OWN_DATA = "own"
"""Stands for the data of a user, which are no dataset of ours: they share one page of details."""

_TOKEN = re.compile(r"\{[^{}@]*@[^{}]*\}")
_PARTS = re.compile(r"\{([\w+]+)@(\w+)(?:\.(\w+))?(?:\[([^]]+)\])?(?:/([\w-]+))?(?::(\w+))?\}")


@dataclass(frozen=True)
class Report:
    """Everything that a report shows of some results."""

    scores: Scores
    tables: dict[str, list[Table]]  # by experiment
    figures: dict[str, list[Figure]]  # by experiment
    claims: list[Claim]  # for every dataset and setup
    orders: list[Ordering]  # for every column
    others: list[Other]  # rows that are in no experiment

    @property
    def plain_claims(self) -> list[Claim]:
        """The claims on data with the paper's options."""
        titles = {setup.title for setup in self.scores.setups() if not setup.data_options}
        return [claim for claim in self.claims if claim.subject in titles]


def details_file(dataset: str) -> str:
    """The file of a dataset's page of details."""
    return f"details-{dataset}.md"


def details_title(dataset: str) -> str:
    """The title of a dataset's page of details."""
    return "Your own data" if dataset == OWN_DATA else DATASETS[dataset].title


def results_page(
    report: Report, datasets: Sequence[str], notes: str = "", archive: Report | None = None
) -> str:
    """The overview: claims with verdicts, findings, tables beside the paper's, and what goes beyond the paper.

    The findings are `notes`, written by hand and `filled_in`. Each of `datasets` has a page of details. The verdicts of
    an earlier version get their own section.
    """
    lines = ["# Results"]
    if report.plain_claims:
        lines += ["", "## The paper's claims", "", *_board(report.plain_claims, down=True)]
    pages = ", ".join(f"[{details_title(name)}]({details_file(name)})" for name in datasets)
    lines += ["", f"The evidence for each verdict, every table by domain, and the figures: {pages}."]
    lines += ["", notes.strip()] if notes.strip() else []
    for heading, names in (("Beside the paper's numbers", BESIDE), ("Beyond the paper", BEYOND)):
        shown = [line for name in names for line in _shown(report, name)]
        lines += ["", f"## {heading}", *(["", LEGEND] if names is BESIDE else []), *shown] if shown else []
    if archive is not None and archive.plain_claims:
        lines += ["", f"## From the archive of {_version(archive)}", ""]
        lines += ["These runs used other streams. They are not part of the tables above."]
        lines += ["", *_board(archive.plain_claims, down=False)]
    return "\n".join(lines + _origin(report)) + "\n"


def details_page(report: Report, dataset: str, notes: str = "") -> str:
    """All details of a dataset: the claims with their evidence, every table and figure, and where they come from.

    The findings are `notes`, as on the overview.
    """
    lines = [f"# {details_title(dataset)} in detail"]
    if report.claims:
        lines += ["", "## The paper's claims", ""]
        lines += [f"- ({name}) {escaped(text)}" for name, text in CLAIMS.items()]
        lines += ["", *_board(report.claims, down=False), *_evidence(report.claims)]
    lines += ["", notes.strip()] if notes.strip() else []
    lines += ["", "## Tables and figures", "", LEGEND]
    for name, experiment in EXPERIMENTS.items():
        if report.tables[name] or report.figures[name]:
            lines += ["", f"### {experiment.title}"]
        for table in report.tables[name]:
            lines += ["", markdown(table).rstrip()]
        lines += _pictures(report.figures[name])
    if report.orders:
        lines += ["", "## The order of the methods", ""]
        lines += ["Lowest error first; agreement is Spearman's rank correlation with the paper's order."]
        lines += [line for order in report.orders for line in _order(order)]
    if report.others:
        lines += ["", "## Other runs", ""]
        lines += ["| Run | Error | Without the options | Over |", "|---|---:|---:|---|"]
        lines += [_other(other) for other in report.others]
    lines += ["", "## Source models", "", *_checkpoints(report.scores)]
    return "\n".join(lines + _origin(report)) + "\n"


def filled_in(notes: str, scores: Scores) -> str:
    """Fill in the numbers of hand-written notes: `{note@hapt}` becomes NOTE's error on HAPT.

    A token is `{row@dataset}`, where the row is one of `VARIANTS`; `{run@hapt}` is the mean run length. After the
    dataset there may follow, in this order:

    - `.model`: another network than the one with the most results
    - `[source_seed=0]`: an option of the data
    - `/stream`: another stream than the correlated one
    - `:domain`: one domain in place of the mean; or `:visit20`, a visit of a recurring stream

    Raises:
        ValueError: There is no such result, or it is not a token.
    """
    recurring = {point.stream: point for e in EXPERIMENTS.values() for point in e.points if point.visits > 1}

    def number_of(match: re.Match[str]) -> str:
        token = _PARTS.fullmatch(match[0])
        if token is None:
            raise ValueError(f"the notes have {match[0]}, which is not of the form {{row@dataset}}")
        row, dataset, model, option, stream, part = token.groups()
        setup = scores.main_setup(dataset, model, option or "")
        point = recurring.get(stream, Point(stream or "correlated"))
        score = None if setup is None else scores.of(setup.row("source" if row == "run" else row, point))
        parts = {"": score.number, **score.by_domain, **_by_visit(score)} if score else {}
        if score is None or (part or "") not in parts:
            raise ValueError(f"the notes ask for {match[0]}, and there is no such result")
        if row == "run":
            run = mean_run([score])
            return "–" if run is None else f"{run:.1f}"
        return number(parts[part or ""])

    return _TOKEN.sub(number_of, notes)


def _by_visit(score: Score) -> dict[str, Number]:
    """The errors of a recurring stream by visit, called `visit1` and so on."""
    recurring = all("visits" in record.result for found in score.records.values() for record in found)
    errors = visit_errors(score) if recurring else []
    return {f"visit{place}": Number(error) for place, error in enumerate(errors, 1)}


def _origin(report: Report) -> list[str]:
    lines = ["", "## Where this comes from", ""]
    lines += ["`note-tta report` writes this page from the result files; no number is typed by hand.", ""]
    return lines + [f"- {name}: {value}" for name, value in report.scores.facts()]


def _shown(report: Report, name: str) -> list[str]:
    """An experiment's tables and figures on the page; a table by domain shows only its average."""
    lines: list[str] = []
    for table in filter(_worth_showing, report.tables[name]):
        lines += ["", markdown(_average(table) if table.wide else table).rstrip()]
    return lines + _pictures(report.figures[name])


def _worth_showing(table: Table) -> bool:
    """Whether a table has the paper's data options and more rows than other tables have too."""
    measured = [row for row in table.rows if any(entry.ours for entry in table.entries(row))]
    return table.usual and (len(measured) > 2 or len(measured) == len(table.rows) > 1)


def _average(table: Table) -> Table:
    last = table.columns[-1]
    return replace(table, columns=(replace(last, title=DATASETS[last.dataset].title),), wide=False)


def _pictures(figures: Sequence[Figure]) -> list[str]:
    return [line for figure in figures for line in ("", f"![{figure.title}](figures/{figure.id}.svg)")]


def _version(report: Report) -> str:
    versions = {str(record.provenance.get("version", "")) for record in report.scores.records}
    return "version " + ", ".join(sorted(filter(None, versions)))


def _board(claims: Sequence[Claim], *, down: bool) -> list[str]:
    """The verdicts as signs: claims down with their texts and subjects across, or subjects down, for many of them."""
    signs = {(claim.id, claim.subject): SIGNS[claim.verdict] for claim in claims}
    subjects = list(dict.fromkeys(claim.subject for claim in claims))
    if down:
        rows = [[f"({name}) {escaped(CLAIMS[name])}", *(signs[name, s] for s in subjects)] for name in CLAIMS]
    else:
        rows = [[subject, *(signs[name, subject] for name in CLAIMS)] for subject in subjects]
    heads = ["", *subjects] if down else ["Claim", *(f"({name})" for name in CLAIMS)]
    lines = [table_line(heads), "|---|" + ":-:|" * (len(heads) - 1), *map(table_line, rows)]
    return [*lines, "", ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items()) + "."]


def _evidence(claims: Sequence[Claim]) -> Iterator[str]:
    found = {(claim.id, claim.subject): claim for claim in claims}
    for subject in dict.fromkeys(claim.subject for claim in claims):
        told = [found[name, subject] for name in CLAIMS]
        yield from ("", f"**{subject}**", "")
        yield from (f"- ({claim.id}) *{claim.verdict}*: {escaped(claim.evidence)}." for claim in told)


def _order(order: Ordering) -> list[str]:
    agreement = "" if order.agreement is None else f" (agreement {order.agreement:.2f})"
    lines = ["", f"**{order.subject}**{agreement}", "", f"- ours: {escaped(' < '.join(order.ours))}"]
    if order.apart:
        lines.append(f"- over other samples, so without a place: {escaped(', '.join(order.apart))}")
    if order.paper:
        lines.append(f"- the paper's: {escaped(' < '.join(order.paper))}")
    return lines


def _other(other: Other) -> str:
    over = coverage_text(other.row.stream.dataset, other.score.coverage)
    plain = number(other.plain.number if other.plain else None)
    return table_line([escaped(other.row.text), number(other.score.number), plain, over])


def _checkpoints(scores: Scores) -> list[str]:
    found = set()
    for checkpoint in [r.provenance["checkpoint"] for r in scores.records if "checkpoint" in r.provenance]:
        error = checkpoint.get("card", {}).get("clean_error")
        clean = f"{error:.2f} %" if isinstance(error, float | int) else "–"
        found.add(table_line([checkpoint["name"], f"`{checkpoint['fingerprint']}`", clean]))
    if not found:
        return ["None recorded."]
    lines = ["A fingerprint is of the weights, or, where it says `sha256`, of the whole file.", ""]
    return [*lines, "| Checkpoint | Fingerprint | Clean error |", "|---|---|---:|", *sorted(found)]

"""`note-tta reproduce`: a whole table or figure of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.catalog import EXPERIMENTS, find
from ._several_values import is_pair, taking_several

app = typer.Typer(add_completion=False)

_COMMAND = taking_several(
    {
        "--seeds": str.isdigit,
        "--dataset": lambda word: True,
        "--domains": lambda word: True,
        "--rows": lambda word: True,
        "--streams": lambda word: True,
        "--data-option": is_pair,
    },
    {"--ray": "local"},
    positional=EXPERIMENTS,
)


@app.command(cls=_COMMAND)
def reproduce(
    experiments: Annotated[list[str] | None, typer.Argument(help="Tables and figures; see --list.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List tables and figures, and stop.")] = False,
    dataset: Annotated[list[str] | None, typer.Option(help="Only these datasets.")] = None,
    seeds: Annotated[
        list[int] | None, typer.Option(help="One run of everything per seed; by default 0 1 2.")
    ] = None,
    domains: Annotated[list[str] | None, typer.Option(help="Only these corruptions or users.")] = None,
    rows: Annotated[list[str] | None, typer.Option(help="Only these rows, such as source or note.")] = None,
    streams: Annotated[list[str] | None, typer.Option(help="Only correlated or iid streams.")] = None,
    samples: Annotated[int | None, typer.Option(help="Only each domain's first so many samples.")] = None,
    model: Annotated[str | None, typer.Option(help="Backbone; by default the paper's.")] = None,
    width: Annotated[int | None, typer.Option(help="Channels of the backbone's first stage.")] = None,
    data_option: Annotated[
        list[str] | None, typer.Option(help="Of the dataset, such as severity=3 or imbalance=10.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
    models: Annotated[Path | None, typer.Option(help="Source models; by default <data root>/models.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Where the datasets are.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one per core.")] = None,
    device: Annotated[str | None, typer.Option(help="Where models run; by default CUDA if present.")] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="[ADDRESS]", help="Run on Ray: on this machine, or the cluster at an address."),
    ] = None,
) -> None:
    """Reproduce a table or a figure, and print it beside the paper's.

    A run is a grid of cells. What is done is skipped, so a stopped run goes on where it was when the same
    command is given again. Examples:

        note-tta reproduce --list

        note-tta reproduce table1 --dataset cifar10 --seeds 0 1 2

        note-tta reproduce table3 --dataset cifar10 --model resnet20 --domains fog frost --samples 2000
    """
    if list_them or not experiments:
        for experiment in EXPERIMENTS.values():
            typer.echo(f"{experiment.id:<16} {' '.join(experiment.datasets):<58} {experiment.title}")
        if not list_them:
            typer.echo("\nName one of these: note-tta reproduce table1", err=True)
        return
    chosen = [find(name) for name in experiments]

    from ..experiments.runner import plan
    from ..experiments.store import Store
    from ._cells import parse_options, run_and_report, settings

    where = settings(data_root, models, workers, device, ray)
    plans = [
        plan(
            experiment,
            where,
            datasets=dataset or (),
            seeds=seeds if seeds else (0, 1, 2),
            domains=domains or (),
            rows=rows or (),
            streams=streams or (),
            samples=samples,
            model=model,
            width=width,
            data_options=parse_options(data_option or [], "--data-option"),
        )
        for experiment in chosen
    ]
    for message in dict.fromkeys(message for one in plans for message in one.missing):
        typer.echo(f"left out: {message}", err=True)
    store = Store(results)
    cells = list(dict.fromkeys(cell for one in plans for cell in one.cells))
    run_and_report(cells, store, where, workers, ray)

    from ..report.build import make_report
    from ..report.markdown_tables import LEGEND, markdown

    report = make_report([store.load(cell) for cell in cells if cell in store])
    for experiment in chosen:
        for table in report.tables[experiment.id]:
            typer.echo(f"\n{markdown(table)}\n{LEGEND}")
    typer.echo(f"\nResults are in {results}; figures and a page: note-tta report {results} --out report")

"""`note-tta reproduce`: a whole table or figure of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.catalog import EXPERIMENTS, find
from ._options import DataOption, DataRoot, Device, Models, Ray, Results, Samples, Width, Workers
from ._several_values import taking_several

app = typer.Typer(add_completion=False)

_SEVERAL = ("--seeds", "--dataset", "--domains", "--rows", "--streams", "--data-option")


@app.command(cls=taking_several(_SEVERAL, EXPERIMENTS))
def reproduce(
    experiments: Annotated[list[str] | None, typer.Argument(help="Tables and figures; see --list.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List tables and figures, and stop.")] = False,
    dataset: Annotated[list[str] | None, typer.Option(help="Only these datasets.")] = None,
    seeds: Annotated[
        list[int] | None, typer.Option(help="Everything is run once per seed; by default 0 1 2.")
    ] = None,
    domains: Annotated[list[str] | None, typer.Option(help="Only these corruptions or users.")] = None,
    rows: Annotated[list[str] | None, typer.Option(help="Only these rows, such as source or note.")] = None,
    streams: Annotated[list[str] | None, typer.Option(help="Only correlated or iid streams.")] = None,
    samples: Samples = None,
    model: Annotated[str | None, typer.Option(help="Backbone; by default the paper's.")] = None,
    width: Width = None,
    data_option: DataOption = None,
    results: Results = Path("results"),
    models: Models = None,
    data_root: DataRoot = None,
    workers: Workers = None,
    device: Device = None,
    ray: Ray = None,
) -> None:
    """Reproduce a table or a figure, and print it next to the paper's numbers.

    A run is a grid of cells. Finished cells are skipped, so the same command continues a stopped run. Examples:

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
            seeds=seeds or (0, 1, 2),
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

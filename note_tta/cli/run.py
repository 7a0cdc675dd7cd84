"""`note-tta run`: one method on one stream, of the paper's data or your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..names import COMPOSITION_HOMES, DATASET_HOMES, METHOD_HOMES, WRAPPER_HOMES, check_known
from ._options import DataOption, DataRoot, Device, Models, Ray, Results, Samples, Width, Workers
from ._several_values import taking_several

app = typer.Typer(add_completion=False)


@app.command(cls=taking_several(("--domains", "--set", "--data-option")))
def run(
    method: Annotated[
        str,
        typer.Option(
            help=f"{' '.join([*METHOD_HOMES, *COMPOSITION_HOMES])}, or module:Class of your own; "
            f"wrappers may follow: +{' +'.join(WRAPPER_HOMES)}."
        ),
    ] = "note",
    dataset: Annotated[str | None, typer.Option(help=f"{' '.join(DATASET_HOMES)}.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data: a folder of images by class, or an npz with x and y.")
    ] = None,
    domains: Annotated[list[str] | None, typer.Option(help="Corruptions or users; by default all.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Network, or module:function of your own; by default the paper's.")
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(
            help="bn, iabn, in, or iabn* to convert a BatchNorm model; by default the paper's for the method. "
            "Your own model is converted."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Weights; by default those that `note-tta train` made.")
    ] = None,
    width: Width = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="dirichlet, iid, sorted or chronological; by default the paper's, and for an npz its own order."
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="All domains in one stream: continual, ptta, recurring, mixed, mixed-correlated, class-sorted, "
            "gli or label-shift."
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Concentration of the Dirichlet stream.")] = 0.1,
    batch_size: Annotated[int, typer.Option(help="Samples per call.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the stream, the method and the source model.")] = 0,
    samples: Samples = None,
    visits: Annotated[int, typer.Option(help="Visits of each domain by the protocol `recurring`.")] = 1,
    set_option: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of the method or IABN, such as lr=5e-4 or alpha=2."),
    ] = None,
    data_option: DataOption = None,
    results: Results = Path("results"),
    models: Models = None,
    data_root: DataRoot = None,
    workers: Workers = None,
    device: Device = None,
    ray: Ray = None,
) -> None:
    """Run one method on one stream, domain by domain.

    Each domain starts from the source model. Examples:

    note-tta run --dataset cifar10 --model resnet20 --method note --domains fog frost

    note-tta run --dataset hapt --method tent --stream iid

    note-tta run --dataset cifar10 --model resnet20 --method rotta --protocol ptta --samples 2000

    note-tta run --model my_package:make_model --data folder/ --method note+filter

    note-tta run --dataset digits --method my_package:MyMethod
    """
    if (dataset is None) == (data is None):
        raise ValueError("name the data: --dataset for one of the library's datasets, or --data for your own")

    from ..data import DATASETS
    from ..experiments.cell import ORDERS, PROTOCOLS, Cell, Stream, options
    from ..experiments.experiment import protocol_domain
    from ..experiments.store import Store
    from ..experiments.worker import Worker
    from ..methods import find_method
    from ._cells import parse_options, run_and_report, settings

    if dataset is not None:
        check_known("dataset", dataset, DATASETS, hint="; --data is your own")
    find_method(method)
    if data is not None and model is None:
        raise ValueError("--data needs --model module:function, or --model NAME with --checkpoint")
    given = parse_options(set_option or [], "--set")
    of_norm: dict[str, Any] = {key: given.pop(key) for key in ("alpha", "correction") if key in given}
    name = dataset if dataset is not None else str(data)
    where = settings(data_root, models, workers, device, ray)
    own = model is not None and ":" in model
    data_options = options(parse_options(data_option or [], "--data-option"))
    opened = Worker(where).dataset(name, data_options)
    for domain in domains or ():
        check_known("domain", domain, opened.domains, of=name)
    for what, chosen_order, known in (("stream", stream, ORDERS), ("protocol", protocol, PROTOCOLS)):
        if chosen_order is not None:
            check_known(what, chosen_order, known)
    if stream is not None and protocol is not None:
        raise ValueError("a protocol has its own order: leave out --stream")
    order = protocol or stream or opened.stream
    concentration = delta if order == "dirichlet" else None
    chosen = list(domains or opened.targets)
    chosen = [protocol_domain(protocol, chosen)] if protocol else chosen
    network = model or DATASETS[name].network
    cells = [
        Cell(
            Stream(name, domain, order, concentration, seed, samples, data_options, visits),
            method,
            model=network,
            norm=norm or _usual_norm(method, network),
            batch_size=batch_size,
            width=width,
            checkpoint="" if checkpoint is None else str(checkpoint),
            method_options=options({**_usual_options(method, name), **given}),
            norm_options=options(of_norm),
        )
        for domain in chosen
    ]
    store = Store(results)
    # What is behind the name of a user's own model or data may have changed since the last run.
    run_and_report(cells, store, where, workers, ray, again=own or data is not None)

    errors = []
    typer.echo(f"{'domain':<24} {'error':>7} {'samples':>9} {'seconds':>9}")
    for cell in cells:
        result = store.load(cell).result
        errors.append(result["error"])
        numbers = f"{result['error']:>6.1f}% {result['samples']:>9,} {result['seconds']:>9.1f}"
        many = "all" if "visits" in result else cell.stream.domain
        typer.echo(f"{many:<24} {numbers}")
        for domain, visits_errors in result.get("visits", {}).items():
            typer.echo(f"{domain:<24} {sum(visits_errors) / max(1, len(visits_errors)):>6.1f}%")
    if len(errors) > 1:
        typer.echo(f"{'mean':<24} {sum(errors) / len(errors):>6.1f}%")
    typer.echo(f"Results are in {store.path(cells[0])}, one line per domain")


def _usual_norm(method: str, network: str) -> str:
    """The paper's norm layers for a method, or the network's own; the user's own model is converted to them."""
    from ..experiments.experiment import norm_for
    from ..methods import method_class

    norm = method_class(method).trained_with
    return "iabn*" if ":" in network and norm == "iabn" else norm_for(norm, network)


def _usual_options(method: str, dataset: str) -> dict[str, object]:
    from ..data import DATASETS
    from ..experiments.experiment import template_for
    from ..experiments.variants import VARIANTS

    known = dataset in DATASETS and method in VARIANTS
    return dict(template_for(dataset, method).method_options) if known else {}

"""`note-tta data`: list, status, download, prepare, verify, preview."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..progress import progress_bars
from ._options import DataRoot

app = typer.Typer(help="List, download, regenerate, check and preview datasets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="DATASET", help="A dataset's name; see `note-tta data list`.")]


@app.command("list")
def list_datasets() -> None:
    """List every dataset: its targets, its download and whether it can be regenerated."""
    from ..data import DATASETS

    for record in DATASETS.values():
        sizes = " + ".join(archive.size for archive in record.archives) or "nothing"
        prepared = "; its targets can be regenerated" if record.prepares else ""
        typer.echo(f"{record.name:13} downloads {sizes}{prepared}")
        if record.note:
            typer.echo(f"{'':13} {record.note}")


@app.command()
def status(data_root: DataRoot = None) -> None:
    """Show which datasets are in the data root."""
    from ..data import DATASETS, resolve_root

    root = resolve_root(data_root)
    typer.echo(f"data root: {root}")
    for name, record in DATASETS.items():
        there, line = record.status(root)
        typer.echo(f"{'yes' if there else 'no ':3} {name:13} {line}")


@app.command()
def download(
    dataset: Name,
    data_root: DataRoot = None,
    keep: Annotated[bool, typer.Option(help="Keep the archives after unpacking.")] = False,
) -> None:
    """Download the published archives over HTTPS, check and unpack them; a stopped download continues.

    Example: note-tta data download hapt
    """
    from ..data import find_dataset, resolve_root
    from ..data.download import download as fetch

    if note := find_dataset(dataset).note:
        typer.echo(f"note: {note}")
    with progress_bars(in_bytes=True) as progress:
        lines = fetch(dataset, resolve_root(data_root), keep=keep, progress=progress)
    for line in lines:
        typer.echo(line)


@app.command()
def prepare(
    dataset: Name,
    data_root: DataRoot = None,
    severity: Annotated[
        list[int] | None, typer.Option(help="Only this severity; may be given several times.")
    ] = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this corruption; besides the paper's fifteen: speckle_noise, gaussian_blur, spatter, "
            "saturate, night. May be given several times."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one per core.")] = None,
) -> None:
    """Regenerate a corrupted set from clean images; a stopped run continues.

    Example: note-tta data prepare cifar10 --severity 5
    """
    from ..data import resolve_root
    from ..data.prepare import prepare as make

    parts: dict[str, Any] = {"corruptions": corruption or None, "severities": severity or None}
    with progress_bars() as progress:
        root = resolve_root(data_root)
        folder = make(dataset, root, **parts, seed=seed, workers=workers, progress=progress)
    typer.echo(f"regenerated set: {folder}")


@app.command()
def verify(dataset: Name, data_root: DataRoot = None) -> None:
    """Check counts, shapes and checksums; exit code 1 if something is missing or wrong."""
    from ..data import find_dataset, resolve_root

    results = find_dataset(dataset).verify(resolve_root(data_root))
    for check in results:
        mark = {True: "ok  ", False: "BAD ", None: "    "}[check.ok]
        typer.echo(f"{mark} {check.what}: {check.detail}")
    if any(check.ok is False for check in results):
        raise typer.Exit(1)


@app.command()
def preview(
    dataset: Name,
    data_root: DataRoot = None,
    out: Annotated[
        Path | None, typer.Option(help="The picture to write: .png, .svg or .pdf; by default DATASET.png.")
    ] = None,
    severity: Annotated[int, typer.Option(help="Severity of the corruptions.")] = 5,
    stream: Annotated[
        str | None, typer.Option(help="Show classes over time: iid, dirichlet, sorted or chronological.")
    ] = None,
) -> None:
    """Draw a dataset: its corruptions, frames with and without rain, or a stream with its labels.

    Example: note-tta data preview digits --stream dirichlet --out stream.svg
    """
    from ..data import resolve_root
    from ..data.preview import preview as draw

    target = out or Path(f"{dataset}.png")
    typer.echo(draw(dataset, resolve_root(data_root), target, severity=severity, stream=stream))
    typer.echo(f"picture: {target}")

"""`note-tta report`: results as tables, figures and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder of results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("report"),
    archive: Annotated[
        Path | None, typer.Option(help="Results of an earlier version, whose verdicts get their own section.")
    ] = None,
) -> None:
    """Write the results as Markdown, LaTeX, SVG figures and one HTML page.

    The same results give the same bytes. Example:

        note-tta report results --out report
    """
    from ..report.build import build_report

    written = build_report(results, out, archive)
    pictures = sum(path.suffix == ".svg" for path in written)
    typer.echo(
        f"The page is {out / 'index.html'}, with results.md, details, tables.tex and {pictures} figures"
    )

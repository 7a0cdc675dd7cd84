"""`note-tta demo`: the paper's story on handwritten digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write the page and results.json to.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the data, the training and the streams.")] = 0,
) -> None:
    """Adapt to a drifting stream of handwritten digits; needs no download.

    Trains a small network with and without IABN, runs the paper's nine methods and our `adapt` on a temporally
    correlated and on an i.i.d. stream, prints the errors like the paper's Table 1 and writes an HTML page. Takes
    a few minutes.
    """
    from rich.console import Console
    from rich.table import Table

    from ..demo import run_demo
    from ..methods import method_title

    console = Console()
    with console.status("training on clean digits …") as status:

        def on_step(text: str) -> None:
            console.print(f"[dim]{text}[/dim]")
            status.update("adapting to drifting streams …")

        finished = run_demo(out, seed=seed, on_step=on_step)
    results = finished.results
    samples = results["correlated"]["source"].samples
    title = f"Error in percent on drifting digits, {samples:,} samples per stream"
    table = Table(title=title, title_justify="left")
    table.add_column("Method")
    table.add_column("Temporally correlated", justify="right")
    table.add_column("Uniform (i.i.d.)", justify="right")
    for name in results["correlated"]:
        cells = []
        for stream in ("correlated", "iid"):
            error, source = results[stream][name].error, results[stream]["source"].error
            lowest = min(result.error for result in results[stream].values())
            change = "" if name == "source" else f" [dim]({error - source:+.1f})[/dim]"
            mark = " [red]▲[/red]" if error > source else "  "
            text = f"[bold]{error:.1f}[/bold]" if error == lowest else f"{error:.1f}"
            cells.append(text + change + mark)
        table.add_row(method_title(name), *cells)
    console.print(table)
    console.print("In brackets: the change from Source. ▲: worse than Source. Bold: the lowest error.")
    console.print(f"Streams and errors over time: {finished.page}")
    console.print(f"Errors as data: {finished.errors}")

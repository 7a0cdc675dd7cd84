"""`note-tta serve`: live streams over HTTP, and a dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import nn

app = typer.Typer(add_completion=False)


@app.command()
def serve(
    model: Annotated[str | None, typer.Option(help="Your network, as module:function.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A file of weights for it.")] = None,
    method: Annotated[
        str, typer.Option(help="Method of each stream: note, adapt, or note with +watch, +filter or both.")
    ] = "note",
    store: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the streams when the process ends; without it they are lost."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="NOTE_TTA_TOKEN",
            help="Token that requests must send; required if other machines can reach the service.",
        ),
    ] = None,
    max_streams: Annotated[int, typer.Option(help="Largest number of streams.")] = 10_000,
    max_resident: Annotated[
        int, typer.Option(help="Streams in memory; the others wait in the store.")
    ] = 1024,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show a hundred simulated cameras on a small network.")
    ] = False,
) -> None:
    """Serve a model to many streams. Each stream adapts separately.

    The dashboard is at the address that is printed. Some examples:

    note-tta serve --demo

    note-tta serve --model my_package:make_model --weights model.safetensors --store streams/

    NOTE_TTA_TOKEN=$(openssl rand -hex 16) note-tta serve --model my_package:make_model --host 0.0.0.0
    """
    if demo == (model is not None):
        raise ValueError("name your network with --model module:function, or use --demo")

    from ..serve import check_packages

    check_packages()

    from ..fleet import Fleet
    from ..methods import find_method
    from ..methods.settings import check_count
    from ..serve import Limits, server

    server.check_address(host, token, port)
    check_count("max_streams", max_streams, 1)
    classes, feed = None, None
    if demo:
        from ..serve.demo import demo_model, make_cameras, run_cameras

        network, classes = demo_model()
        cameras = make_cameras()
        feed = lambda gathering: run_cameras(gathering, cameras)  # noqa: E731
    else:
        network = _own_model(str(model), weights)
    fleet = Fleet(network, find_method(method), max_resident=max_resident, spill=store)
    most = max_streams if store else min(max_streams, max_resident)
    server.serve(
        fleet,
        host=host,
        port=port,
        token=token,
        limits=Limits(streams=most),
        classes=classes,
        feed=feed,
        on_listening=lambda address: typer.echo(
            f"{len(fleet)} streams. The dashboard is at {address} (stop with Ctrl-C)"
        ),
    )


def _own_model(name: str, weights: Path | None) -> nn.Module:
    """The user's network with its weights; its BatchNorm layers become IABN, which NOTE needs."""
    from ..checkpoint import load_weights
    from ..models import iabn_settings
    from ..models.user_model import make_model
    from ..nn import convert_iabn

    network = make_model(name)
    if weights is not None:
        load_weights(network, weights)
    return network if iabn_settings(network) else convert_iabn(network)

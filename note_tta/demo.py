"""The demonstration: the paper's experiment on handwritten digits, without a download.

A small network is trained with and without IABN. Then each method runs on three kinds of drift, each as a
temporally correlated and as an i.i.d. stream. The paper's methods have the paper's settings; our own `tta.adapt`
is shown beside them.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import torch

from . import streams
from .checkpoint import load_checkpoint
from .data import DATASETS, open_dataset
from .evaluation import Result, evaluate
from .experiments.process_pool import available_cores
from .experiments.variants import METHOD_ROWS
from .methods import find_method, method_class
from .models import build_model
from .report.html_page import demo_page
from .train import train

STREAMS = ("correlated", "iid")
SHOWN = (*METHOD_ROWS, "note_iid", "adapt")
"""The paper's methods, and ours."""

_DELTA = 0.1
_WIDTH = 8

Step = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """Results by stream and method, and the files that hold them."""

    results: dict[str, dict[str, Result]]
    page: Path
    errors: Path


def run_demo(out: str | Path = "demo", *, seed: int = 0, on_step: Step = lambda text: None) -> Demo:
    """Train, adapt, and write the page and `results.json` to `out`.

    Args:
        out: The folder to write to.
        seed: Seed of the data, the training and the streams.
        on_step: Called with a line after each step.

    Returns:
        The results and their files.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(
            available_cores(), mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool,
    ):
        training = {pool.submit(_train, norm, folder, seed): norm for norm in ("bn", "iabn")}
        for future in as_completed(training):
            on_step(f"trained with {training[future].upper()}: {future.result():.1f} % error on clean digits")
        slow_first = sorted(SHOWN, key="cotta".__ne__)
        running = {
            pool.submit(_run, method, stream, folder, seed): (stream, method)
            for method in slow_first
            for stream in STREAMS
        }
        done: dict[tuple[str, str], Result] = {}
        for run in as_completed(running):
            stream, method = running[run]
            done[stream, method] = run.result()
            on_step(f"{method} on the {stream} streams: {run.result().error:.1f} %")
    results = {stream: {method: done[stream, method] for method in SHOWN} for stream in STREAMS}
    return _write(out, results)


def _train(norm: str, folder: str, seed: int) -> float:
    dataset = open_dataset("digits", seed=seed)
    torch.manual_seed(seed)
    model = build_model(DATASETS["digits"].network, num_classes=len(dataset.classes), norm=norm, width=_WIDTH)
    card = train(
        model,
        dataset.domain("train"),
        DATASETS["digits"].recipe,
        out=Path(folder, f"{norm}.safetensors"),
        test=dataset.domain("test"),
        seed=seed,
        show_progress=False,
    )
    return float(card["clean_error"])


def _run(name: str, stream: str, folder: str, seed: int) -> Result:
    """One method on every target, each from the source model; the results are concatenated."""
    dataset = open_dataset("digits", seed=seed)
    runs = []
    for target in dataset.targets:
        domain = dataset.domain(target)
        generator = torch.Generator().manual_seed(seed)
        if stream == "correlated":
            order = streams.dirichlet(domain.labels, _DELTA, generator)
        else:
            order = streams.iid(domain.labels, generator)
        model, _ = load_checkpoint(Path(folder, f"{method_class(name).trained_with}.safetensors"))
        runs.append(evaluate(find_method(name)(model), domain.batches(order), progress=False))
    return Result(
        predictions=torch.cat([run.predictions for run in runs]),
        labels=torch.cat([run.labels for run in runs]),
        seconds=sum(run.seconds for run in runs),
        latencies=[latency for run in runs for latency in run.latencies],
    )


def _write(out: Path, results: dict[str, dict[str, Result]]) -> Demo:
    """Write the page and the errors."""
    page, errors = out / "index.html", out / "results.json"
    numbers = {
        stream: {name: round(r.error, 4) for name, r in rows.items()} for stream, rows in results.items()
    }
    errors.write_text(json.dumps(numbers, indent=2) + "\n")
    titles = ("Temporally correlated (Dirichlet 0.1)", "Uniformly shuffled (i.i.d.)")
    text = demo_page(
        dict(zip(titles, (results[stream] for stream in STREAMS), strict=True)),
        title="Drifting handwritten digits",
        intro=(
            "A network that was trained on clean digits sees three kinds of drift: low contrast, too much "
            "light, and a style that changes from image to image. In the first stream the classes come in "
            "long runs, as in front of a camera; in the second the same samples are shuffled."
        ),
        domain="contrast, brightness, style",
    )
    page.write_text(text, encoding="utf-8")
    return Demo(results, page, errors)

"""Two checks of the corruption engine on real CIFAR-10; each writes JSON and fails where a bar is missed.

`python -m benchmarks.corruptions speed` regenerates all fifteen corruptions at severity 5 for the 10,000 test
images on two worker processes, and measures wall time and peak memory of the whole process tree.

`python -m benchmarks.corruptions errors` runs a public BatchNorm ResNet-20 over the regenerated set in the
data root and compares its errors with the paper's Source row, which is a ResNet-18 on the published set:
backbones differ, but the order of the corruptions must be the same. `compare` makes that comparison again
from the errors in the file, without measuring.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from note_tta.data import open_dataset, resolve_root
from note_tta.data.corruptions import CORRUPTIONS
from note_tta.data.manifest import Manifest
from note_tta.data.prepare import prepare
from note_tta.files import write_text
from note_tta.provenance import provenance

SECONDS_BAR = 360.0
MEMORY_BAR = 1.5e9
RANK_BAR = 0.9
WEIGHTS = "weights/resnet20_cifar10_akamaster.pt"
SEVERITY = 5


def main() -> int:
    """Run one check; the exit code is 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.corruptions", description=__doc__)
    parser.add_argument("check", choices=["speed", "errors", "compare"])
    parser.add_argument("--data-root", type=Path, help="else $NOTE_TTA_DATA, else the user's cache folder")
    parser.add_argument("--out", type=Path, help="the JSON file to write")
    parser.add_argument("--workers", type=int, default=2, help="processes of the speed check")
    arguments = parser.parse_args()
    root = resolve_root(arguments.data_root)
    if arguments.check == "speed":
        out = arguments.out or Path("results/benchmarks/corruptions.json")
        measured, kept = speed(root, arguments.workers)
        content = {"provenance": provenance(), **measured}
    else:
        out = arguments.out or Path("results/corruptions/cifar10-severity5-resnet20.json")
        if arguments.check == "errors":
            content = {"provenance": provenance(), **errors(root)}
        else:
            content = json.loads(out.read_text(encoding="utf-8"))
        comparison, kept = compare({name: content["results"][name]["error"] for name in CORRUPTIONS})
        content |= comparison
    write_text(out, json.dumps(content, indent=2) + "\n")
    print(f"written to {out}")
    for name, held in kept.items():
        print(f"{'kept' if held else 'MISSED'}: {name}")
    return 0 if all(kept.values()) else 1


def speed(root: Path, workers: int) -> tuple[dict[str, Any], dict[str, bool]]:
    """Regenerate severity 5 into a fresh folder; wall seconds and peak memory against their bars."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        for name in ("cifar-10-batches-py", "frost"):
            if (root / name).is_dir():
                (fresh / name).symlink_to(root / name)
        finished: dict[str, float] = {}
        memory = _PeakMemory()
        start = time.perf_counter()

        def follow(what: str, done: int, total: int) -> None:
            if done == total:
                finished[what.split()[0]] = time.perf_counter() - start

        with memory:
            made = prepare("cifar10", fresh, severities=[SEVERITY], workers=workers, progress=follow)
        seconds = time.perf_counter() - start
        textures = Manifest.read(made).textures
    ends = [0.0, *finished.values()]
    parts = {name: round(ends[i + 1] - ends[i], 2) for i, name in enumerate(finished)}
    content = {
        "images": 10_000,
        "severity": SEVERITY,
        "workers": workers,
        "frost_textures": textures,
        "seconds": round(seconds, 1),
        "seconds_bar": SECONDS_BAR,
        "seconds_by_corruption": parts,
        "peak_memory_bytes": memory.peak,
        "peak_memory_bar": MEMORY_BAR,
    }
    print(f"{seconds:.1f} s, peak {memory.peak / 1e9:.2f} GB over all processes")
    return content, {
        f"{seconds:.0f} s of at most {SECONDS_BAR:.0f} s": seconds <= SECONDS_BAR,
        f"{memory.peak / 1e9:.2f} GB of at most {MEMORY_BAR / 1e9:.1f} GB": memory.peak <= MEMORY_BAR,
    }


class _PeakMemory:
    """The largest total memory of this process and its descendants, sampled while the block runs.

    Proportional set size is summed, so that pages shared between processes count once.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            self.peak = max(self.peak, sum(_proportional(number) for number in _family()))


def _family() -> list[str]:
    """The numbers of this process and all its descendants."""
    found, queue = [], ["self"]
    while queue:
        number = queue.pop()
        found.append(number)
        for task in Path(f"/proc/{number}/task").glob("*/children"):
            try:
                queue.extend(task.read_text().split())
            except OSError:
                continue
    return found


def _proportional(number: str) -> int:
    try:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def errors(root: Path) -> dict[str, Any]:
    """Errors of the public ResNet-20, clean and per corruption."""
    from note_tta.checkpoint import load_weights
    from note_tta.models import build_model

    model = build_model("resnet20", num_classes=10, norm="bn")
    load_weights(model, root / WEIGHTS)
    model.eval()
    dataset = open_dataset("cifar10", root, severity=SEVERITY)
    found = {}
    for name in ("test", *CORRUPTIONS):
        domain = dataset.domain(name)
        found[name] = {
            "error": _error(model, domain),
            "samples": len(domain),
            "origin": domain.origin,
            "data": domain.fingerprint,
        }
        print(f"{name:18} {found[name]['error']:6.2f}", flush=True)
    return {"model": "resnet20, public BatchNorm weights", "severity": SEVERITY, "results": found}


def compare(ours: dict[str, float]) -> tuple[dict[str, Any], dict[str, bool]]:
    """Set the errors beside the paper's Source row, which does not depend on the stream's order."""
    from scipy.stats import spearmanr

    from note_tta.report.paper_numbers import paper_number

    numbers = {name: paper_number("cifar10", "iid", "source", name) for name in CORRUPTIONS}
    paper = {name: number.mean for name, number in numbers.items() if number is not None}
    if len(paper) != len(CORRUPTIONS):
        raise ValueError(f"the paper's Source row has {len(paper)} of {len(CORRUPTIONS)} corruptions")
    rank = float(spearmanr([ours[name] for name in paper], list(paper.values())).statistic)
    comparison = {
        "mean_error": round(sum(ours.values()) / len(ours), 2),
        "paper_source_resnet18_published": paper,
        "rank_correlation_with_paper": round(rank, 3),
    }
    blurs = [name for name in CORRUPTIONS if name.endswith("blur")]
    noises = [ours[name] for name in CORRUPTIONS if name.endswith("noise")]
    milder = [ours[name] for name in (*blurs, "snow", "frost", "fog", "brightness")]
    return comparison, {
        f"rank correlation with the paper's Source row {rank:.3f} of at least {RANK_BAR}": rank >= RANK_BAR,
        "brightness is the mildest": min(ours, key=ours.__getitem__) == "brightness",
        "impulse noise is the worst": max(ours, key=ours.__getitem__) == "impulse_noise",
        "every noise is worse than every blur and weather": min(noises) > max(milder),
        "glass is the worst blur": max(blurs, key=ours.__getitem__) == "glass_blur",
    }


def _error(model: Any, domain: Any) -> float:
    import torch

    wrong = 0
    with torch.inference_mode():
        for start in range(0, len(domain), 500):
            part = slice(start, start + 500)
            wrong += int((model(domain.inputs(part)).argmax(dim=1) != domain.labels[part]).sum())
    return round(100 * wrong / len(domain), 2)


if __name__ == "__main__":
    sys.exit(main())

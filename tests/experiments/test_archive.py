"""The results of version 0.1 are carried over whole: each old file comes back from them, byte for byte.

Version 0.1 wrote one file per cell, named after its configuration and a digest of it. The digests below were
computed from those 4,161 files, so a change of any value in the packed ones is caught without them.
"""

import hashlib
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from note_tta.experiments.cell import Stream
from note_tta.experiments.store import Store, cumulative_error

ARCHIVE = Path(__file__).resolve().parents[2] / "results" / "0.1"

OLD_FILES = {
    "cifar10 resnet18": (357, "65eb0ab5a0fb7dc49718a28077fa437557ad597637c6c6631c87da36d5e7e8b0"),
    "cifar10 resnet20": (1185, "f8eec0ced0eb14c6953eeee9ef2fe360434e184d9b6c02aa84f2cecbc9f62047"),
    "cifar10 resnet20 imbalance=10": (90, "26e67c2b0db93f27bdd96568d85ba6e2fac87be215f98a648a67951ef1a7d922"),
    "cifar10 streams": (6, "ae5c9285d589d2c3fe88a7e2d075d3d4afdea3a671c9a0a305e901b120fb4875"),
    "extrasensory sensor_cnn2": (132, "ec71efdcb40f38d8c2db86bbfdeb47b6b140595b6da9e799f8722f1d3fa3ca59"),
    "hapt sensor_cnn4": (297, "f458b99f7f368688373861571a4c51f0bff7f8b133a9dc5ab8f5433fd7530113"),
    "hapt sensor_cnn4 rotation=x180": (
        297,
        "27bce885be006a56f299b5083ca6a73abf5abea1f10cee234c595df3816c5a6a",
    ),
    "hapt sensor_cnn4 rotation=x90": (
        297,
        "208d740ccbb6bce63b85e5a5cbe9a390f89a7787d078381abf24b0b8a7523783",
    ),
    "hapt sensor_cnn4 rotation=y180": (
        297,
        "a34238b77d40d062fc651c07ad597d142f3aa4a9e1b83f6cf7f2a46cbe3c9671",
    ),
    "hapt sensor_cnn4 rotation=y90": (
        297,
        "0ba3c545eb42e4fd7112373e7dbc2b876685c41d8f564cec00410eb4b3e7a628",
    ),
    "hapt sensor_cnn4 rotation=z180": (
        297,
        "35980ce542f272af9cdb21509653d3c6827052f997490c8e378aca95cdaebdb0",
    ),
    "hapt sensor_cnn4 rotation=z90": (
        297,
        "293f935478dfc91851750143c52f89d44ca09e0074c5319dc695aed06fbe0d50",
    ),
    "mnist resnet18": (312, "bc01d887231f4a7c7e8d4fac2ae0c53347c167fb99c0706046b4d5b104ff7b66"),
}


def old_cell(job):
    """A cell's fields as version 0.1 had them; one that only drew a stream was a method of that name."""
    alone = isinstance(job, Stream)
    stream = job if alone else job.stream
    return {
        "batch_size": 64 if alone else job.batch_size,
        "checkpoint": "" if alone else job.checkpoint,
        "data_options": dict(stream.data_options),
        "dataset": stream.dataset,
        "delta": stream.delta,
        "domain": stream.domain,
        "method": "stream" if alone else job.method,
        "method_options": {} if alone else dict(job.method_options),
        "model": "" if alone else job.model,
        "norm": "bn" if alone else job.norm,
        "norm_options": {} if alone else dict(job.norm_options),
        "samples": stream.samples,
        "seed": stream.seed,
        "stream": stream.order,
        "width": None if alone else job.width,
    }


def old_id(cell):
    floats = dict(cell)
    for name in ("method_options", "norm_options", "data_options"):
        floats[name] = {k: as_float(v) for k, v in cell[name].items()}
    floats["delta"] = as_float(cell["delta"])
    return hashlib.sha256(compact(floats).encode()).hexdigest()[:16]


def as_float(value):
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def old_file(record):
    """The name and the text of the file that version 0.1 wrote of a result."""
    cell, result = old_cell(record.job), dict(record.result)
    if "wrong" in result:
        result["cumulative_error"] = cumulative_error(result)
        del result["wrong"]
        errors = enumerate(result["per_class_error"])
        result["per_class_error"] = {str(k): float(error) for k, error in errors if error is not None}
    identity = old_id(cell)
    sections = [f' "schema": 1,\n "id": "{identity}"']
    for name, part in (("cell", cell), ("result", result), ("provenance", record.provenance)):
        inner = ",\n".join(f'  "{key}": {compact(part[key])}' for key in sorted(part))
        sections.append(f' "{name}": {{\n{inner}\n }}')
    words = [cell[name] for name in ("dataset", "domain", "model", "norm", "method", "stream")]
    words = [re.sub(r"[^A-Za-z0-9_.]+", "_", word).strip("_.")[-40:] for word in words if word]
    return "-".join([*words, f"seed{cell['seed']}", f"{identity}.json"]), "{\n" + ",\n".join(
        sections
    ) + "\n}\n"


def group(record):
    """What the digests are by: dataset, network and how the data was opened."""
    cell = old_cell(record.job)
    parts = [
        cell["dataset"],
        cell["model"] or "streams",
        *(f"{k}={v}" for k, v in cell["data_options"].items()),
    ]
    return " ".join(parts)


@pytest.fixture(scope="module")
def rebuilt():
    files = defaultdict(dict)
    for record in Store(ARCHIVE):
        name, text = old_file(record)
        files[group(record)][name] = text
    return files


def digest(files):
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\n{files[name]}".encode())
    return whole.hexdigest()


def test_every_old_file_comes_back_byte_for_byte(rebuilt):
    assert sum(map(len, rebuilt.values())) == 4161
    assert {name: (len(files), digest(files)) for name, files in rebuilt.items()} == OLD_FILES


def test_every_value_of_a_result_is_part_of_its_old_file():
    record = next(record for record in Store(ARCHIVE) if "wrong" in record.result)
    text = old_file(record)[1]
    for part in (record.result, record.provenance):
        for key, value in list(part.items()):
            part[key] = [*value[:-1], value[-1] + 1] if isinstance(value, list) else 1234
            assert old_file(record)[1] != text, f"{key} is not compared"
            part[key] = value
    assert old_file(record)[1] == text

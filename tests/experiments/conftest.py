"""Tiny datasets under the real names, and tiny source models for them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from note_tta.checkpoint import save_checkpoint
from note_tta.data import DATASETS, Dataset
from note_tta.data.base import image_domain, sensor_domain
from note_tta.experiments.cell import Stream
from note_tta.experiments.schedule import Failure
from note_tta.experiments.worker import Settings, Worker
from note_tta.methods import CoTTA
from note_tta.models import build_model

CLASSES = 3
SAMPLES = 70
WIDTH = 4
TARGETS = {
    "cifar10": ("gaussian_noise", "fog"),
    "cifar100": ("gaussian_noise", "fog"),
    "imagenet": ("gaussian_noise", "fog"),
    "mnist": ("shot_noise", "scale"),
    "kitti": ("rain",),
    "harth": ("S008", "S018"),
    "extrasensory": ("4FC", "797"),
    "hapt": ("user22", "user23"),
}
SHAPES = {
    "cifar10": (3, 8, 8),
    "cifar100": (3, 8, 8),
    "imagenet": (3, 32, 32),
    "mnist": (1, 8, 8),
    "kitti": (3, 32, 32),
    "harth": (3, 50),
    "extrasensory": (4, 5),
    "hapt": (6, 50),
}


def tiny_dataset(name: str) -> Dataset:
    """A few samples per domain; the class changes the mean, the domain the scale."""
    shape, stream = SHAPES[name], DATASETS[name].stream

    def opener(domain: str, place: int):
        def open_domain():
            rng = np.random.default_rng([len(name), place])
            labels = np.sort(rng.integers(0, CLASSES, SAMPLES)) if stream == "chronological" else None
            labels = rng.permutation(np.arange(SAMPLES) % CLASSES) if labels is None else labels
            noise = rng.normal(0, 0.1, (SAMPLES, *shape)) + labels.reshape(-1, *[1] * len(shape)) / CLASSES
            if len(shape) == 2:
                return sensor_domain(domain, noise.astype(np.float32), labels, origin="embedded")
            pixels = np.clip(255 * noise * (1 - 0.2 * place), 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)
            return image_domain(domain, pixels, labels, origin="embedded")

        return open_domain

    domains = ("train", "test", *TARGETS[name])
    openers = {domain: opener(domain, place) for place, domain in enumerate(domains)}
    classes = tuple(f"class{i}" for i in range(CLASSES))
    return Dataset(name, name, classes, shape, TARGETS[name], stream, openers)


def save_models(folder, name, norms=("bn", "iabn", "in"), seeds=(0,), model=None):
    model = model or DATASETS[name].network
    for norm in norms:
        for seed in seeds:
            torch.manual_seed(seed)
            network = build_model(model, CLASSES, norm=norm, width=WIDTH, in_channels=SHAPES[name][0])
            path = folder / f"{name}-{model}-w{WIDTH}-{norm}-seed{seed}.safetensors"
            save_checkpoint(path, network, {"dataset": name, "clean_error": 12.5, "seed": seed})


class Serial:
    """A backend that runs cells in this process."""

    lanes = 1

    def __init__(self, settings):
        self.worker, self.cell, self.seen = Worker(settings), None, []

    def submit(self, lane, cell):
        self.cell = cell
        self.seen.append(cell)

    def wait(self):
        try:
            return 0, self.worker.run(self.cell)
        except (ValueError, OSError) as error:
            return 0, Failure(str(error))

    def close(self):
        self.worker = None


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Tiny datasets under the real names, their models, and settings that find both."""
    for name in TARGETS:
        tiny_record = replace(DATASETS[name], opens=lambda root, name=name, **options: tiny_dataset(name))
        monkeypatch.setitem(DATASETS, name, tiny_record)
    monkeypatch.setitem(CoTTA.__init__.__kwdefaults__, "augmentations", 2)
    settings = Settings(data_root=str(tmp_path), models=str(tmp_path / "models"))
    return SimpleNamespace(
        settings=settings,
        targets=TARGETS,
        width=WIDTH,
        samples=SAMPLES,
        save_models=lambda name, **options: save_models(tmp_path / "models", name, **options),
        serial=lambda: Serial(settings),
        folder=tmp_path,
    )


@pytest.fixture
def stream(tmp_path):
    """A job that is quick to compute: the stream of a small npz file."""
    np.savez(tmp_path / "data.npz", x=np.zeros((120, 4), np.float32), y=np.arange(120) % 3)

    def cell(seed=0, domain="all"):
        return Stream(str(tmp_path / "data.npz"), domain, "dirichlet", delta=0.1, seed=seed)

    return cell

"""Check what is in the data root against what was published: counts, shapes, checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import DATASETS, cifar, extrasensory, hapt, harth, imagenet, kitti, mnist, open_dataset
from .base import BadData, Dataset, MissingData, load_array
from .corruptions.names import CORRUPTIONS, MNIST_CORRUPTIONS, SEVERITIES
from .manifest import Manifest

CIFAR_TEST, CIFAR_TRAIN = 10_000, 50_000
MNIST_TEST, MNIST_TRAIN = 10_000, 60_000
IMAGENET_TEST, IMAGENET_TRAIN, IMAGENET_CLASSES = 50_000, 1_281_167, 1_000
HAPT_RECORDINGS, HAPT_USERS, HAPT_SEGMENTS = 61, 30, 1_214


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `ok` is None for a fact that has no right or wrong."""

    what: str
    ok: bool | None
    detail: str


def verify(name: str, root: Path) -> list[Check]:
    """Check a dataset in the data root; every check is made, a failed one does not stop the others."""
    if name not in DATASETS:
        raise ValueError(f"unknown dataset {name!r}; known are: {', '.join(DATASETS)}")
    checks: list[Check] = []
    steps = _STEPS[name](root)
    while True:
        try:
            checks.append(next(steps))
        except StopIteration:
            return checks
        except (MissingData, BadData) as error:
            checks.append(Check(name, False, str(error)))
            return checks


def _attempt(what: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (MissingData, BadData) as error:
        return Check(what, False, str(error))


def _count(dataset: Dataset, domain: str, expected: int) -> Check:
    def check() -> Check:
        found = len(dataset.domain(domain))
        return Check(domain, found == expected, f"{found:,} samples, published {expected:,}")

    return _attempt(domain, check)


def _beside_paper(dataset: Dataset, domain: str, expected: int, *, exact: bool) -> Check:
    def check() -> Check:
        found = len(dataset.domain(domain))
        detail = f"{found:,} windows, the paper has {expected:,} ({found - expected:+,})"
        return Check(domain, found == expected if exact else None, detail)

    return _attempt(domain, check)


def _cifar(name: str, root: Path) -> Iterator[Check]:
    dataset = open_dataset(name, root)
    yield _count(dataset, "train", CIFAR_TRAIN)
    yield _count(dataset, "test", CIFAR_TEST)
    published, regenerated = cifar.corrupted_folders(root, name)
    if published.is_dir():
        for corruption in CORRUPTIONS:
            yield _count(dataset, corruption, CIFAR_TEST)
    elif regenerated.is_dir():
        files = {corruption: regenerated / f"{corruption}.npy" for corruption in CORRUPTIONS}
        yield from _regenerated(regenerated, files, SEVERITIES)
    else:
        yield _count(dataset, CORRUPTIONS[0], CIFAR_TEST)


def _mnist(root: Path) -> Iterator[Check]:
    dataset = open_dataset("mnist", root)
    yield _count(dataset, "train", MNIST_TRAIN)
    yield _count(dataset, "test", MNIST_TEST)
    published, regenerated = mnist.corrupted_folders(root)
    if published.is_dir() or not regenerated.is_dir():
        for corruption in MNIST_CORRUPTIONS if published.is_dir() else MNIST_CORRUPTIONS[:1]:
            yield _count(dataset, corruption, MNIST_TEST)
        return
    files = {corruption: regenerated / corruption / "test_images.npy" for corruption in MNIST_CORRUPTIONS}
    yield from _regenerated(regenerated, files, (1,))


def _regenerated(folder: Path, files: Mapping[str, Path], severities: tuple[int, ...]) -> Iterator[Check]:
    """Hash every block the manifest lists; say which corruptions and severities are not there."""
    manifest = Manifest.read(folder)
    yield Check(
        "manifest", True, f"seed {manifest.seed}, engine {manifest.version}, {manifest.textures} frost"
    )
    for corruption, file in files.items():
        done = manifest.parts(corruption)
        if not done:
            yield Check(corruption, False, f"missing: not in {folder / 'manifest.json'}")
            continue
        yield _attempt(corruption, partial(_hashes, file, corruption, done, severities))


def _hashes(file: Path, corruption: str, done: Mapping[str, str], severities: tuple[int, ...]) -> Check:
    if not file.is_file():
        return Check(corruption, False, f"missing: {file}")
    images = load_array(file, dtype="uint8")
    size = len(images) // len(severities)
    for level, expected in done.items():
        first = (int(level) - 1) * size
        digest = hashlib.sha256()
        for start in range(first, first + size, 1000):
            digest.update(images[start : min(start + 1000, first + size)].tobytes())
        if digest.hexdigest() != expected:
            return Check(corruption, False, f"{file}: severity {level} differs from its checksum; delete it")
    absent = [str(level) for level in severities if str(level) not in done]
    note = f"; severities not made: {', '.join(absent)}" if absent else ""
    return Check(corruption, True, f"{size:,} images, checksums right for severity {', '.join(done)}{note}")


def _imagenet(root: Path) -> Iterator[Check]:
    dataset = open_dataset("imagenet", root)
    classes = len(dataset.classes)
    yield Check(
        "classes", classes == IMAGENET_CLASSES, f"{classes:,} class folders, published {IMAGENET_CLASSES:,}"
    )
    yield _count(dataset, "train", IMAGENET_TRAIN)
    yield _count(dataset, "test", IMAGENET_TEST)
    present = [c for c in CORRUPTIONS if any((f / c).is_dir() for f in imagenet.corrupted_folders(root))]
    for corruption in present or CORRUPTIONS[:1]:
        yield _count(dataset, corruption, IMAGENET_TEST)


def _kitti(root: Path) -> Iterator[Check]:
    dataset = open_dataset("kitti", root)
    for domain, expected in kitti.PAPER_FRAMES.items():
        yield _beside_paper(dataset, domain, expected, exact=domain == "source")


def _harth(root: Path) -> Iterator[Check]:
    dataset = open_dataset("harth", root)
    yield _beside_paper(dataset, "source", harth.PAPER_SOURCE_WINDOWS, exact=False)
    for subject, expected in harth.PAPER_WINDOWS.items():
        if subject in dataset.absent:
            yield Check(subject, False, f"missing: {harth.subject_folder(root) / subject}.csv")
        else:
            yield _beside_paper(dataset, subject, expected, exact=False)


def _extrasensory(root: Path) -> Iterator[Check]:
    dataset = open_dataset("extrasensory", root)
    folder = extrasensory.user_folder(root)
    users = len(list(folder.glob(f"*{extrasensory.SUFFIX}")))
    yield Check("users", users == 60, f"{users} user files, published 60")
    yield _beside_paper(dataset, "source", extrasensory.PAPER_SOURCE_WINDOWS, exact=False)
    for uuid, expected in extrasensory.PAPER_WINDOWS.items():
        if uuid[:3] in dataset.absent:
            yield Check(uuid[:3], False, f"missing: {folder / uuid}{extrasensory.SUFFIX}")
        else:
            yield _beside_paper(dataset, uuid[:3], expected, exact=False)
    yield Check("difference", None, extrasensory.DIFFERENCE)


def _hapt(root: Path) -> Iterator[Check]:
    recordings = hapt.read_recordings(hapt.raw_folder(root))
    users = {user for _, user in recordings}
    segments = sum(len(parts) for parts in recordings.values())
    for what, found, expected in (
        ("recordings", len(recordings), HAPT_RECORDINGS),
        ("users", len(users), HAPT_USERS),
        ("labelled segments", segments, HAPT_SEGMENTS),
    ):
        yield Check(what, found == expected, f"{found:,}, published {expected:,}")
    dataset = open_dataset("hapt", root)
    for domain in ("source", *dataset.targets):
        yield _attempt(domain, partial(_windows, dataset, domain))


def _windows(dataset: Dataset, domain: str) -> Check:
    return Check(domain, None, f"{len(dataset.domain(domain)):,} windows")


def _digits(root: Path) -> Iterator[Check]:
    dataset = open_dataset("digits", root)
    for domain in dataset.domains:
        found = len(dataset.domain(domain))
        yield Check(domain, found > 0, f"{found:,} images, made from scikit-learn's digits")


_STEPS: Mapping[str, Callable[[Path], Iterator[Check]]] = {
    "cifar10": lambda root: _cifar("cifar10", root),
    "cifar100": lambda root: _cifar("cifar100", root),
    "imagenet": _imagenet,
    "mnist": _mnist,
    "kitti": _kitti,
    "harth": _harth,
    "extrasensory": _extrasensory,
    "hapt": _hapt,
    "digits": _digits,
}


def status(name: str, root: Path) -> tuple[bool, str]:
    """Whether a dataset can be opened and, in one line, which of its domains have their files."""
    try:
        dataset = open_dataset(name, root)
    except (MissingData, BadData) as error:
        return False, str(error)
    usable, origins = [], set()
    for domain in dataset.targets:
        try:
            origins.add(dataset.domain(domain).origin)
            usable.append(domain)
        except (MissingData, BadData) as error:
            if len(dataset.targets) == 1:
                return False, str(error)
    total = len(dataset.targets) + len(dataset.absent)
    how = f" ({', '.join(sorted(origins))})" if origins else ""
    return bool(usable), f"{len(usable)} of {total} target domains{how}"

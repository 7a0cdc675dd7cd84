"""Synthetic recordings in HAPT's published format, to try things out without the real data."""

from pathlib import Path

import numpy as np

ACTIVITIES = (1, 2, 3, 4, 5, 6)  # walking, upstairs, downstairs, sitting, standing, laying
HZ = 50


def write_synthetic_hapt(root: str | Path, *, sources: int = 4, targets: int = 2, seconds: int = 20) -> Path:
    """Write `HAPT/RawData` under `root`: six activities per user; the targets' sensors are worn differently.

    Args:
        root: The data root to write into.
        sources: How many of the source users 1-21 to write.
        targets: How many of the target users 22-30 to write.
        seconds: Length of a segment; each activity has two segments.
    """
    folder = Path(root) / "HAPT" / "RawData"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    segments = []
    users = [*range(1, 1 + sources), *range(22, 22 + targets)]
    for experiment, user in enumerate(users, start=1):
        pieces, start = [], 1
        for activity in rng.permutation(np.repeat(ACTIVITIES, 2)).tolist():
            pieces.append(_signal(activity, seconds * HZ, rng))
            segments.append((experiment, user, activity, start, start + seconds * HZ - 1))
            start += seconds * HZ
        rows = np.concatenate(pieces)
        if user >= 22:  # a looser strap: weaker swings, a tilt, more noise
            rows = 0.6 * rows + 0.25 + 0.05 * rng.normal(size=rows.shape)
        name = f"exp{experiment:02d}_user{user:02d}.txt"
        np.savetxt(folder / f"acc_{name}", rows[:, :3], fmt="%.5f")
        np.savetxt(folder / f"gyro_{name}", rows[:, 3:], fmt="%.5f")
    lines = [" ".join(map(str, segment)) for segment in segments]
    (folder / "labels.txt").write_text("\n".join(lines) + "\n")
    return Path(root)


def _signal(activity: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Make the accelerometer and gyroscope signals of one activity, which has its own rhythm, strength and posture."""
    time = np.arange(length) / HZ
    rhythm, strength = {1: (2.0, 0.5), 2: (1.4, 0.4), 3: (2.6, 0.7)}.get(activity, (0.3, 0.02))
    posture = {4: (0.9, 0.3, 0.1), 5: (1.0, 0.0, 0.0), 6: (0.0, 0.7, 0.7)}.get(activity, (1.0, 0.1, 0.0))
    phase = rng.uniform(0, 2 * np.pi, 6)
    swing = strength * np.sin(2 * np.pi * rhythm * time[:, None] * np.array([1, 2, 1, 1, 1, 2]) + phase)
    return swing + np.array([*posture, 0, 0, 0]) + 0.05 * rng.normal(size=(length, 6))

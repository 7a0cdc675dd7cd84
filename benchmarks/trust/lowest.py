"""Install the lowest versions that pyproject.toml allows into a scratch environment and run tests there.

    python -m benchmarks.trust.lowest --folder /somewhere/scratch

torch is held at the version of constraints.txt: its lower bound is older than the CPU builds that can be had
everywhere. `pip-audit` looks at what is installed, where it can reach its service.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .common import TREE, write

QUICK = [
    "tests/data",
    "tests/models",
    "tests/nn/test_iabn.py",
    "tests/methods/test_note.py",
    "tests/methods/test_baselines.py",
    "tests/report",
    "tests/test_checkpoint.py",
    "tests/test_evaluation.py",
    "tests/test_memory.py",
    "tests/streams",
]


def lowest(requirements: list[str], held: dict[str, str]) -> list[str]:
    """Turn lower bounds into exact versions.

    Example:
        >>> lowest(["numpy>=1.26", "torch>=2.4"], {"torch": "2.13.0"})
        ['numpy==1.26', 'torch==2.13.0']
    """
    pinned = []
    for requirement in requirements:
        found = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement.strip())
        if found is None:
            raise ValueError(f"expected name>=version in pyproject.toml, got {requirement!r}")
        name, version = found.groups()
        pinned.append(f"{name}=={held.get(name, version)}")
    return pinned


def project() -> tuple[list[str], list[str], dict[str, str]]:
    """What the package needs, what its tests need, and which versions are held."""
    if sys.version_info < (3, 11):
        raise ValueError("reading pyproject.toml takes Python 3.11 or later")
    import tomllib

    table = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    extras = table["optional-dependencies"]
    tests = [need for need in extras["test"] if not need.startswith(("selenium", "note-tta["))]
    tests += extras["experiments"]
    lines = (TREE / "constraints.txt").read_text().splitlines()
    held = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return table["dependencies"], tests, held


def main() -> int:
    """Install, test, audit, write; the exit code is that of the tests."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.lowest", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to make the environment; else a temporary one")
    parser.add_argument("--tests", nargs="+", default=QUICK)
    arguments = parser.parse_args()
    needs, tests, held = project()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        python = folder / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pins = lowest(needs, held) + lowest(tests, held)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *pins], check=True)
        listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True, text=True)
        installed = {entry["name"].lower(): entry["version"] for entry in json.loads(listed.stdout)}
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        marks = ["-m", "not slow and not real_data and not browser and not ray"]
        done = subprocess.run([*command, *marks, *arguments.tests], cwd=TREE, capture_output=True, text=True)
    print(done.stdout[-3000:], done.stderr[-2000:], file=sys.stderr)
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)
    }
    write(
        "lowest",
        {
            "versions": {
                pin.split("==")[0]: installed[pin.split("==")[0].lower()] for pin in lowest(needs, held)
            },
            "held_above_its_lower_bound": sorted(held),
            "tests": arguments.tests,
            "counts": counts,
            "pip_audit": audit(pins),
        },
    )
    return done.returncode


def audit(pins: list[str]) -> str:
    """What `pip-audit` says of these versions, or why it could not say anything."""
    with tempfile.TemporaryDirectory() as folder:
        needs = Path(folder, "requirements.txt")
        needs.write_text("\n".join(pins))
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "-r",
            str(needs),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return "it did not answer in five minutes"
    try:
        looked_at = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return f"it could not run ({(done.stderr.strip().splitlines() or ['no output'])[-1][:120]})"
    audited = [entry for entry in looked_at if "skip_reason" not in entry]
    found = sum(len(entry["vulns"]) for entry in audited)
    if not audited:
        return f"it could not look any of {len(looked_at)} packages up"
    return (
        f"{found} known vulnerabilities in {len(audited)} of {len(looked_at)} packages that it could look up"
    )


if __name__ == "__main__":
    sys.exit(main())

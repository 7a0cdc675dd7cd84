"""The core needs torch, numpy and safetensors only; what else is missing is told in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OTHERS = (
    "scipy",
    "sklearn",
    "PIL",
    "matplotlib",
    "rich",
    "typer",
    "click",
    "ray",
    "pandas",
    "fastapi",
    "uvicorn",
)
MAIN = "from note_tta.__main__ import main; main()"


def without_others(code, *arguments, others=OTHERS):
    """Run code in a process in which no package but the core's can be imported, or only some cannot."""
    blocked = f"import sys\nfor name in {others!r}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_package_requires_three_others():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [requirement.split(">")[0] for requirement in project["dependencies"]]
    assert names == ["torch", "numpy", "safetensors"]
    assert {"experiments", "ray", "all", "test", "lint", "docs"} <= project["optional-dependencies"].keys()


def test_the_core_converts_adapts_saves_and_restores_with_nothing_else(tmp_path):
    code = """
import torch, note_tta as tta
from torch import nn
for name in tta.__all__:
    if name not in ("data",):
        getattr(tta, name)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
method = tta.NOTE(tta.convert_iabn(model))
x, y = torch.rand(130, 1, 8, 8), torch.arange(130) % 3
order = tta.streams.dirichlet(y, 0.5, torch.Generator().manual_seed(0))
tta.adapt(model)(x)
result = tta.evaluate(method, [(x[part], y[part]) for part in order.split(32)], progress=True)
tta.save_state(sys.argv[1], method)
other = tta.NOTE(model)
tta.load_state(sys.argv[1], other)
with tta.Fleet(model, spill=sys.argv[2]) as fleet:
    fleet(["a", "b"] * 65, x)
    print(result.samples, method.counters["updates"], other.counters["updates"], fleet.counters("a")["updates"])
"""
    done = without_others(code, str(tmp_path / "state.pt"), str(tmp_path / "streams"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "130 2 2 1\n"


@pytest.mark.parametrize(
    ("module", "package"), [("data", "scipy"), ("train", "scipy"), ("experiments.worker", "scipy")]
)
def test_a_missing_extra_names_its_command(module, package):
    done = without_others(f"import note_tta.{module}")
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(f"needs {package}: pip install 'note-tta[experiments]'"), done.stderr


def test_the_command_line_says_what_to_install_in_one_line():
    done = without_others(MAIN, "--help")
    assert done.returncode == 1
    assert done.stderr == "error: the command line needs typer: pip install 'note-tta[experiments]'\n"
    assert "Traceback" not in done.stderr


def test_a_part_that_lacks_its_packages_is_one_line_of_the_command_line():
    done = without_others(MAIN, "data", "list", others=("scipy",))
    assert done.returncode == 2
    assert done.stderr == "error: note_tta.data needs scipy: pip install 'note-tta[experiments]'\n"

import json

import pytest

from note_tta import demo as module
from note_tta.demo import run_demo

SHOWN = tuple(name for name in module.SHOWN if name != "cotta")
"""CoTTA alone takes as long as all the others together."""


@pytest.mark.slow
def test_the_demo_tells_the_papers_story(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHOWN", SHOWN)
    steps = []
    demo = run_demo(tmp_path / "demo", seed=3, on_step=steps.append)
    errors = json.loads(demo.errors.read_text())
    assert {stream: set(rows) for stream, rows in errors.items()} == {
        s: set(SHOWN) for s in ("correlated", "iid")
    }
    correlated, iid = errors["correlated"], errors["iid"]
    for name in ("bn_stats", "pl", "tent"):
        assert correlated[name] > correlated["source"] and correlated[name] > iid[name] + 20
    assert correlated["note"] == min(error for name, error in correlated.items() if name != "adapt")
    assert correlated["adapt"] < correlated["note"] and iid["adapt"] < iid["note"] + 0.5
    assert abs(correlated["note"] - iid["note"]) < 3 and iid["note"] < iid["source"]
    page = demo.page.read_text()
    assert (
        "<html" in page
        and "NOTE" in page
        and "adapt (ours)" in page
        and "http://" not in page.replace("http://www.w3.org", "")
    )
    assert len(steps) == 2 + 2 * len(SHOWN)

"""The page: it is whole, reads back, needs nothing else, and no name can break it."""

import base64
import io
import json
import re

import pytest
import torch

import note_tta as tta
from note_tta.checks import example_images, example_network
from note_tta.watch.page import page, picture


@pytest.fixture(scope="module")
def watch():
    watch = tta.Watch(
        tta.NOTE(example_network(), interval=16), source=[example_images(64, seed=9)], look=64, sample=16
    )
    for part in example_images(300).split(50):
        watch(part)
    return watch


def content(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1])


def test_it_shows_what_was_seen(watch, tmp_path):
    path = watch.report(tmp_path / "page.html")
    data = content(path.read_text(encoding="utf-8"))
    assert data["state"] == watch.health.state
    assert data["samples"] == [16, 32, 48, 64, 128, 192, 256]
    charts = {chart["title"]: chart["lines"] for chart in data["charts"]}
    assert set(charts["Predictions over time"]) == {"0", "1", "2", "3", "4"}
    assert set(charts["Drift by layer"]) == {"1", "4"}
    assert all(len(line) == 7 for lines in charts.values() for line in lines.values())
    assert len(data["memory"]["pictures"]) == len(watch.memory)


def test_it_needs_nothing_else(watch):
    html = page(watch)
    assert "new uPlot(" in html and "uPlot=function" in html.replace(" ", "")
    assert not re.search(r'(src|href)="?https?:', html)
    assert not re.search(r"@\w+@", html)


def test_no_cause_can_break_it(watch):
    fork = watch.fork()
    fork.journal.tell(1, "alarm", "</script><script>alert(1)</script>", {})
    html = page(fork)
    assert "</script><script>alert" not in html
    assert content(html)["events"][0][3] == "</script><script>alert(1)</script>"


def test_a_stream_that_has_just_begun_has_a_page(tmp_path):
    watch = tta.Watch(tta.Source(example_network()))
    data = content(watch.report(tmp_path / "page.html").read_text(encoding="utf-8"))
    assert data["charts"] == [] and data["memory"]["text"] == "This method has no memory."


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_a_png_of_the_sample(channels):
    image = pytest.importorskip("PIL.Image")
    x = torch.randint(256, (channels, 5, 7), generator=torch.Generator().manual_seed(0)) / 255
    file = io.BytesIO(base64.b64decode(picture(x).partition(",")[2]))
    found = image.open(file)
    assert found.size == (7, 5) and len(found.getbands()) == channels
    pixels = torch.tensor(list(found.tobytes())).view(5, 7, channels).permute(2, 0, 1)
    assert torch.equal(pixels, (x * 255).round().long())

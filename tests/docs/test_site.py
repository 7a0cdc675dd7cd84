"""The site builds without a warning, its links resolve, and generated parts show what is there."""

import json
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import matplotlib
import pytest


class Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self):
        super().__init__()
        self.addresses, self.anchors = set(), set()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if "id" in attributes:
            self.anchors.add(attributes["id"])
        for name in ("href", "src"):
            if attributes.get(name):
                self.addresses.add(attributes[name])


def parsed(path):
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


@pytest.mark.slow
def test_every_link_of_the_built_site_resolves(site):
    pages = {path: parsed(path) for path in site.rglob("*.html")}
    assert len(pages) > 12
    broken, outside = [], set()
    for path, links in pages.items():
        if path.name == "404.html":
            continue  # its addresses are relative to wherever the site is served from
        for address in links.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                outside.add(f"{parts.scheme}://{parts.netloc}")
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {address}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {address} (no such anchor)")
    assert broken == []
    assert not any("fonts.g" in address or "cdn" in address for address in outside)


@pytest.mark.slow
def test_every_experiment_is_on_the_reproduce_page(site):
    from note_tta.experiments.catalog import EXPERIMENTS

    text = (site / "reproduce" / "index.html").read_text(encoding="utf-8")
    assert [name for name in EXPERIMENTS if f"note-tta reproduce {name}</code>" not in text] == []
    assert "Two cores" in text


def figure(**changes):
    usual = {
        "name": "IABN ÷ BatchNorm",
        "value": 1.1,
        "low": 1.0,
        "high": 1.234,
        "bar": 1.25,
        "at_most": True,
    }
    return usual | {"unit": "", "kept": True} | changes


def test_the_benchmarks_page_shows_what_was_measured(tool, tmp_path):
    content = {
        "provenance": {"version": "0.1.0", "commit": "abcdef0123456789", "torch": "2.13", "threads": 2},
        "kernel": {"active": True, "instruction_set": "avx2"},
        "figures": [figure(), figure(name="slow", value=123.4, bar=8, at_most=False, kept=False, unit="µs")],
    }
    (tmp_path / "speed.json").write_text(json.dumps(content))
    (tmp_path / "soak.json").write_text(json.dumps({"rss_growth": 1024, "deep": {"kept": True}, "list": [1]}))
    page = tool("benchmark_page").benchmarks(tmp_path)
    assert "note-tta 0.1.0, commit abcdef0123, torch 2.13, 2 threads, kernel: avx2." in page
    assert "| IABN ÷ BatchNorm | 1.10 | 1.00 – 1.23 | ≤ 1.25 | kept |" in page
    assert "| slow | 123 µs | 1.00 – 1.23 | ≥ 8 µs | **missed** |" in page
    assert "| rss growth | 1,024 |" in page and '??? note "Deep"' in page and "    | kept | yes |" in page


def test_the_benchmarks_page_says_where_nothing_is_measured(tool, tmp_path):
    assert "No measurement is committed yet" in tool("benchmark_page").benchmarks(tmp_path)


def test_times_are_told_in_the_unit_that_fits(tool):
    time = tool("costs")._time
    assert [time(s) for s in (5, 600, 7200, 5 * 86400)] == ["about a minute", "10 min", "2 h", "5 days"]


@pytest.mark.parametrize("name", ["shrinkage", "memories", "batch-statistics", "latency"])
def test_a_drawing_is_the_one_that_is_committed(tool, root, name):
    committed = (root / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    if f"Matplotlib v{matplotlib.__version__}," not in committed:
        pytest.skip("drawn by another version of matplotlib")
    assert tool("drawings").drawing(name) == committed, "run `make figures`"


def test_pages_that_are_not_there_are_left_out_of_the_nav(tool, tmp_path):
    pytest.importorskip("mkdocs", reason="the docs extra is not installed")
    (tmp_path / "index.md").write_text("# Home")
    nav = [{"Home": "index.md"}, {"More": [{"Results": "results.md"}, {"Benchmarks": "benchmarks.md"}]}]
    expected = [{"Home": "index.md"}, {"More": [{"Benchmarks": "benchmarks.md"}]}]
    assert tool("hooks")._present(nav, tmp_path) == expected

import json
import re
from html.parser import HTMLParser

import pytest
import torch

from note_tta.evaluation import Result
from note_tta.report.build import make_report
from note_tta.report.html_page import demo_page, page, report_page, section

VOID = {"meta", "link", "br", "path", "use"}


class Balance(HTMLParser):
    """Fails on a tag that is not closed in its place."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, f"</{tag}> out of place at {self.getpos()}"


@pytest.fixture(scope="module")
def html(everything):
    return report_page(make_report(everything))


def test_the_page_is_well_formed(html):
    parser = Balance()
    parser.feed(html)
    assert parser.open == []


def test_the_page_needs_nothing_else(html):
    without_data = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.S)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', without_data)
    assert "@import" not in html
    assert not re.findall(r"url\((?!#)", html)
    assert "fetch(" not in html


def test_the_data_reads_back(html):
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])
    assert {panel["title"] for panel in data["panels"]} >= {"CIFAR10-C", "HAPT"}
    assert all(max(p["labels"]) < len(data["colours"][str(p["classes"])]) for p in data["panels"])
    assert all(row in data["rows"] for panel in data["panels"] for row in panel["curves"])


def test_names_cannot_break_the_page():
    html = page("</title><script>x", "<b>", [section("a", "</h2>", "<i>")])
    assert "</title><script>x" not in html.replace("&lt;", "")
    assert "&lt;b&gt;" in html


def test_page_of_results_at_hand():
    labels = torch.arange(300) // 100
    result = Result(predictions=labels.roll(10), labels=labels, seconds=1.0)
    results = {"Temporally correlated": {"source": result, "note": result}}
    html = demo_page(results, title="Digits", intro="A demo.")
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])
    (panel,) = data["panels"]
    assert panel["stream"] == "Temporally correlated"
    assert [data["rows"][row][0] for row in panel["curves"]] == ["Source", "NOTE"]
    assert panel["curves"]["source"][-1] == pytest.approx(result.error, abs=0.06)
    assert panel["samples"] == 300

import re

import pytest

from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.report.latex import latex
from note_tta.report.markdown_tables import markdown
from note_tta.report.scores import Scores
from note_tta.report.tables import make_tables


@pytest.fixture(scope="module")
def table(everything):
    return make_tables(EXPERIMENTS["table1"], Scores(everything))[0]


def test_markdown_has_ours_the_papers_and_the_difference(table):
    lines = markdown(table).splitlines()
    note = next(line for line in lines if line.startswith("| NOTE |"))
    assert re.match(r"\| NOTE \| \*\*2\d\.\d ± \d\.\d\*\* \(21\.1 ± 0\.6, [+−]?\d\.\d\) \|", note)
    tent = next(line for line in lines if line.startswith("| TENT |"))
    assert "▲ (76.4 ± 2.7, " in tent
    star = next(line for line in lines if line.startswith(r"| NOTE\* |"))
    assert star.startswith(r"| NOTE\* | – | – | – | – | ")
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_latex_is_balanced_and_escaped(table):
    text = latex(table)
    assert text.count("{") == text.count("}")
    assert text.count(r"\begin") == text.count(r"\end")
    body = [line for line in text.splitlines() if line.endswith(r"\\")][2:]
    assert {line.count("&") for line in body} == {3 * len(table.columns)}
    assert r"$\uparrow$" in text
    assert r"\textbf{" in text
    assert not set("±–−·") & set(text)

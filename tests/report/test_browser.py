"""The page in a real browser: it renders, sorts, toggles, and fits a phone."""

import pytest

from note_tta.report.build import make_report
from note_tta.report.html_page import report_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def address(everything, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(report_page(make_report(everything)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    browser.set_window_size(1280, 900)
    browser.get(address)
    browser.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
    yield browser
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def column(browser, place):
    script = """return [...document.querySelectorAll("[data-table='table1'] tbody tr")]
        .map(row => row.children[arguments[0]].dataset.value)"""
    return browser.execute_script(script, place)


def test_it_renders(opened):
    assert opened.title == "Our results and the paper's"
    assert opened.execute_script("return document.querySelectorAll('table.numbers').length") > 5
    heights = opened.execute_script(
        "const all = [...document.querySelectorAll('figure svg, #chart canvas')];"
        "return all.map(s => s.getBoundingClientRect().height)"
    )
    assert len(heights) >= 5
    assert min(heights) > 100
    painted = opened.execute_script(
        "const all = [...document.querySelectorAll('table.heat td span')];"
        "return new Set(all.map(s => s.style.background)).size"
    )
    assert painted > 20


def test_a_click_on_a_heading_sorts_and_a_second_turns_it_round(opened):
    button = opened.find_element("css selector", "[data-table='table1'] th.sortable:nth-child(2) button")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    values = [float(value) for value in column(opened, 1) if value]
    assert values == sorted(values)
    assert column(opened, 1)[-1] == ""
    button.click()
    values = [float(value) for value in column(opened, 1) if value]
    assert values == sorted(values, reverse=True)
    assert column(opened, 1)[-1] == ""
    marked = "return document.querySelectorAll(\"[data-table='table1'] th[aria-sort=descending]\").length"
    assert opened.execute_script(marked) == 1


def test_methods_are_toggled(opened):
    canvas = "return document.querySelector('#chart canvas').toDataURL()"
    before = opened.execute_script(canvas)
    button = opened.find_element("css selector", "#toggles button[data-method=tent]")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert opened.execute_script(canvas) != before
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert opened.execute_script(canvas) == before
    assert button.get_attribute("aria-pressed") == "true"


def test_the_pointer_tells_each_methods_error(opened):
    final = "return document.querySelector('#toggles [data-method=note] b').textContent"
    before = opened.execute_script(final)
    opened.execute_script("""const over = document.querySelector('#chart .u-over');
        const box = over.getBoundingClientRect();
        over.dispatchEvent(new MouseEvent('mousemove',
            {clientX: box.left + 5, clientY: box.top + 5, bubbles: true}))""")
    opened.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert opened.execute_script(final) != before


def test_streams_are_chosen(opened):
    runs = "return document.querySelectorAll('#strip i').length"
    correlated = opened.execute_script(runs)
    opened.execute_script(
        "const select = document.getElementById('choose-stream');"
        "select.selectedIndex = 1; select.dispatchEvent(new Event('change'))"
    )
    assert opened.execute_script(runs) > 3 * correlated


def test_a_heat_map_shows_the_papers_numbers_and_the_difference(opened):
    block = opened.find_element("css selector", "[data-table='table-domains-cifar10-iid']")
    cell = block.find_element("css selector", "tbody tr:last-child td span")
    shown = []
    for name in ("paper", "difference", "ours"):
        button = block.find_element("css selector", f"button[data-show={name}]")
        opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        shown.append(float(cell.text.replace("−", "-")))
    paper, difference, ours = shown
    assert paper == 23.8
    assert difference == pytest.approx(ours - paper, abs=0.06)


def test_dark_and_light(opened):
    background = "return getComputedStyle(document.body).backgroundColor"
    before = opened.execute_script(background)
    opened.find_element("id", "theme").click()
    assert opened.execute_script(background) != before


def test_it_fits_a_phone(browser, address):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(address)
        assert browser.execute_script("return innerWidth") == 390
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        wide = browser.execute_script(
            "const parts = 'main, main > section, .block, .card, figure, .explorer, .verdicts > div, #strip';"
            "return [...document.querySelectorAll(parts)]"
            ".filter(e => e.getBoundingClientRect().right > 391).length"
        )
        assert wide == 0
        assert [entry["message"] for entry in browser.get_log("browser")] == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

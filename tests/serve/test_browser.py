"""The dashboard in a real browser: drift is seen, the buttons work, it fits a phone."""

import time

import pytest
import torch

import note_tta as tta
from note_tta.serve import Client, Limits
from note_tta.serve.demo import demo_model, make_cameras

from .helpers import running

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def digits():
    camera = make_cameras(1)[0]
    return camera._images


@pytest.fixture
def page(browser):
    """A service on the digits' network, open in the browser; no error is written to its console."""
    model, classes = demo_model()
    with running(tta.Fleet(model), classes=classes, limits=Limits(rate=1e5)) as address:
        browser.get(address)
        yield browser, Client(address), address
        assert [entry["message"] for entry in browser.get_log("browser")] == []
        browser.get("about:blank")
    browser.get_log("browser")


def until(browser, script, seconds, *arguments):
    """What a script returns as soon as it is something; how long it took is bounded."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = browser.execute_script(f"return {script}", *arguments)
        if found:
            return found
        time.sleep(0.1)
    pytest.fail(f"not within {seconds} s: {script}")


STATE = (
    "[...document.querySelectorAll('.tile')].find(t => t.textContent.startsWith(arguments[0]))?.dataset.state"
)


def test_drift_shows_on_the_wall_within_five_seconds(page, digits):
    browser, client, _ = page
    for start in range(0, 320, 32):
        for name in ("cam-1", "cam-2", "cam-3"):
            client.send(name, digits[start : start + 32])
    until(browser, f"{STATE} === 'steady'", 5, "cam-2")
    generator = torch.Generator().manual_seed(0)
    noisy = (digits[:64] + 0.5 * torch.randn(digits[:64].shape, generator=generator)).clamp(0, 1)
    client.send("cam-2", noisy)
    until(browser, f"{STATE} === 'drifting'", 5, "cam-2")
    until(browser, "document.querySelector('.tile b').textContent === 'cam-2'", 6)
    assert browser.execute_script(f"return {STATE}", "cam-1") == "steady"
    assert "1 drifting" in browser.find_element("id", "states").text


def test_rollback_pause_and_reset_by_button(page, digits):
    browser, client, _ = page
    client.send("cam-1", digits[:200])
    assert client.stream("cam-1")["distance"] > 0
    until(browser, "document.querySelector('.tile')", 5).click()
    until(browser, "document.querySelectorAll('#memory canvas').length", 5)
    assert browser.find_element("id", "stream-title").text == "cam-1"
    browser.find_element("css selector", "[data-do=rollback]").click()
    until(browser, "document.getElementById('done').textContent === 'Rolled back.'", 5)
    assert client.stream("cam-1")["distance"] == 0
    browser.find_element("css selector", "[data-do=pause]").click()
    until(browser, "document.querySelector('[data-do=resume]')", 5)
    assert client.stream("cam-1")["paused"]
    browser.find_element("css selector", "[data-do=resume]").click()
    until(browser, "document.querySelector('[data-do=pause]')", 5)
    browser.execute_script("window.confirm = () => true")
    browser.find_element("css selector", "[data-do=reset]").click()
    until(browser, "document.getElementById('done').textContent === 'Reset.'", 5)
    assert client.stream("cam-1")["counters"]["updates"] == 0
    told = until(browser, "document.querySelectorAll('#events tr').length >= 4", 5)
    assert told
    widths = "[...document.querySelectorAll('#errors canvas, #distance canvas')].map(c => c.clientWidth)"
    before = browser.execute_script(f"return {widths}")
    browser.set_window_size(700, 900)
    narrower = browser.execute_script(f"return {widths}")
    browser.set_window_size(1280, 900)
    assert len(before) == len(narrower) == 2 and before != narrower


def test_the_keyboard_reaches_a_stream_and_its_buttons(page, digits):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser, client, _ = page
    client.send("cam-1", digits[:4])
    until(browser, "document.querySelector('.tile')", 5)

    def press_until(what, most=10):
        for _ in range(most):
            ActionChains(browser).send_keys(Keys.TAB).perform()
            if browser.execute_script(f"return document.activeElement.matches('{what}')"):
                return
        pytest.fail(f"the keyboard does not reach {what}")

    press_until(".tile")
    label = browser.execute_script("return document.activeElement.getAttribute('aria-label')")
    assert label.startswith("cam-1: learning, expected error") and label.endswith("4 samples")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, "!document.getElementById('stream-view').hidden", 5)
    press_until("[data-do=pause]")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, "document.querySelector('[data-do=resume]')", 5)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(page, digits, scheme):
    browser, client, _ = page
    client.send("a-stream-with-a-rather-long-name-for-a-camera", digits[:80])
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        until(browser, "document.querySelector('.tile')", 5)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        browser.execute_script("document.querySelector('.tile').click()")
        until(browser, "document.querySelectorAll('#memory canvas').length", 5)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(13, 17, 23)") == (scheme == "dark")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_page_asks_for_the_token(browser, digits):
    model, classes = demo_model()
    token = "a-token-of-many-letters"
    with running(tta.Fleet(model), token=token, classes=classes) as address:
        Client(address, token).send("cam-1", digits[:4])
        browser.get(address)
        until(browser, "document.getElementById('ask-token').open", 5)
        browser.find_element("id", "token").send_keys(token + "\n")
        until(browser, "document.querySelector('.tile')", 8)
        browser.get("about:blank")
    browser.get_log("browser")

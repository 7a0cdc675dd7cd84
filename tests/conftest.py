import os
import shutil
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def data_root() -> Path:
    """The folder of published datasets, for tests marked `real_data`."""
    root = os.environ.get("NOTE_TTA_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("NOTE_TTA_DATA does not point at a folder of published datasets")
    return Path(root)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A real Chromium with a profile of its own, whose console is kept."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("profile")
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
    for flag in (*flags, "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.set_window_size(1280, 900)
    yield started
    started.quit()

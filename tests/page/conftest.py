"""A browser, models of each kind behind servers, and a tab on the page of texts."""

import pytest
from playwright.sync_api import sync_playwright

from serving.page.app import Settings
from tests.page.tabs import CHROMIUM, FLAGS, start, tab_on
from tests.serving.conftest import add_version, save_upper
from tests.serving.page.models import save_predictor, save_reader


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("browser")
    add_version(save_upper(root / "saved"), root / "upper", 1)
    return root / "upper"


@pytest.fixture(scope="module")
def served(base):
    server = start(base)
    yield f"127.0.0.1:{server.port}"
    server.close()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=FLAGS.split()
        )
        yield opened
        opened.close()


@pytest.fixture
def view(browser, served):
    with tab_on(browser, Settings(served, "upper", example="one two three")) as tab:
        yield tab


@pytest.fixture(scope="module")
def bright(tmp_path_factory):
    root = tmp_path_factory.mktemp("bright")
    add_version(save_reader(root / "saved"), root / "bright", 1)
    server = start(root / "bright")
    yield f"127.0.0.1:{server.port}"
    server.close()


@pytest.fixture(scope="module")
def mean(tmp_path_factory):
    root = tmp_path_factory.mktemp("mean")
    add_version(save_predictor(root / "saved"), root / "mean", 1)
    server = start(root / "mean")
    yield f"127.0.0.1:{server.port}"
    server.close()

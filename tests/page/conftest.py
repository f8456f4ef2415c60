"""A browser, models of each kind behind servers, and a tab on the page of texts."""

import pytest
from playwright.sync_api import sync_playwright

from serving.page.app import PageSettings
from tests.page.tabs import CHROMIUM, FLAGS, start, tab_on
from tests.serving.conftest import add_version, save_upper
from tests.serving.page.models import save_predictor, save_reader, save_unsure


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("browser")
    add_version(save_upper(root / "saved"), root / "upper", 1)
    return root / "upper"


@pytest.fixture(scope="session")
def served(base):
    server = start(base)
    yield f"127.0.0.1:{server.port}"
    server.close()


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=FLAGS.split()
        )
        yield opened
        opened.close()


@pytest.fixture
def view(browser, served):
    with tab_on(browser, PageSettings(served, "upper", example="one two three")) as tab:
        yield tab


def _served_model(name, save):
    """A fixture: the address of a server of a model that `save` writes."""

    @pytest.fixture(scope="session", name=name)
    def fixture(tmp_path_factory):
        root = tmp_path_factory.mktemp(name)
        add_version(save(root / "saved"), root / name, 1)
        server = start(root / name)
        yield f"127.0.0.1:{server.port}"
        server.close()

    return fixture


_bright = _served_model("bright", save_reader)
_unsure = _served_model("unsure", save_unsure)
_mean = _served_model("mean", save_predictor)

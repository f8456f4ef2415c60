"""A browser, models of each kind behind servers, and a tab on the page of texts."""

import pytest
from playwright.sync_api import expect, sync_playwright

from serving.page._app import PageSettings
from tests.page.tabs import CHROMIUM, FLAGS, tab_on
from tests.serving.conftest import kinds_server, saved, shared_server  # noqa: F401


@pytest.fixture(scope="session")
def served(shared_server):  # noqa: F811
    return f"127.0.0.1:{shared_server.port}"


@pytest.fixture(scope="session")
def kinds(kinds_server):  # noqa: F811
    return f"127.0.0.1:{kinds_server.port}"


@pytest.fixture(scope="session")
def browser():
    expect.set_options(timeout=60_000)  # other tests may use all cores meanwhile
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

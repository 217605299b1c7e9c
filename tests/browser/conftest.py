"""A real master behind a real browser: Debian's chromium, driven by Playwright.

``shop`` is one master with workers for all tests here; ``page`` is a fresh browser tab that fails
its test for anything it complained about: an error in the console, a broken policy, a request to
another host. Chromium missing is a failure: ``TEST_BROWSER=none`` leaves these tests out.
"""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Node, wait_until
from servers import Server, free_port, selected
from storefront import WORK, Shop

ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Nothing here is even imported where the browser was asked to be left out."""
    left_out = os.environ.get("TEST_BROWSER") == "none"
    return True if left_out and collection_path.name.startswith("test_") else None


def chromium() -> str:
    """The path of the browser's program."""
    for name in ("chromium", "chromium-browser"):
        found = shutil.which(name)
        if found:
            return found
    pytest.fail("no chromium on the PATH (Debian: apt install chromium)", pytrace=False)


@pytest.fixture(scope="module")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Shop]]:
    """``open_shop(*flags)``: a master of its own, closed with the last test."""
    closing: list[Callable[[], Any]] = []

    def start(*flags: str, pools: str = "default=4,other=2") -> Shop:
        server = Server(selected()[0]).start()
        closing.append(server.close)
        port = free_port()
        node = Node(
            tmp_path_factory.mktemp("shop"), server.url, "--ui", f"127.0.0.1:{port}", *flags,
            pools=pools, work=WORK,
        )
        closing.append(node.close)
        node.start(ready=len(pools.split(",")))
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(url), lambda: f"the UI answers:\n{node.log}")
        return Shop(node, url, server)

    yield start
    for close in reversed(closing):
        close()


@pytest.fixture(scope="module")
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """The master that most tests look at."""
    return open_shop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser, started once a file: while it is there, the thread has a running event loop,
    which other tests must not find."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("playwright is missing (pip install -e '.[test]')", pytrace=False)
    path = chromium()
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield running
        running.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """``tab(url, **options)``: a new tab in a context of its own, watched for complaints."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def make(base_url: str, **options: Any) -> Any:
        context = browser.new_context(base_url=base_url, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(8_000)
        page.on("console", lambda said: said.type in ("error", "warning") and complaints.append(
            f"{said.type}: {said.text}"
        ))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: _is_foreign(request.url, base_url) and
                complaints.append(f"a request to {request.url}"))
        page.on("dialog", lambda dialog: (complaints.append(f"alert: {dialog.message}"),
                                          dialog.dismiss()))
        page.complaints = complaints
        return page

    yield make
    for context in contexts:
        context.close()
    assert not complaints, complaints


@pytest.fixture
def page(tab: Callable[..., Any], shop: Shop) -> Any:
    """A tab at the shop."""
    return tab(shop.url)


def _is_foreign(url: str, base_url: str) -> bool:
    return not url.startswith((base_url, "data:", "blob:"))


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/livez", timeout=1).close()
    except OSError:
        return False
    return True

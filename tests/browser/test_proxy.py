"""Behind a real nginx: under a prefix that is kept, taken off, or told by the proxy."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import wait_until
from playwright.sync_api import expect
from servers import free_port
from storefront import Shop

CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    location {prefix} {{
      proxy_pass {upstream}{tail};
      {headers}
      proxy_http_version 1.1;
    }}
  }}
}}
"""

NAMED = "proxy_set_header Host $http_host;"
TOLD = """proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Forwarded-Prefix /ops/jobs;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"""


@pytest.fixture(scope="module")
def prefixed(open_shop: Callable[..., Shop]) -> Shop:
    """A master that is told of its prefix."""
    return open_shop("--ui-prefix", "/ops/jobs", pools="default=2")


@pytest.fixture(scope="module")
def listening(open_shop: Callable[..., Shop]) -> Shop:
    """A master that believes what the proxy forwards, and knows of no prefix itself."""
    return open_shop("--ui-proxies", "127.0.0.1", "--ui-host", "127.0.0.1", pools="default=2")


@pytest.fixture(scope="module", params=["kept", "stripped", "forwarded"])
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of an nginx before it; ``stripped``: it takes the prefix off; ``forwarded``: and
    tells it in a header."""
    if not shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.fail("no nginx on the PATH (Debian: apt install nginx-light)", pytrace=False)
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    stripped, told = request.param != "kept", request.param == "forwarded"
    shop: Shop = request.getfixturevalue("listening" if told else "prefixed")
    (folder / "nginx.conf").write_text(CONFIG.format(
        folder=folder, port=port, upstream=shop.url, headers=TOLD if told else NAMED,
        prefix="/ops/jobs/" if stripped else "/ops/jobs", tail="/" if stripped else "",
    ))
    process = _nginx(folder)
    wait_until(lambda: (folder / "pid").exists(), "nginx runs")
    yield f"http://127.0.0.1:{port}"
    process.send_signal(signal.SIGQUIT)
    process.wait(10)


def _nginx(folder: Path) -> subprocess.Popen[bytes]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program
    return subprocess.Popen(
        [program, "-e", str(folder / "start.log"), "-c", str(folder / "nginx.conf")],
        stderr=subprocess.DEVNULL,
    )


def test_pages_links_stream_and_forms_work_under_the_prefix(
    tab: Callable[..., Any], proxied: str
) -> None:
    page = tab(proxied)
    page.goto("/ops/jobs/")
    expect(page.locator("#stream")).to_have_text("live")
    page.wait_for_selector("#charts[data-drawn]")
    for name in ("Tasks", "Dead", "Workflows", "Limits", "Nodes", "Redis", "Changes", "Submit"):
        page.click(f".bar nav >> text={name}")
        expect(page).to_have_url(re.compile(rf"{proxied}/ops/jobs/{name.lower()}$"))
        expect(page.locator("#stream")).to_have_text("live")
    page.fill("input[name=name]", "add")
    page.press("input[name=name]", "Tab")
    page.fill("input[name='p:a']", "1")
    page.fill("input[name='p:b']", "2")
    page.click("main button:has-text('Submit')")
    expect(page).to_have_url(re.compile(rf"{proxied}/ops/jobs/tasks/default/"))
    expect(page.locator("h1 .state")).to_have_text("succeeded")
    place = page.locator(".note")
    page.click("button[value=resubmit]")
    expect(place).to_contain_text("1 resubmitted")
    assert {cookie["path"] for cookie in page.context.cookies()} <= {"/ops/jobs"}


def test_the_prefix_without_its_slash_leads_to_the_page(
    tab: Callable[..., Any], proxied: str
) -> None:
    page = tab(proxied)
    page.goto("/ops/jobs")
    expect(page.locator("#pool-default")).to_be_visible()

"""Crawls a site from one page on: many pages at once, each host at its own pace, each page once.

    python examples/crawler.py https://example.com/ [HOW_DEEP]

Work that waits for the network: a hundred workers in one process. The limit holds for a host in
the whole cluster, whoever fetches; a page that has to wait for it takes no worker. The address is
the task's key, so a page that is found a second time is no second task.
"""

from __future__ import annotations

import html.parser
import sys
import time
import urllib.request
from urllib.parse import urldefrag, urljoin, urlsplit

import skedulr

#: Pages of one host that are fetched in a second.
PACE = 10


class Links(html.parser.HTMLParser):
    """The addresses that a page leads to."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if tag == "a" and name == "href" and value:
                self.found.append(urldefrag(urljoin(self.base, value)).url)


@skedulr.task(name="fetch", pool="crawl", timeout=30, max_retries=2,
              limit=skedulr.Limit(rate=PACE, key="{host}", burst=1))
def fetch(host: str, address: str, depth: int) -> int:
    """Fetch one page and submit those it leads to, if they are of the same host; its length."""
    with urllib.request.urlopen(address, timeout=20) as answer:
        body: bytes = answer.read(2_000_000)
        if "html" not in answer.headers.get_content_type():
            return len(body)
    if depth:
        links = Links(address)
        links.feed(body.decode("utf-8", "replace"))
        skedulr.submit_many(
            page(link, depth - 1) for link in dict.fromkeys(links.found)
            if urlsplit(link).netloc == host
        )
    return len(body)


def page(address: str, depth: int) -> skedulr.Call[int]:
    """The call that fetches a page: one task for each address, however often it is found."""
    task = fetch.using(key=address, unique=3600, on_duplicate="return")
    return task.bind(urlsplit(address).netloc, address, depth)


def run(address: str, depth: int) -> tuple[int, int]:
    """Crawl ``depth`` links far; how many pages were fetched, and how many failed."""
    skedulr.submit_many([page(address, depth)])
    while True:
        pool = next(one for one in skedulr.stats()["pools"] if one["name"] == "crawl")
        waiting = pool["queued"] + pool["running"] + pool["scheduled"]
        print(f"\r{pool['succeeded']:,} fetched, {waiting:,} to go ", end="", file=sys.stderr)
        if not waiting:
            print(file=sys.stderr)
            return pool["succeeded"], pool["dead"]
        time.sleep(0.2)


if __name__ == "__main__":
    from beside import master

    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    with master("crawler", "crawl=100"):
        print("{} pages, {} failed".format(*run(sys.argv[1], int((*sys.argv, "2")[2]))))

"""The tasks of a web shop, as far as screenshots need them: they wait, report, sometimes fail."""

from __future__ import annotations

import random
import time

import skedulr


class CardDeclined(Exception):
    """The bank said no."""


@skedulr.task(name="payments.charge_card", pool="critical", max_retries=0)
def charge_card(order: str, amount: str, currency: str = "EUR") -> dict[str, str]:
    time.sleep(random.lognormvariate(-3, 0.5))
    if random.random() < 0.08:
        raise CardDeclined(f"order {order}: the bank declined {amount} {currency}")
    return {"order": order, "receipt": f"R-{random.randrange(10**6):06}"}


@skedulr.task(name="mail.send_receipt", pool="mail")
def send_receipt(to: str, order: str) -> str:
    time.sleep(random.lognormvariate(-2.5, 0.6))
    return f"250 queued as {random.randrange(16**8):08x}"


@skedulr.task(name="media.resize_image", max_retries=0)
def resize_image(path: str, width: int) -> dict[str, int]:
    time.sleep(random.lognormvariate(-1.7, 0.7))
    if random.random() < 0.02:
        raise OSError(f"{path}: truncated JPEG, 1,204 bytes left over")
    return {"width": width, "bytes": random.randrange(20_000, 400_000)}


@skedulr.task(name="stock.sync_warehouse", timeout=600)
def sync_warehouse(warehouse: str, items: int = 400) -> int:
    for i in range(items):
        time.sleep(0.25)
        skedulr.report_progress(100 * i / items, f"item {i:,} of {items:,}")
    return items


@skedulr.task(name="search.reindex", pool="slow", timeout=600)
def reindex(shard: int) -> int:
    for i in range(1000):
        time.sleep(0.3)
        skedulr.report_progress(i / 10, f"document {i * 812:,}")
    return shard


@skedulr.task(name="partners.push_stock", timeout=60, limit=[
    skedulr.Limit(concurrency=1, key="{partner}"), skedulr.Limit(rate=30, per=60),
])
def push_stock(partner: str, number: int) -> None:
    time.sleep(2)


@skedulr.task(name="health.ping", max_retries=0)
def ping() -> None:
    time.sleep(0.02)
    if random.random() < 0.2:
        raise ConnectionError("https://shop.example/health: 503")


@skedulr.task(name="stock.poll")
def poll(warehouse: str) -> int:
    return random.randrange(1000)


@skedulr.task(name="report.daily")
def daily(which: str) -> str:
    return f"{which}.pdf"


@skedulr.task(name="mail.digest", pool="mail")
def digest() -> int:
    return 12

"""The shop's tasks. Importing this patches nothing and connects nothing."""

import time

import skedulr

PRICES = {"tea": 4, "cake": 7}


@skedulr.task(name="price_order", timeout=20)
def price_order(item: str, count: int) -> int:
    """A price from a slow system."""
    time.sleep(0.5)
    return PRICES[item] * count

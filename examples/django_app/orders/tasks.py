"""Tasks of this app, found by their module's name."""

from __future__ import annotations

import skedulr

from .models import Order


@skedulr.task(name="send_receipt", timeout=30, retry=skedulr.ExponentialBackoff(base=0.5, cap=10))
def send_receipt(number: int) -> str:
    """May run twice, so it sets a state instead of adding something."""
    order = Order.objects.get(pk=number)
    Order.objects.filter(pk=number).update(state="receipt sent")
    return f"a receipt for {order.item} is sent"

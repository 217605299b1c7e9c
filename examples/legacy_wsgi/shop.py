"""A web shop as such were written for threaded servers: module-level state, a lock, blocking calls.

Nothing in it knows of gevent. What takes long is a task now (``jobs.py``): a request submits it and
waits for its result, and the other requests go on meanwhile, since the server is patched.
"""

import itertools
import json
import os
import threading
import urllib.request

import bottle
from jobs import price_order

app = bottle.Bottle()

orders = {}
numbers = itertools.count(1)
visits = 0
guard = threading.Lock()


@app.get("/")
def front_page():
    global visits
    with guard:
        visits += 1
    return {"visits": visits, "orders": len(orders)}


@app.post("/orders")
def order():
    """Price an order in the background, and answer with the price."""
    wanted = bottle.request.json
    handle = price_order.submit(wanted["item"], wanted["count"])
    price = handle.result(timeout=30)
    with guard:
        number = next(numbers)
        orders[number] = {"number": number, "task": handle.id, "price": price, **wanted}
    return orders[number]


@app.get("/orders/<number:int>")
def show_order(number):
    if number not in orders:
        raise bottle.HTTPError(404, "no such order")
    return orders[number]


@app.get("/stock/<item>")
def stock(item):
    """Ask the supplier, blocking, as one did."""
    with urllib.request.urlopen(f"{os.environ['SUPPLIER_URL']}/{item}", timeout=10) as answer:
        return json.load(answer)

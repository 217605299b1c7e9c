"""A shop: Flask takes orders, workers pack them.

In this folder, with Flask installed:

    skedulr-master --pools default=4 flask_shop:tasks    # finds a server, or brings its own
    flask --app flask_shop run
    curl -X POST localhost:5000/orders -d item=tea       # {"order": 1, "task": "default/..."}
    curl localhost:5000/orders/1                         # {"item": "tea", "state": "packed"}

The task uses the database of the application's context, exactly as a view does.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from flask import Flask, current_app, g, request

import skedulr
from skedulr.integrations.flask import FlaskSkedulr


def on_this_machine(environ: dict[str, Any]) -> bool:
    return bool(environ.get("REMOTE_ADDR") == "127.0.0.1")


tasks = FlaskSkedulr(dashboard_auth=on_this_machine)


def database() -> sqlite3.Connection:
    """One connection a context: a request's, or a task's."""
    if "database" not in g:
        g.database = sqlite3.connect(current_app.config["DATABASE"], timeout=10)
        g.database.row_factory = sqlite3.Row
        g.database.execute(
            "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT, state TEXT)"
        )
    return g.database


@tasks.task(name="pack", timeout=30, retry=skedulr.ExponentialBackoff(base=0.5, cap=10))
def pack(order: int) -> str:
    """Runs in a worker. It may run twice, so it sets a state instead of adding something."""
    with database() as db:
        db.execute("UPDATE orders SET state = 'packed' WHERE id = ?", [order])
    return f"order {order} is packed"


def create_app(config: dict[str, Any] | None = None) -> Flask:
    app = Flask(__name__)
    app.config.update(
        DATABASE=os.environ.get("SHOP_DATABASE", str(Path(__file__).with_name("shop.db"))),
        SKEDULR_DASHBOARD="/jobs",
    )
    app.config.update(config or {})
    tasks.init_app(app)

    @app.teardown_appcontext
    def close(error: BaseException | None) -> None:
        if "database" in g:
            g.pop("database").close()

    @app.post("/orders")
    def order() -> tuple[dict[str, Any], int]:
        with database() as db:
            row = db.execute(
                "INSERT INTO orders (item, state) VALUES (?, 'new')", [request.form["item"]]
            )
        return {"order": row.lastrowid, "task": pack.submit(row.lastrowid).id}, 202

    @app.get("/orders/<int:number>")
    def show(number: int) -> Any:
        row = database().execute("SELECT * FROM orders WHERE id = ?", [number]).fetchone()
        return ({"item": row["item"], "state": row["state"]}) if row else ({}, 404)

    return app


app = create_app()

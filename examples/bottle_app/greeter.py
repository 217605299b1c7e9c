"""A greeter: Bottle hands the greeting to a worker.

In this folder:

    skedulr-master --pools default=4 greeter
    python greeter.py
    curl -X POST localhost:8080/greet/ann                # {"id": "default/..."}
    curl localhost:8080/result/default/...               # {"state": "succeeded", "result": ...}
"""

from __future__ import annotations

from typing import Any

import bottle

import skedulr
from skedulr.integrations.bottle import SkedulrPlugin


@skedulr.task(name="greet")
def greet(name: str) -> str:
    return f"Hello, {name}!"


application = bottle.Bottle()
application.install(SkedulrPlugin())


@application.post("/greet/<name>")
def post(name: str, tasks: skedulr.Skedulr) -> dict[str, Any]:
    return {"id": tasks.submit(greet, name).id}


@application.get("/result/<id:path>")
def result(id: str, tasks: skedulr.Skedulr) -> dict[str, Any]:
    try:
        info = tasks.get(id).info()
    except skedulr.TaskNotFound as error:
        raise bottle.HTTPError(404, str(error)) from None
    return {"state": info["state"], "result": info["result"]}


if __name__ == "__main__":
    bottle.run(application, host="127.0.0.1", port=8080)

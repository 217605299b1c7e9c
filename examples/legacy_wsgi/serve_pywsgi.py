"""Serve a WSGI app with gevent's own server: ``python serve_pywsgi.py [MODULE:APP [PORT]]``.

Patching comes first, before anything else is imported: what was imported earlier would go on
blocking the whole process.
"""

from gevent import monkey

monkey.patch_all()

import importlib  # noqa: E402 - after patching
import sys  # noqa: E402

from gevent.pywsgi import WSGIServer  # noqa: E402


def main(target: str = "shop:app", port: str = "8080") -> None:
    module, _, name = target.partition(":")
    sys.path.insert(0, "")
    app = getattr(importlib.import_module(module), name)
    print(f"serving {target} at http://127.0.0.1:{port}/", flush=True)
    WSGIServer(("127.0.0.1", int(port)), app, log=None).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

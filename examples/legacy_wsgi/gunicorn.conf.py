"""``gunicorn shop:app`` in this folder. Its gevent worker patches before it imports the app.

No ``preload_app``: it would import the app in gunicorn's master, before patching.
"""

bind = "127.0.0.1:8080"
worker_class = "gevent"
workers = 1

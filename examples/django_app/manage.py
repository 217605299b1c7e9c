"""A shop: Django takes orders, workers send receipts.

In this folder, with Django installed:

    python manage.py migrate
    python manage.py skedulr --pools default=4       # finds a server, or brings its own
    python manage.py runserver
    curl -X POST localhost:8000/orders/ -d item=tea  # {"order": 1, "task": "default/..."}
    curl localhost:8000/orders/1/                    # {"item": "tea", "state": "receipt sent"}
"""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)

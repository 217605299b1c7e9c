"""Settings of the example: one database, one app of its own, and Skedulr."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "for development only")
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
TIME_ZONE = "UTC"  # the log's too: Django would have it in Chicago's
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["orders", "skedulr.contrib.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", str(BASE_DIR / "shop.db")),
        "OPTIONS": {"timeout": 20},
    }
}

#: Every setting of Skedulr by its name. Without REDIS_URL the server is found as ever.
SKEDULR = {"NAMESPACE": "shop"}

#: Django's own tasks, from Django 6 on (or with the package django-tasks).
TASKS = {"default": {"BACKEND": "skedulr.contrib.django.backend.SkedulrBackend", "QUEUES": []}}

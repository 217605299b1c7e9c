"""The module for workers of a Django project: sets Django up, which finds the tasks.

``python manage.py skedulr --pools default=10`` starts what can also be started by hand, with
DJANGO_SETTINGS_MODULE set: ``skedulr-master --pools default=10 skedulr.contrib.django.worker``.
"""

from __future__ import annotations

import django
from django.apps import apps

django.setup()

#: The app to serve: the only one in this module, so the master takes it.
app = apps.get_app_config("skedulr").served

"""``manage.py skedulr ...``: a master for this project, with the flags of ``skedulr-master``."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand

WORKER = "skedulr.contrib.django.worker"


class Command(BaseCommand):
    """Becomes the master: it must be patched before anything is imported, so it starts anew."""

    help = "Run this project's tasks: takes the flags of skedulr-master (--help shows them)."

    def run_from_argv(self, argv: list[str]) -> None:
        """Called by manage.py with its whole command line. Does not return."""
        os.execv(sys.executable, [sys.executable, *master_arguments(argv[2:])])

    def handle(self, *args: Any, **options: Any) -> None:
        """Called by ``call_command``; there is nothing to come back to."""
        self.run_from_argv(["manage.py", "skedulr", *args])


def master_arguments(flags: list[str]) -> list[str]:
    """The command line of the master: this project's server and namespace, unless flags say."""
    served = apps.get_app_config("skedulr").served
    arguments = ["-m", "skedulr", "master"]
    for name in ("redis", "namespace"):
        if name in served.settings and not any(
            flag == f"--{name}" or flag.startswith(f"--{name}=") for flag in flags
        ):
            arguments += [f"--{name}", str(served.settings[name])]
    return [*arguments, *flags, WORKER]

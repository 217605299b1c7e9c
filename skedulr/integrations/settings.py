"""A framework's own configuration, as settings of Skedulr: ``SKEDULR_NAMESPACE`` and so on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..config import SETTINGS
from ..errors import ConfigError, nearest

PREFIX = "SKEDULR_"
#: Keys of a framework's configuration that are this package's and no settings.
OTHERS = ("SKEDULR_DASHBOARD",)

_NAMES = {one.variable: one.name for one in SETTINGS} | {"SKEDULR_REDIS_URL": "redis"}


def settings_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among ``config``'s keys, spelled as environment variables are.

    >>> settings_in({"SKEDULR_REDIS_URL": "redis://cache/3", "DEBUG": True})
    {'redis': 'redis://cache/3'}

    Raises ConfigError for a key that begins with ``SKEDULR_`` and is no setting.
    """
    found = {}
    for key, value in config.items():
        if not isinstance(key, str) or not key.startswith(PREFIX) or key in OTHERS:
            continue
        if key not in _NAMES:
            raise ConfigError(f"unknown setting {key}{nearest(key, _NAMES)}")
        if value is not None:
            found[_NAMES[key]] = value
    return found

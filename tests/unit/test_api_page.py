"""The reference page says what the code says."""

from __future__ import annotations

import api_page

import skedulr
from skedulr.options import _CHECKS, Options


def test_the_reference_is_what_the_code_says() -> None:
    written = api_page.PAGE.read_text(encoding="utf-8")
    assert written == api_page.page(), "stale: run python tests/api_page.py"


def test_every_option_is_explained() -> None:
    assert set(api_page.OPTIONS) == set(_CHECKS) == set(Options.__annotations__)


def test_every_public_name_is_in_the_reference() -> None:
    text = api_page.page()
    assert [name for name in skedulr.__all__ if f"{name}" not in text] == ["__version__"]

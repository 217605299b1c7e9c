"""The page of commands says what the commands say."""

from __future__ import annotations

import commands_page


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    written = commands_page.PAGE.read_text(encoding="utf-8")
    assert written == commands_page.page(), "stale: run python tests/commands_page.py"


def test_the_page_names_every_setting_and_every_command() -> None:
    text = commands_page.page()
    for command in ("submit", "dead purge", "check"):
        assert f"## skedulr {command}\n" in text
    assert "`--hang-timeout`" in text

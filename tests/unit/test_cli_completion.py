"""``skedulr completion``: asked of real shells. CI has both; a machine that says it has no browser
may lack zsh."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from skedulr.cli.completion import SHELLS, script
from skedulr.cli.grammar import GROUPS

#: Calls the function as the shell does, for each line of words, and prints what it offers.
_ASK = """
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _skedulr; echo "${COMPREPLY[*]}"; }
"""
_ASK_ZSH = """
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
  emulate -L sh; setopt kshglob noshglob braceexpand nokshautoload
  _skedulr; echo "${COMPREPLY[*]}"; }
"""


def offered(shell: str, *lines: str) -> list[list[str]]:
    """What that shell offers for the last word of each line."""
    if not shutil.which(shell):
        assert os.environ.get("TEST_BROWSER") == "none", f"{shell} is not installed"
        pytest.skip(f"{shell} is not installed, and this machine need not have all")
    asks = "\n".join(f"ask {line}" for line in lines)
    source = script(shell) + (_ASK_ZSH if shell == "zsh" else _ASK) + asks
    flags = ["-f"] if shell == "zsh" else ["--norc"]
    done = subprocess.run(
        [shell, *flags, "-c", source], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    # zsh leaves it to what follows to drop words that begin otherwise.
    begun = [line.rpartition(" ")[2] for line in lines]
    found = [line.split() for line in done.stdout.splitlines()]
    if shell == "bash":
        return found
    return [
        [one for one in words if one.startswith(begin)]
        for words, begin in zip(found, begun, strict=True)
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_subcommands_flags_and_choices_are_offered(shell: str) -> None:
    assert offered(
        shell, "skedulr sch", "skedulr schedules p", "skedulr list --st", "skedulr list --state d",
        "skedulr dead purge --y", "skedulr --redis redis://h stat", "skedulr completion b",
        "skedulr scale critical --cr",
    ) == [
        ["schedules"], ["pause", "preview"], ["--state"], ["dead"], ["--yes"], ["stats"], ["bash"],
        ["--create"],
    ]


def test_every_command_is_known_to_bash() -> None:
    names = [command.name for group in GROUPS for command in group.commands]
    found = offered("bash", *(f"skedulr {name} --hel" for name in names))
    assert found == [["--help"]] * len(names)

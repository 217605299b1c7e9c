"""Writes ``examples/docs/commands.md`` from the commands' own grammar and the table of settings.

    python tests/commands_page.py

``tests/unit/test_commands_page.py`` fails while the page is stale.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from skedulr.cli.grammar import GROUPS, STATUSES, Command, add_common, usage
from skedulr.config import HEADINGS, SETTINGS, Setting, show

PAGE = Path(__file__).parent.parent / "examples" / "docs" / "commands.md"

_HEAD = """\
# Commands

<!-- Written by tests/commands_page.py from the commands themselves. Change those, then run it. -->

`skedulr-master` runs pools and serves the web UI; `skedulr` talks to a running system from a
terminal or a script. `skedulr COMMAND --help` says what stands here.

- With `--json` a command prints exactly one JSON document on stdout, in the form the HTTP interface
  has, and its errors on stderr. What JSON has no form for becomes text: datetime, date and time in
  ISO 8601, a timedelta as `0:01:30`, Decimal and UUID as they read, bytes as `b'\\xff'`; a set
  becomes a sorted list.
- Without it, tables are for people: aligned, coloured on a terminal only (`NO_COLOR=1` turns that
  off), times in the machine's own zone.
- A mistake is one line on stderr that says what would do. Ctrl-C and a reader that goes away are
  quiet.
"""

_MASTER = """\
```
skedulr-master [options] [MODULE[:ATTR] ...]
```

Forks one child per pool, runs the tasks of the given modules in them, serves the UI.

```sh
skedulr-master --pools critical=4,default=10 shop.tasks
skedulr-master --pools cpu=4x2,default=32 --redis redis://10.0.0.5/0 shop.tasks shop.more:app
```

Every setting has one spelling in three places: `--hang-timeout 90`, `SKEDULR_HANG_TIMEOUT=90`, and
`hang_timeout = 90` in `[tool.skedulr]` of pyproject.toml or `[skedulr]` of setup.cfg. The first of
these that has a value wins; `skedulr.configure()` in code comes behind the flags. `skedulr config`
shows what is in force and where it came from.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, "## Exit statuses\n", _table(("status", "meaning"), _statuses())]
    parts += ["## Options of every command\n", _flags(_common())]
    parts += ["## skedulr-master\n", _MASTER, _table(("flag", "takes", "default", "meaning"),
                                                     map(_setting, _flagged()))]
    for group in GROUPS:
        for command in group.commands:
            parts.append(_section(command))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _statuses() -> Iterator[tuple[str, str]]:
    for status, meaning in STATUSES:
        yield f"`{status}`", meaning


def _flagged() -> list[Setting]:
    by_name = {setting.name: setting for setting in SETTINGS}
    return [by_name[name] for _, names in HEADINGS for name in names]


def _setting(setting: Setting) -> tuple[str, str, str, str]:
    default = show(setting, setting.default) if setting.metavar else ""
    return (
        f"`{setting.flag}`",
        setting.takes if setting.metavar and setting.takes not in setting.help else "",
        f"`{default}`" if default else "", setting.help,
    )


def _section(command: Command) -> str:
    parser = argparse.ArgumentParser(add_help=False)
    command.add(parser)
    lines = [f"## skedulr {command.name}\n", "```", usage(command.name, parser), "```\n"]
    lines += [command.explains + "\n", "```sh"]
    for line, purpose in command.examples:
        lines += [f"# {purpose}", line]
    lines += ["```\n", _flags(parser)]
    return "\n".join(lines)


def _common() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add_common(parser)
    return parser


def _flags(parser: argparse.ArgumentParser) -> str:
    rows = [(_shown(action), action.help or "") for action in parser._actions]
    return _table(("argument", "meaning"), rows) if rows else ""


def _shown(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar}`"
    takes = f" {action.metavar}" if action.nargs != 0 else ""
    return f"`{action.option_strings[-1]}{takes}`"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(one) for one in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(page().splitlines())} lines")

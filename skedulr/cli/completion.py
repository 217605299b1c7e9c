"""``skedulr completion``: a script that has a shell complete commands, flags and their choices.

It is made from the grammar and asks nobody when it is used: a TAB costs no process.
"""

from __future__ import annotations

import argparse

from .grammar import GROUPS, make_parser
from .output import Output
from .session import Session

SHELLS = ("bash", "zsh")
#: In bash, and in zsh by its own layer for bash's completions.
_BASH = """\
_skedulr() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="" before="" word at
  for ((at = 1; at < COMP_CWORD; at++)); do
    word="${{COMP_WORDS[at]}}"
    case "$before" in {valued}) before="$word"; continue ;; esac
    before="$word"
    case "$command $word" in
{families}
      *\\ -*) ;;
      \\ *) command="$word" ;;
    esac
  done
  COMPREPLY=()
  case "$previous" in
{choices}
  esac
  case "$command" in
{commands}
  esac
}}
complete -o default -F _skedulr skedulr
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def completion(session: Session) -> int:
    """``skedulr completion bash|zsh``."""
    text = script(session.given.shell)
    out: Output = session.output
    if out.json:
        out.document({"shell": session.given.shell, "script": text})
    else:
        out.block(text)
    return 0


def script(shell: str) -> str:
    """What that shell has to run, ``bash`` or ``zsh``."""
    parsers = _parsers(make_parser())
    families = sorted({name.partition(" ")[0] for name in parsers if " " in name})
    words = {"": _firsts() + _flags(parsers[""]), **{one: _members(one) for one in families}}
    words |= {name: _flags(parser) + _places(parser) for name, parser in parsers.items() if name}
    text = _BASH.format(
        valued="|".join(_valued(parsers[""])),
        families="\n".join(
            f'      "{name}") command="{name}" ;;' for name in parsers if " " in name
        ),
        choices="\n".join(
            f"    {flag}) COMPREPLY=($(compgen -W '{' '.join(given)}' -- \"$current\")); return ;;"
            for flag, given in sorted(_choices(parsers).items())
        ),
        commands="\n".join(
            f"    '{name}') COMPREPLY=($(compgen -W '{' '.join(given)}' -- \"$current\")) ;;"
            for name, given in words.items()
        ),
    )
    return (_ZSH if shell == "zsh" else "") + text


def _parsers(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Each command's parser by its name, the outermost one by ``""``; families have none."""
    found = {"": top}

    def walk(parser: argparse.ArgumentParser, before: str) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, below in action.choices.items():
                    name = f"{before} {word}".strip()
                    if below.get_default("command"):
                        found[name] = below
                    walk(below, name)

    walk(top, "")
    return found


def _firsts() -> list[str]:
    names = [one.name.partition(" ")[0] for group in GROUPS for one in group.commands]
    return [*dict.fromkeys(names), "master"]


def _members(family: str) -> list[str]:
    names = [one.name for group in GROUPS for one in group.commands]
    return [name.partition(" ")[2] for name in names if name.startswith(family + " ")]


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [text for one in parser._actions for text in one.option_strings if text[:2] == "--"]


def _valued(parser: argparse.ArgumentParser) -> list[str]:
    """Flags that take the next word with them, before the command's name."""
    return [one.option_strings[-1] for one in parser._actions
            if one.option_strings and one.nargs is None]


def _places(parser: argparse.ArgumentParser) -> list[str]:
    """What may stand without a flag, where there is a list of it."""
    return [str(text) for one in parser._actions if not one.option_strings
            for text in one.choices or ()]


def _choices(parsers: dict[str, argparse.ArgumentParser]) -> dict[str, list[str]]:
    """Flags whose values are known: the value is completed after them."""
    found: dict[str, list[str]] = {}
    for parser in parsers.values():
        for action in parser._actions:
            known = action.choices or getattr(action, "completes", None)
            if action.option_strings and known:
                found[action.option_strings[-1]] = [str(one) for one in known]
    return found

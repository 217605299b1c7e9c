"""The rules that every script keeps, read off its text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from lupa.lua51 import LuaRuntime

from skedulr import redis_scripts
from skedulr.keys import PER_OWNER, SINGLE, SpaceKeys
from skedulr.redis_scripts import names, script
from skedulr.redis_scripts.assembly import collect, put_together

HERE = Path(__file__).parent
INCLUDES = sorted(
    entry.name.removesuffix(".lua")
    for entry in files(redis_scripts).joinpath("includes").iterdir()
    if entry.name.endswith(".lua")
)
#: Keys of a whole namespace. A script takes these or a pool's, never both: they have two slots.
OF_THE_SPACE = {name for name in vars(SpaceKeys("n")) if not name.startswith("_")}

#: Scripts that read a whole hash, and what with: behind a look at how long it is.
READS_WHOLE = {"beat": {"HVALS", "HKEYS"}}


def source(name: str) -> str:
    return files(redis_scripts).joinpath(f"{name}.lua").read_text("utf-8")


def code(text: str) -> str:
    return re.sub(r"--.*", "", text)


@pytest.mark.parametrize("name", names())
def test_a_header_says_purpose_keys_arguments_and_returns_in_this_order(name: str) -> None:
    header = source(name).partition("-- include:")[0].partition("\nlocal ")[0]
    assert re.findall(r"^-- ([A-Z]+)  ", header, re.MULTILINE) == [
        "PURPOSE", "KEYS", "ARGV", "RETURNS"
    ]


@pytest.mark.parametrize("name", names())
def test_the_keys_of_the_header_are_the_keys_the_script_unpacks(name: str) -> None:
    unpacked = re.search(r"^local ([\w\s,]+?)\s*=\s*unpack\(KEYS\)", source(name), re.MULTILINE)
    assert unpacked, "the first statement names all keys"
    assert tuple(re.split(r",\s*", unpacked[1].strip())) == script(name).keys


@pytest.mark.parametrize("name", names())
def test_every_key_is_one_of_keys_py_and_is_used(name: str) -> None:
    body = code(source(name)).partition("unpack(KEYS)")[2]
    for key in script(name).keys:
        assert key in SINGLE + PER_OWNER or key in OF_THE_SPACE
        assert re.search(rf"\b{key}\b", body), f"{key} is taken and not used"


@pytest.mark.parametrize("name", names())
def test_no_script_uses_what_fakeredis_or_a_cluster_lacks(name: str) -> None:
    text = code(script(name).text)
    for word in ("cmsgpack", "cjson", "struct.", "bit.", "redis.pcall", "redis.setresp", "#!lua"):
        assert word not in text
    assert "KEYS[" not in text, "keys have names"


@pytest.mark.parametrize("name", names())
def test_no_key_is_built_in_a_script(name: str) -> None:
    for command, first in re.findall(
        r"redis\.call\(\s*'([A-Z]+)'(?:,\s*([^,)]+))?", code(script(name).text)
    ):
        # Those of streams name what they do, or a group, before the key.
        if command not in ("PUBLISH", "TIME", "XGROUP", "XINFO", "XREADGROUP"):
            assert re.fullmatch(r"(k\.)?[a-z_]+", first), (command, first)


@pytest.mark.parametrize("name", names())
def test_no_script_loops_without_a_bound_or_reads_a_whole_key(name: str) -> None:
    text = code(script(name).text)
    assert not re.search(r"\b(while|repeat|goto)\b", text)
    for loop in re.findall(r"\bfor (.+?) do\b", text):
        assert re.search(r"in (ipairs|string\.gmatch)\(|^\w+ = [\w-]+, ", loop), loop
    commands = set(re.findall(r"redis\.call\(\s*'([A-Z]+)'", text))
    assert not (commands - READS_WHOLE.get(name, set())) & {
        "KEYS", "SCAN", "HSCAN", "SSCAN", "ZSCAN", "HGETALL", "HKEYS", "HVALS", "SMEMBERS",
        "LRANGE", "FLUSHALL", "FLUSHDB",
    }
    for call in re.findall(r"redis\.call\('ZRANGEBYSCORE'.*?\)\n", text, re.DOTALL):
        assert "LIMIT" in call, call
    for call in re.findall(r"redis\.call\('Z(?:REV)?RANGE',.*?\)\n", text, re.DOTALL):
        assert "0, 0" in call, call


@pytest.mark.parametrize("name", names())
def test_numbers_become_text_through_whole(name: str) -> None:
    for line in code(source(name)).splitlines():
        assert not re.search(r"\bnow( [+-] \w+)? \.\.|\.\. now\b|tostring\(", line), line


@pytest.mark.parametrize("name", names())
def test_every_script_has_its_test_file(name: str) -> None:
    assert (HERE / f"test_{name}_script.py").is_file()


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_gets_all_it_needs_as_arguments(name: str) -> None:
    text = code(source(f"includes/{name}"))
    assert "KEYS" not in text
    assert "ARGV" not in text


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_is_used_and_brings_its_own_includes(name: str) -> None:
    named = re.compile(rf"^-- include( rarely)?: {name}$", re.MULTILINE)
    assert any(named.search(source(one)) for one in names()) or any(
        named.search(source(f"includes/{one}")) for one in INCLUDES
    )
    own = put_together(f"includes/{name}", lambda path: source(path.removesuffix(".lua")))
    made = set(re.findall(r"local function (\w+)", own)) | set(re.findall(r"local (\w+) =", own))
    for called in re.findall(r"(?<![.\w:])([a-z]\w+)\(", code(source(f"includes/{name}"))):
        known = ("unpack", "ipairs", "tonumber", "error", "function", "let_go", "change", "string",
                     "type")
        assert called in made or called in known, f"{called} comes from elsewhere"


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_names_its_own_before_anything_else(name: str) -> None:
    lines = source(f"includes/{name}").splitlines()
    named = [line.startswith("-- include") for line in lines]
    assert named == sorted(named, reverse=True)


@pytest.mark.parametrize("name", names())
def test_an_include_stands_in_a_script_once(name: str) -> None:
    made = re.findall(r"^local function (\w+)", script(name).text, re.MULTILINE)
    assert len(made) == len(set(made))


def test_includes_that_go_in_a_circle_are_named() -> None:
    texts = {
        "all.lua": "-- include: one\n", "includes/one.lua": "-- include rarely: two\n",
        "includes/two.lua": "-- include: one\n",
    }
    with pytest.raises(ValueError, match="all -> one -> two -> one"):
        put_together("all", texts.__getitem__)


def test_the_functions_of_a_rare_include_are_made_when_one_is_called() -> None:
    lua = LuaRuntime()
    text = put_together("main", {
        "main.lua": "-- include rarely: rare\n-- include: often\n"
                    "made = made or 0\nif ask then return twice(rare_sum(2, 3)) end\nreturn nil",
        "includes/often.lua": "local function twice(n)\n  return 2 * n\nend\n",
        # It uses another rare one, which is there first.
        "includes/rare.lua": "-- include rarely: deep\nmade = (made or 0) + 1\n"
                             "local START = 10\n"
                             "local function rare_sum(a, b)\n  return deep(a) + b + START\nend\n",
        "includes/deep.lua": "local function deep(a)\n  return 100 * a\nend\n",
    }.__getitem__)
    assert lua.execute(text) is None and lua.globals().made == 0
    lua.globals().ask = True
    assert lua.execute(text) == 426 and lua.globals().made == 1


def test_a_file_is_rare_where_all_say_so() -> None:
    text = put_together("main", {
        "main.lua": "-- include rarely: one\n-- include: two\nreturn one()",
        "includes/one.lua": "local function one() return 1 end\n",
        "includes/two.lua": "-- include: one\nlocal function two() return one() end\n",
    }.__getitem__)
    assert "from_one" not in text and LuaRuntime().execute(text) == 1


@pytest.mark.parametrize("name", names())
def test_what_a_rare_include_has_is_used_by_calls_alone(name: str) -> None:
    assert other_uses(name, lambda path: source(path.removesuffix(".lua"))) == []


@pytest.mark.parametrize("use", ["local f = rare", "return {rare = rare}", "return LIMIT + 1"])
def test_another_use_than_a_call_is_found(use: str) -> None:
    assert other_uses("main", {
        "main.lua": f"-- include rarely: one\nlocal n = rare(2) -- rare is not made here\n{use}\n",
        "includes/one.lua": "local LIMIT = 3\nlocal function rare() return LIMIT end\n",
    }.__getitem__) != []


def other_uses(name: str, read: Callable[[str], str]) -> list[str]:
    """Names of rare includes that stand elsewhere and are not called there."""
    pieces, rare = collect(name, read)
    found = []
    for own in (piece for piece in pieces if piece.file in rare):
        uses = [
            rf"{function}\b(?!\()"
            for function in re.findall(r"^local function (\w+)", own.text, re.MULTILINE)
        ] + [
            rf"{value}\b"
            for values in re.findall(r"^local (?!function\b)([\w, ]+?)(?: *=|$)", own.text, re.M)
            for value in values.split(", ")
        ]
        for other in (piece for piece in pieces if piece.file != own.file):
            found += [
                f"{other.file}: {use}" for use in uses
                if re.search(rf"(?<![\w.:]){use}", code(other.text))
            ]
    return found


def test_all_processes_send_the_same_text() -> None:
    """It is known by its digest: two texts of one script would be loaded by turns."""
    code = "from skedulr.redis_scripts import *; print(*(script(n).sha for n in names()))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, cwd="/",
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout for seed in ("1", "2", "3")
    }
    assert len(seen) == 1

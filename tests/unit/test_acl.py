"""The rights that are printed are those that the sources use, each of them, and no others."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Server

import skedulr
from skedulr import acl
from skedulr.cli import run as run_command

PACKAGE = Path(skedulr.__file__).parent
#: They look after a server of their own.
ELSEWHERE = ("bench", "embedded.py")
#: Named in the sources, and sent to nobody: words of tables, or of redirections.
NOT_SENT = {"append", "command", "move", "readonly", "acl", "script", "latency", "dbsize", "object",
            "memory", "xread", "xreadgroup", "xgroup", "xinfo", "sort", "auth", "client", "config",
            "slowlog", "cluster", "asking", "sentinel", "hello", "monitor", "debug", "role", "echo"}


def words() -> set[str]:
    """Every text of capital letters in the sources, in small ones."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if any(part in ELSEWHERE for part in path.relative_to(PACKAGE).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                word = node.value
                if word.isascii() and word.isalpha() and word.isupper():
                    found.add(word.lower())
    return found


@pytest.mark.server
def test_every_command_in_the_sources_is_allowed(one_server: Server) -> None:
    known = {name.decode().lower() for name in one_server.client.execute_command("COMMAND LIST")}
    missing = (words() & known) - set(acl.commands()) - NOT_SENT
    assert not missing, f"{missing}: add them to SENT in acl.py, if they are sent"


def test_nothing_is_allowed_that_the_sources_do_not_use() -> None:
    used = words() | acl.of_scripts() | {"client|setname"}
    assert acl.SENT - used == set()


def test_the_rules_name_the_keys_and_channels_of_one_namespace() -> None:
    rules = acl.rules("shop").split()
    assert [one for one in rules if one[0] in "~&"] == ["&{shop}:*", "~{shop}:*", "~{shop:*"]
    assert "-@all" in rules
    assert "+cluster|slots" not in rules
    assert "+cluster|slots" in acl.rules("shop", "redis+cluster://h").split()
    assert len(acl.lines("shop", "rediss+sentinel://h/main")) == 2


@pytest.mark.server
def test_what_the_command_prints_is_taken_by_a_server(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, fresh_server: Callable[..., Server],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["config", "--acl", "--namespace", "shop"]) == 0
    line = capsys.readouterr().out.strip()
    assert line.startswith("user skedulr on >PASSWORD ")
    server.client.execute_command("ACL", "SETUSER", *line.split()[1:])
    server.client.execute_command("ACL", "DELUSER", "skedulr")
    (tmp_path / "users.acl").write_text(f"user default on nopass ~* &* +@all\n{line}\n")
    own = fresh_server(server.name, aclfile=str(tmp_path / "users.acl"))
    assert b"skedulr" in own.client.execute_command("ACL", "USERS")
    assert run_command(["config", "--acl", "--json", "--redis", "redis+cluster://h"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "asking" in found["commands"]
    assert found["optional"] == ["config|get", "slowlog|get"]

"""The transport that examples/ shows, installed as a package: found, conforming, at work."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Node
from servers import Server

import skedulr
from skedulr.config import TRANSPORT_GROUP, parse_pools
from skedulr.errors import ConfigError, TaskFailed
from skedulr.keys import PoolKeys
from skedulr.testing.conformance import Bench, StorageContract
from skedulr.transports import open_storage, settle
from skedulr.wire import Wire

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sqlite_transport"
KEYS = PoolKeys("test", "default")


def install(folder: Path, **entry_points: str) -> Path:
    """What pip makes of the example: its module, and a dist-info with its entry points."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    named = {**project["entry-points"][TRANSPORT_GROUP], **entry_points}
    about = folder / f"skedulr_sqlite-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"[{TRANSPORT_GROUP}]", *(f"{name} = {value}" for name, value in named.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    shutil.copy(EXAMPLE / "skedulr_sqlite.py", folder)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on the path with the package in it, and one that can not be loaded."""
    folder = install(tmp_path_factory.mktemp("site"), broken="skedulr_sqlite:no_such_thing")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("skedulr_sqlite", None)


class TestTheExample(StorageContract):
    """The suite that every storage passes; its clock is moved on by hand."""

    @pytest.fixture
    def bench(self, installed: Path, tmp_path: Path) -> Bench:
        made: Any = importlib.import_module("skedulr_sqlite")
        clock = [1_700_000_000_000]

        def pass_ms(ms: int) -> None:
            clock[0] += ms

        storage = made.SqliteStorage(KEYS, tmp_path / "pool.sqlite", lambda: clock[0])
        return Bench(storage, pass_ms)


def test_a_transport_is_found_by_its_entry_point(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKS_FOLDER", str(tmp_path / "kept"))
    assert parse_pools("local=4x2:sqlite")[0].transport == "sqlite"
    storage = open_storage(KEYS, "sqlite")
    assert type(storage).__module__ == "skedulr_sqlite"
    assert storage.keys == KEYS
    assert (tmp_path / "kept" / "test-default.sqlite").is_file()


def test_a_name_that_nobody_registered_is_refused_with_the_nearest(installed: Path) -> None:
    for refuse in (lambda: parse_pools("local=4:sqlit"), lambda: open_storage(KEYS, "sqlit")):
        with pytest.raises(ConfigError, match=r"no transport 'sqlit'.*did you mean 'sqlite'\?"):
            refuse()


def test_one_that_can_not_be_loaded_says_where_and_why(installed: Path) -> None:
    with pytest.raises(ConfigError, match=r"'broken' \(skedulr_sqlite:no_such_thing\) can not be"):
        open_storage(KEYS, "broken")


def test_a_pool_of_it_runs_tasks_and_producers_need_not_know_of_it(
    installed: Path, tmp_path: Path, one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setenv("TASKS_FOLDER", str(kept))
    path = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    node = Node(
        tmp_path / "node", one_server.url, pools="default=2:sqlite",
        env={"PYTHONPATH": path, "TASKS_FOLDER": str(kept)},
    )
    app = skedulr.Skedulr(one_server.url)
    try:
        node.start()
        ended = app.remote("quick").submit()
        assert ended.result(timeout=20) is None
        failed = app.remote("exit", max_retries=0).submit(3)
        held = app.remote("gate").submit("open")
        node.effects.wait("began", held.uid)
        later = app.remote("quick").using(delay=600).submit()
        assert later.cancel()
        with pytest.raises(TaskFailed):
            later.result(timeout=20)
        # Its child dies, and nobody else's task with it: the master gives back what it held.
        node.effects.wait("began", failed.uid, count=3, timeout=30)
        (node.folder / "open").touch()
        assert held.result(timeout=30) is None
        with pytest.raises(TaskFailed):
            failed.result(timeout=20)
        assert one_server.client.exists("{skedulr:default}:tasks", "{skedulr:default}:ready") == 0
        assert (kept / "skedulr-default.sqlite").is_file()
        with pytest.raises(ConfigError, match="has no priorities and no limits"):
            app.remote("quick").using(limit=skedulr.Limit(concurrency=1)).submit()
    finally:
        app.close()
        node.close()


def test_a_producer_without_the_package_is_told_what_it_lacks(
    installed: Path, one_server: Server
) -> None:
    wire = Wire(one_server.url, name="test")
    settle(wire, PoolKeys("skedulr", "default"), "sqlite2", 15)
    wire.close()
    app = skedulr.Skedulr(one_server.url)
    with pytest.raises(ConfigError, match=r"no transport 'sqlite2' here .*'sqlite'\?\): install"):
        app.remote("quick").submit()
    app.close()

"""What is released: sdist and wheel are built and complete, and a task runs through the wheel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lowest
import pytest
from servers import Server, wait_until

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "skedulr"

TASKS = """\
import skedulr


@skedulr.task(name="add")
def add(a: int, b: int) -> int:
    return a + b
"""
SUBMIT = """\
import json, sys
import skedulr
from tasks_here import add
print(json.dumps([skedulr.__file__, add.submit(20, 22).result(timeout=30)]))
"""

pytestmark = pytest.mark.slow


def command(*arguments: str | Path, cwd: Path | None = None, **environ: str) -> str:
    """Standard output of a command that must succeed; without what points at this checkout."""
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(each) for each in arguments], cwd=cwd, env={**plain, **environ},
        capture_output=True, text=True, timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the whole checkout, so that nothing is written beside the sources, and that what
    must not be packed is there."""
    copy = tmp_path_factory.mktemp("source") / "checkout"
    junk = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=junk)
    return copy


@pytest.fixture(scope="module")
def dist(source: Path) -> Path:
    """The sdist, and the wheel that was made of it: so the sdist has all that is needed."""
    command(sys.executable, "-m", "build", source)
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def sdist(dist: Path) -> list[str]:
    """The files in it, below its own folder."""
    (built,) = dist.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        return [one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with the wheel in it, and this one's libraries."""
    place = tmp_path_factory.mktemp("installed") / "env"
    command(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    command(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps",
            "--no-index", wheel)
    (site,) = place.glob("lib/python*/site-packages")
    # Plain lines of a path file: what an editable install does to this environment is not followed.
    (site / "libraries.pth").write_text(
        "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    )
    return place / "bin"


def test_every_file_that_is_no_junk_is_in_the_wheel(wheel: Path, source: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("skedulr/")}
    assert packed == ours(source)
    kinds = {Path(name).suffix or Path(name).name for name in packed}
    assert kinds >= {".py", ".lua", ".tpl", ".typed", ".css", ".js"}


def ours(source: Path) -> set[str]:
    return {
        path.relative_to(source).as_posix() for path in (source / "skedulr").rglob("*")
        if path.is_file()
    }


def test_nothing_but_the_package_is_in_the_wheel(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {re.sub(r"-.*", "", top) for top in tops} == {"skedulr"}


def test_the_sdist_has_the_package_and_what_builds_it_and_no_test(
    sdist: list[str], source: Path
) -> None:
    others = {name for name in sdist if not name.startswith(("skedulr/", "skedulr.egg-info/"))}
    assert others == {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
    assert {name for name in sdist if name.startswith("skedulr/")} == ours(source)


def test_what_is_not_ours_comes_with_its_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    vendored = [Path(name) for name in names
                if "/vendor/" in name and name.endswith((".js", ".css"))]
    assert vendored
    for file in vendored:
        licence = f"{file.stem}.LICENSE.txt"
        assert str(file.with_name(licence)) in names
        assert any(".dist-info/licenses/" in name and name.endswith(licence) for name in names)


def test_the_index_would_take_both(dist: Path) -> None:
    pytest.importorskip("twine", reason="twine is among what developers install")
    command(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())


def test_every_dependency_has_a_lowest_version() -> None:
    assert len(list(lowest.pins())) > 10  # it refuses one without


def test_the_metadata_name_licence_version_and_commands(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode()
    version = re.search(r'__version__ = "(.+)"', (PACKAGE / "_version.py").read_text("utf-8"))
    assert version is not None
    for line in ("Name: skedulr", f"Version: {version[1]}", "License-Expression: MIT",
                 "Requires-Python: >=3.11", "Provides-Extra: embedded"):
        assert f"\n{line}\n" in text
    commands = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert "skedulr = skedulr.__main__:main" in commands
    assert "skedulr-master = skedulr.__main__:master" in commands


def test_the_commands_tell_the_version(installed: Path, tmp_path: Path) -> None:
    assert command(installed / "skedulr-master", "--version", cwd=tmp_path).startswith("skedulr ")
    assert command(installed / "skedulr", "--version", cwd=tmp_path).startswith("skedulr ")


@pytest.fixture
def master(installed: Path, one_server: Server, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "tasks_here.py").write_text(TASKS)
    log = (tmp_path / "log").open("wb")
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    process = subprocess.Popen(
        [installed / "skedulr-master", "--redis", one_server.url, "--pools", "default=2",
         "--ui", "127.0.0.1:0", "tasks_here"],
        cwd=tmp_path, env=plain, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
    )
    log.close()
    yield process
    process.terminate()
    assert process.wait(30) == 0, (tmp_path / "log").read_text()


@pytest.mark.usefixtures("master")
def test_a_task_runs_through_it(installed: Path, one_server: Server, tmp_path: Path) -> None:
    out = command(installed / "python", "-c", SUBMIT, cwd=tmp_path,
                  SKEDULR_REDIS_URL=one_server.url)
    file, result = json.loads(out)
    assert result == 42
    assert Path(file).is_relative_to(installed.parent)
    wait_until(lambda: "http://" in (tmp_path / "log").read_text(), what="the UI says where it is")
    # The page is made of templates and static files, so they must have been found.
    address = re.search(r"http://[\w.:]+", (tmp_path / "log").read_text())
    assert address is not None
    page = command(
        installed / "python", "-c",
        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())",
        address[0] + "/", cwd=tmp_path,
    )
    assert "default" in page and "<html" in page

"""What type checkers make of calls: good ones pass, each bad one is refused where it stands.

Both are in the extra ``dev``; pyright as ``basedpyright``, which has all it needs in its wheel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GOOD, BAD = HERE / "good_calls.py", HERE / "bad_calls.py"
#: File to line to the codes found there.
Found = dict[str, dict[int, set[str]]]


def expected() -> dict[int, set[str]]:
    """Of each line of the bad calls that says so: its codes."""
    lines = BAD.read_text("utf-8").splitlines()
    marks = ((number, re.search(r"# E: ([\w,-]+)$", line)) for number, line in enumerate(lines, 1))
    return {number: set(mark[1].split(",")) for number, mark in marks if mark}


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> Found:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed (the extra dev)")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-color-output",
         "--hide-error-context", "--cache-dir", str(tmp_path_factory.mktemp("cache")),
         str(GOOD), str(BAD)],
        cwd=HERE.parent.parent, capture_output=True, text=True, timeout=110,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Found = defaultdict(lambda: defaultdict(set))
    for path, line, code in re.findall(r"^(\S+):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M):
        found[Path(path).name][int(line)].add(code)
    return found


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> Found:
    if find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed (the extra dev)")
    project = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    project.write_text(json.dumps({
        "include": [str(GOOD), str(BAD)], "typeCheckingMode": "standard",
        "extraPaths": [str(HERE.parent.parent)], "pythonVersion": "3.11",
        "reportUnusedExpression": "none", "reportUnusedCallResult": "none",
    }))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--project", str(project), "--outputjson",
         "--pythonpath", sys.executable],
        capture_output=True, text=True, timeout=110, env={**os.environ, "NO_COLOR": "1"},
    )
    found: Found = defaultdict(lambda: defaultdict(set))
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            line = one["range"]["start"]["line"] + 1
            found[Path(one["file"]).name][line].add(one.get("rule", one["message"]))
    return found


def test_mypy_accepts_the_good_calls(mypy: Found) -> None:
    assert dict(mypy[GOOD.name]) == {}


def test_mypy_refuses_each_bad_call_for_its_reason_and_no_other_line(mypy: Found) -> None:
    assert dict(mypy[BAD.name]) == expected()


def test_pyright_accepts_the_good_calls(pyright: Found) -> None:
    assert dict(pyright[GOOD.name]) == {}


def test_pyright_refuses_each_bad_call_and_no_other_line(pyright: Found) -> None:
    assert set(pyright[BAD.name]) == set(expected())


def test_the_package_says_that_it_is_typed() -> None:
    assert (HERE.parent.parent / "skedulr" / "py.typed").is_file()

"""Runs the tests with the lowest versions that ``pyproject.toml`` allows, in an environment of its
own.

    python tests/lowest.py                           # tests/unit and tests/scripts, on Valkey
    python tests/lowest.py tests/unit/test_wire.py   # these; arguments of pytest
    python tests/lowest.py --pins                    # print what would be installed

Only what we name is held down; what that needs in turn is for pip to choose. It takes some five
minutes, so it is run by hand before a release, and whenever a bound is changed.
``tests/unit/test_package.py`` checks at each run of the tests that every dependency has a bound.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = ("tests/unit", "tests/scripts", "--ignore=tests/unit/test_package.py")
#: ``NAME[EXTRA]>=VERSION; MARKER``.
_BOUND = re.compile(r"(?P<name>[\w.-]+(\[[\w,]+\])?)>=(?P<version>[\w.]+)\s*(?P<marker>;.*)?")
#: Its releases are of data, and any will do.
UNBOUNDED = {"tzdata"}


def pins() -> Iterator[str]:
    """A line of pip's requirements for each dependency of the package and of its tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in extras if name != "dev"
                                          for one in extras[name])]
    for one in dict.fromkeys(wanted):
        bound = _BOUND.fullmatch(one)
        if bound is not None:
            yield f"{bound['name']}=={bound['version']}{bound['marker'] or ''}"
        else:
            assert one in UNBOUNDED, f"{one!r} has no lowest version"
            yield one


def main(arguments: list[str]) -> int:
    """The exit status of pytest."""
    if arguments == ["--pins"]:
        print("\n".join(pins()))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install = [python, "-m", "pip", "install", "-q"]
        subprocess.run([*install, *pins()], check=True)
        # Without looking at what it needs: that is there, and must stay as old as it is.
        subprocess.run([*install, "--no-deps", "-e", ROOT], check=True)
        environ = {**os.environ, "TEST_SERVERS": "valkey", "TEST_BROWSER": "none"}
        return subprocess.run(
            [python, "-m", "pytest", "-q", *(arguments or TESTS)], cwd=ROOT, env=environ,
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

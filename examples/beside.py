"""A master beside a script, for as long as a block runs: so that an example is one command.

Yours would run for itself, under systemd or in a container: see docs/deployment.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import skedulr

HERE = Path(__file__).parent


@contextmanager
def master(module: str, pools: str) -> Iterator[None]:
    """Run ``skedulr-master --pools POOLS MODULE`` until the block is left; then it drains.

    Without ``SKEDULR_REDIS_URL`` it uses the Redis of this machine, or an embedded server in
    ``.skedulr`` here, as every master does.
    """
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "skedulr", "master", "--no-ui", "--log-level", "warning"]
    process = subprocess.Popen(
        [*command, "--pools", pools, module],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    try:
        wait_for_pools(process, {pool.partition("=")[0] for pool in pools.split(",")})
        yield
    finally:
        process.terminate()
        process.wait()


def wait_for_pools(process: subprocess.Popen[bytes], names: set[str]) -> None:
    """Until each of the pools has a process; SystemExit where the master gave up."""
    serving: set[str] = set()
    while not names <= serving:
        try:
            process.wait(0.1)
            raise SystemExit(f"the master ended with status {process.returncode}")
        except subprocess.TimeoutExpired:
            pass
        # A new app each time: the Redis that is meant may be one that the master starts only now.
        app = skedulr.Skedulr()
        try:
            serving = {pool["name"] for pool in app.stats()["pools"] if pool["processes"]}
        except skedulr.StorageUnavailable:
            continue
        finally:
            app.close()

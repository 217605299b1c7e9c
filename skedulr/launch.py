"""``skedulr-master``: read the settings, find or start the server, run the master with its UI."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from redis.exceptions import ResponseError

from . import __version__, config, logs
from .client import Client, ClientConfig
from .codecs import codec_of
from .embedded import EmbeddedServer
from .errors import ConfigError, nearest
from .keys import PoolKeys
from .pools.child import CANNOT_BOOT
from .pools.master import Master
from .pools.modules import load_modules, print_error
from .pools.notify import Notifier
from .pools.pidfile import PidFile
from .pools.trial import can_be_imported
from .servercheck import check_server
from .transports import settle
from .ui.app import make_app
from .ui.security import read_users
from .ui.server import UiServer
from .wire import Barred, Refused, Wire, WireError

log = logging.getLogger("skedulr.master")

STOPPED, USAGE = 0, 2

_DESCRIPTION = """\
Fork one child per pool, run the tasks of the given modules in them, serve the UI.

examples:
  skedulr-master --pools critical=4,default=10 shop.tasks
      two pools, four and ten workers; a development server where none is found
  skedulr-master --pools default=32,cpu=4x2 --redis redis://10.0.0.5/0 shop.tasks shop.more:app
      with two processes of four workers for what computes
  skedulr-master --reload shop.tasks
      load the code anew whenever a file changes

Each flag is a setting as well: --hang-timeout 90, SKEDULR_HANG_TIMEOUT=90, or hang_timeout = 90 in
[tool.skedulr] of pyproject.toml or [skedulr] of setup.cfg.
"""
_EPILOG = """\
Signals: TERM, INT drain, a second one stops at once; HUP replaces the children one by one, with the
code as it is now; USR1 prints the stacks of all greenlets; TTIN, TTOU: one worker more or fewer in
each child of this node.
Exit status: 0 stopped on request, 1 failure, 2 usage or configuration, 3 children cannot boot.
"""


def run(arguments: list[str]) -> int:
    """Everything the command does; its exit status."""
    try:
        settings = _settings(arguments)
        _refuse_contradictions(settings)
        codec_of(settings.codec)  # keys that can not be read are found by no child first
    except ConfigError as error:
        print(f"skedulr-master: {error}", file=sys.stderr)
        return USAGE
    logs.set_up(settings.log_level, as_json=settings.log_json)
    _warn_of_passwords(settings)
    server: EmbeddedServer | None = None
    pid_file = PidFile(settings.pid_file) if settings.pid_file else None
    try:
        if pid_file is not None:
            pid_file.take()
        url, server, unchecked = _server(settings)
        _settle_transports(settings, url)
        check = partial(_check, url) if unchecked else None
        return _run_master(settings, url, pid_file, check)
    except ConfigError as error:
        print(f"skedulr-master: {error}", file=sys.stderr)
        return USAGE
    except _CanNotBoot:
        return CANNOT_BOOT
    except KeyboardInterrupt:
        # Before the master listens to signals itself.
        return STOPPED
    finally:
        if server is not None:
            server.stop()
        if pid_file is not None:
            pid_file.release()


class _CanNotBoot(Exception):
    """A module has an error, which has been told."""


def _refuse_contradictions(settings: config.Config) -> None:
    """Settings that exclude each other."""
    if settings.preload and settings.reload:
        raise ConfigError("--preload loads code once, --reload again and again: give one")


def _settings(arguments: list[str]) -> config.Config:
    parser = argparse.ArgumentParser(
        prog="skedulr-master", usage="skedulr-master [options] [MODULE[:ATTR] ...]",
        description=_DESCRIPTION, epilog=_EPILOG,
        # A shortened flag would become another one's with the release that adds that one.
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    for heading, names in config.HEADINGS:
        config.add_flags(parser.add_argument_group(heading), names)
    parser.add_argument("modules", nargs="*", metavar="MODULE[:ATTR]",
                        help="modules with tasks, imported in each child")
    parser.add_argument("--config", metavar="FILE", help="read the settings from this file")
    parser.add_argument("--version", action="version", version=f"skedulr {__version__}")
    known, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        raise ConfigError(
            f"there is no option {flag}{nearest(flag, parser._option_string_actions)}; "
            "see skedulr-master --help"
        )
    given = vars(known)
    file = given.pop("config")
    if not given["modules"]:
        given["modules"] = None
    if given.get("chdir"):
        try:
            os.chdir(given["chdir"])
        except OSError as error:
            raise ConfigError(f"--chdir {given['chdir']}: {error.strerror}") from None
    flags: Mapping[str, object] = {k: v for k, v in given.items() if v is not None}
    return config.load(flags, {}, os.environ, Path.cwd(), Path(file) if file else None)


def _warn_of_passwords(settings: config.Config) -> None:
    """A flag's value is seen by everyone who may list the machine's processes."""
    told = "; an environment variable or a file does not: %s"
    url = settings.redis or ""
    if settings.sources.get("redis") == "flag --redis" and config.hide_password(url) != url:
        log.warning("--redis shows its password to whoever lists processes" + told,
                    "SKEDULR_REDIS_URL, SKEDULR_REDIS_URL_FILE")
    if settings.sources.get("ui_auth") == "flag --ui-auth":
        log.warning("--ui-auth shows its password to whoever lists processes" + told,
                    "SKEDULR_UI_AUTH, --ui-auth-file")


def _server(settings: config.Config) -> tuple[str, EmbeddedServer | None, bool]:
    """The server's address, the embedded server if this master started or joined one, and whether
    the server is still to be checked: it does not answer yet."""
    if settings.embedded:
        return *_start_embedded(settings, "--embedded"), False
    address = config.find_redis(settings, os.environ, Path.cwd())
    problem = _problem_with(address.url)
    if problem is None:
        log.info("using %s (%s)", config.hide_password(address.url), address.how)
        try:
            _check(address.url)
        except WireError as error:
            log.debug("the server can not be checked now: %s", error)
            return address.url, None, True
        return address.url, None, False
    if not address.explicit:
        if isinstance(problem, Barred):
            # One answers, so there is no need of another; but this one is not for us.
            raise ConfigError(
                f"Redis at {address} does not let us in: {problem}; "
                "give --redis with user and password, or --embedded"
            )
        return *_start_embedded(settings, f"no server answers at {address.url}"), False
    if isinstance(problem, Barred):
        log.error(
            "Redis at %s does not let us in: %s; trying again until it does", address, problem
        )
    else:
        log.warning("Redis at %s does not answer: %s; waiting for it", address, problem)
    return address.url, None, True


def _problem_with(url: str) -> WireError | None:
    wire = Wire(url, name="skedulr:start", timeout_s=2)
    try:
        wire.call("PING")
    except Refused:
        return None
    except WireError as error:
        return error
    except ResponseError:
        return None  # it answers; what this user lacks will be said where it is needed
    finally:
        wire.close()
    return None


def _check(url: str) -> None:
    """Say where this server may lose what it is given; raises ConfigError for one too old, and the
    errors of a wire."""
    wire = Wire(url, name="skedulr:start", timeout_s=2)
    try:
        for warning in check_server(wire):
            log.warning("%s", warning)
    finally:
        wire.close()


def _settle_transports(settings: config.Config, url: str) -> None:
    """Tell Redis how the ready work of the pools is kept; ConfigError for a pool that holds work
    of another transport. A server that does not answer now hears of it from the children."""
    wire = Wire(url, name="skedulr:start", timeout_s=2)
    try:
        for pool in settings.pools if settings.modules else ():
            settle(wire, PoolKeys(settings.namespace, pool.name), pool.transport, settings.lease)
    except WireError as error:
        log.debug("the pools' transports can not be settled now: %s", error)
    finally:
        wire.close()


def _start_embedded(settings: config.Config, why: str) -> tuple[str, EmbeddedServer]:
    # Closed, it is None.
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not at_terminal and not settings.embedded and (
        "KUBERNETES_SERVICE_HOST" in os.environ or "INVOCATION_ID" in os.environ
    ):
        raise ConfigError(f"{why}, and a service manager runs this: give --redis URL or --embedded")
    server = EmbeddedServer(Path(settings.embedded_dir))
    # With --reload an error is waited out, until the file changes.
    if settings.modules and not settings.reload and not can_be_imported(settings.modules):
        log.error("no pool can start: see the error above; no server was started")
        raise _CanNotBoot
    began = time.monotonic()
    try:
        url = server.start()
    except ConfigError as error:
        if settings.embedded:
            raise
        # Who never asked for an embedded server has to learn why one was wanted.
        raise ConfigError(f"{why}, and {error}") from error
    log.info(
        "%s: %s an embedded server in %s (%.0f ms); its data stay there",
        why, "started" if server.owned else "joined", settings.embedded_dir,
        1000 * (time.monotonic() - began),
    )
    return url, server


def _run_master(
    settings: config.Config, url: str, pid_file: PidFile | None,
    check: Callable[[], None] | None = None,
) -> int:
    if not settings.modules:
        log.warning("no module with tasks is given: nothing is claimed (skedulr-master MODULE)")
    if settings.preload:
        # After patching and before any fork. Modules must not start threads or connections at
        # import; children would inherit them dead.
        try:
            load_modules(settings.modules)
        except BaseException as error:
            print_error(error)
            return CANNOT_BOOT
    master = Master(config=settings, url=url, notifier=Notifier(os.environ), check_server=check)
    ui = _ui_server(settings, url, master)
    if ui is not None:
        # Before the fork: a port that is taken ends the master while it holds nothing.
        ui.listen()
    if pid_file is not None:
        # A child that held it would hold the lock as well, and outlive a killed master.
        master.children.kept.append(pid_file.descriptor)
    try:
        return master.run(beside=ui.start if ui is not None else _nothing)
    finally:
        if ui is not None:
            ui.stop()


def _nothing() -> None:
    """Beside a master without UI."""


def _ui_server(settings: config.Config, url: str, master: Master) -> UiServer | None:
    """The UI's server, which holds nothing yet; None where none is wanted."""
    address = settings.ui_address
    if address is None:
        return None
    users = read_users(settings.ui_auth, settings.ui_auth_file)
    if not users and not settings.ui_loopback:
        raise ConfigError(
            f"--ui {settings.ui} can be reached from other machines: give --ui-auth USER:PASSWORD "
            "or --ui-auth-file FILE (or keep it to this machine: --ui 127.0.0.1:8725, or --no-ui)"
        )
    client = Client(ClientConfig(
        url=url, namespace=settings.namespace, submit_timeout_s=settings.submit_timeout,
        payload_limit=settings.payload_limit, capacity=settings.capacity or 0, name="ui",
        wait_replicas=settings.wait_replicas, codec=codec_of(settings.codec),
    ))
    app = make_app(
        client, prefix=settings.ui_prefix, auth=users or None, read_only=settings.ui_read_only,
        hosts=settings.ui_host, loopback=settings.ui_loopback, proxies=settings.ui_proxies,
        metrics_auth=settings.metrics_auth,
    )
    return UiServer(_Ready(app, master.problems), address)


class _Ready:
    """The UI's application, which answers for Redis alone, and before it what the node says: it is
    not ready while a child boots, does not yield, or drains."""

    def __init__(
        self, app: Callable[..., Iterable[bytes]], problems: Callable[[], list[str]]
    ) -> None:
        self._app, self._problems = app, problems

    def __call__(
        self, environ: dict[str, Any], start: Callable[..., object]
    ) -> Iterable[bytes]:
        asked = environ["PATH_INFO"].rpartition("/")[2] in ("readyz", "healthz")
        problems = self._problems() if asked else []
        if not problems:
            return self._app(environ, start)
        error = {"code": "not_ready", "message": "; ".join(problems)}
        start("503 Service Unavailable", [("Content-Type", "application/json")])
        return [json.dumps({"error": error}).encode()]

"""Settings: one table, read once at the edge, handed down as one frozen value.

- ``SETTINGS`` is the table. Each row drives a flag, an environment variable and a key in the file:
  ``--hang-timeout``, ``SKEDULR_HANG_TIMEOUT``, ``hang_timeout``.
- ``load`` merges the sources (flags, ``configure()``, environment, file, defaults: the first that
  has a value wins) and refuses what can not be used, in one line that says what would do.
- ``parse_pools`` reads pool specs such as ``cpu=4x2,default=2..32,events=8:streams``.
- ``find_redis`` says which server is meant and how it was found; ``socket_in`` finds the embedded
  server of a folder.
- ``describe`` lists every value and where it came from, with passwords hidden.

Importing this module reads nothing and loads no gevent, redis, ssl or socket.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from skedulr.errors import ConfigError, nearest

if sys.platform != "win32":
    import fcntl

#: Names of pools and namespaces: they become part of Redis keys and of URLs.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: A pool's workers are greenlets of one process; more is a typing error, not a wish.
MAX_WORKERS = 10_000
MAX_PROCESSES = 1_000
#: How a pool's ready work may be kept; packages bring more by entry points of this group.
TRANSPORTS = ("zset", "streams")
TRANSPORT_GROUP = "skedulr.transports"

DEFAULT_URL = "redis://127.0.0.1:6379/0"
SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
#: What a URL leads to.
SERVER, SENTINEL, CLUSTER = "server", "sentinel", "cluster"

#: In an embedded server's folder: its socket, the lock its keeper holds, and, where the socket's
#: own path is longer than a socket address may be, a file with a shorter path to it.
SOCKET_FILE = "redis.sock"
LOCK_FILE = "server.lock"
SHORT_PATH_FILE = "socket-path"
#: The least of the systems' limits (Linux takes 107 bytes, macOS 103).
SOCKET_PATH_BYTES = 103

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
#: What ``gevent.monkey`` can be told to leave alone. Written out: importing gevent to ask it would
#: be the early import that patching first is there to prevent.
PATCHES = (
    "builtins",
    "contextvars",
    "dns",
    "os",
    "queue",
    "select",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "thread",
    "time",
)


# ---------------------------------------------------------------------------------- pool specs


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One named pool as the operator asked for it.

    ``minimum`` and ``maximum`` are workers per process, equal unless the pool is auto-tuned;
    ``processes`` is how many children serve it on each node. ``str()`` gives the text back.

    >>> str(parse_pools("cpu = 4x2")[0])
    'cpu=4x2'
    """

    name: str
    minimum: int
    maximum: int
    processes: int = 1
    transport: str = "zset"

    @property
    def tuned(self) -> bool:
        """Whether the number of workers moves between ``minimum`` and ``maximum``."""
        return self.minimum != self.maximum

    def __str__(self) -> str:
        workers = f"{self.minimum}..{self.maximum}" if self.tuned else f"{self.minimum}"
        processes = f"x{self.processes}" if self.processes != 1 else ""
        transport = f":{self.transport}" if self.transport != "zset" else ""
        return f"{self.name}={workers}{processes}{transport}"


POOLS_FORM = (
    "NAME=WORKERS or NAME=MIN..MAX, then xPROCESSES or :streams where wanted, "
    "as in cpu=4x2,default=2..32,events=8:streams"
)
_POOL_ITEM = re.compile(
    r"(?P<name>[^=]*?)\s*=\s*(?P<minimum>[0-9]+)(?:\s*\.\.\s*(?P<maximum>[0-9]+))?"
    r"(?:\s*x\s*(?P<processes>[0-9]+))?(?:\s*:\s*(?P<transport>[\w.-]+))?"
)


def parse_pools(text: str) -> tuple[PoolSpec, ...]:
    """Pool specs from ``"cpu=4x2,default=2..32"``, separated by commas or line ends.

    ``ConfigError`` names the item that is wrong, its place, and the right form.
    """
    lines = (line.strip().removesuffix(",") for line in text.splitlines())
    items = ",".join(line for line in lines if line).split(",")
    pools: dict[str, PoolSpec] = {}
    for place, item in enumerate(items, start=1):
        pool = _parse_pool(item.strip(), place)
        if pool.name in pools:
            _refuse_pool(item, place, f"pool '{pool.name}' is given twice")
        pools[pool.name] = pool
    return tuple(pools.values())


def _parse_pool(item: str, place: int) -> PoolSpec:
    match = _POOL_ITEM.fullmatch(item)
    if not match:
        _refuse_pool(item, place, "there is no pool in it" if not item else "not a pool spec")
    name, transport = match["name"], match["transport"] or "zset"
    minimum = int(match["minimum"][:9])
    maximum = int((match["maximum"] or match["minimum"])[:9])
    processes = int((match["processes"] or "1")[:9])
    if not NAME.fullmatch(name):
        _refuse_pool(item, place, "a pool's name is 1 to 64 letters, digits, '_', '.' or '-'")
    if minimum < 1 or maximum > MAX_WORKERS:
        _refuse_pool(item, place, f"a pool has 1 to {MAX_WORKERS:,} workers")
    if minimum > maximum:
        _refuse_pool(item, place, f"MIN {minimum} is over MAX {maximum}")
    if not 1 <= processes <= MAX_PROCESSES:
        _refuse_pool(item, place, f"a pool has 1 to {MAX_PROCESSES:,} processes")
    if transport not in TRANSPORTS and transport not in (known := transports()):
        hint = nearest(transport, known)
        _refuse_pool(item, place, f"there is no transport '{transport}'{hint}")
    return PoolSpec(name, minimum, maximum, processes, transport)


def transports() -> tuple[str, ...]:
    """The transports that can be had here: Skedulr's own, and those of packages."""
    # Few look for one; it loads a lot.
    from importlib.metadata import entry_points

    return (*TRANSPORTS, *sorted(one.name for one in entry_points(group=TRANSPORT_GROUP)))


def _refuse_pool(item: str, place: int, why: str) -> NoReturn:
    raise ConfigError(f"pools, item {place} {_short(item.strip())}: {why}; write {POOLS_FORM}")


# ----------------------------------------------------------------------------------- the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, with its default. ``load`` makes it from what the user gave.

    Made directly it checks nothing, so that tests can use a lease of a tenth of a second.
    Times are seconds, ``max_rss`` is MB, limits of payload and result are bytes.
    """

    redis: str | None = field(default=None, repr=False)
    embedded: bool = False
    embedded_dir: str = ".skedulr"
    namespace: str = "skedulr"
    pools: tuple[PoolSpec, ...] = (PoolSpec("default", 10, 10),)
    pool_transport: tuple[tuple[str, str], ...] = ()
    modules: tuple[str, ...] = ()
    chdir: str | None = None
    ui: str | None = "127.0.0.1:8725"
    ui_auth: str | None = field(default=None, repr=False)
    ui_auth_file: str | None = None
    ui_host: tuple[str, ...] = ()
    ui_prefix: str = ""
    ui_proxies: tuple[str, ...] = ()
    ui_read_only: bool = False
    metrics_auth: bool = False
    grace: float = 25.0
    lease: float = 15.0
    hang_timeout: float = 60.0
    max_tasks: int | None = None
    max_rss: int | None = None
    target_wait: tuple[float, float] = (1.0, 5.0)
    reload: bool = False
    preload: bool = False
    no_patch: tuple[str, ...] = ()
    log_level: str = "info"
    log_json: bool = False
    pid_file: str | None = None
    unknown_after: float = 900.0
    aging: tuple[str, ...] = ()
    submit_timeout: float = 5.0
    codec: str | None = None
    payload_limit: int = 1_048_576
    result_limit: int = 1_048_576
    keep_records_days: float = 7.0
    keep_records: int = 100_000
    keep_dead: int = 100_000
    keep_records_mb: int = 512
    capacity: int | None = None
    wait_replicas: int = 0
    #: Where each value came from: "flag --lease", "environment SKEDULR_LEASE", "file setup.cfg".
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def aging_of(self, pool: str) -> float:
        """After how many seconds work of ``pool`` goes first whatever its priority; 0: never."""
        parts = [one.rpartition("=") for one in self.aging]
        named = {name: float(number) for name, _, number in parts}
        return named.get(pool, named.get("", 0.0))

    @property
    def ui_address(self) -> tuple[str, int] | None:
        """Host and port to serve the UI on, brackets of an IPv6 host taken off; None: no UI."""
        if self.ui is None:
            return None
        host, _, port = self.ui.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def ui_loopback(self) -> bool:
        """Whether the UI can be reached from this machine alone (or there is none)."""
        host = self.ui_address[0] if self.ui_address else "localhost"
        return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


# ------------------------------------------------------------- parsers: ValueError if unusable

Parser = Callable[[Any], Any]


class _Unusable(ValueError):
    """A parser's refusal that says more than that the value will not do."""


def _text(value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ValueError
    return os.fspath(value)


def _switch(value: Any) -> bool:
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError


def _seconds(least: float, above: bool = False) -> Parser:
    def parse(value: Any) -> float:
        if isinstance(value, bool):
            raise ValueError
        number = value.total_seconds() if isinstance(value, timedelta) else float(value)
        # Written so that not-a-number fails as well.
        if not (least < number if above else least <= number) or number > 1e9:
            raise ValueError
        return float(number)

    return parse


def _whole(least: int) -> Parser:
    def parse(value: Any) -> int:
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise ValueError
        number = int(value)
        if not least <= number < 2**53:
            raise ValueError
        return number

    return parse


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(word for word in re.split(r"[,\s]+", value) if word)
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError
    return tuple(value)


def _codec(value: Any) -> str:
    text = _text(value)
    kind, _, file = text.partition(":")
    if kind not in ("sign", "encrypt") or not file:
        raise ValueError
    return text


def _one_of(choices: tuple[str, ...], parse: Parser = _text) -> Parser:
    def chosen(value: Any) -> Any:
        result = parse(value.lower() if isinstance(value, str) else value)
        for word in result if isinstance(result, tuple) else (result,):
            if word not in choices:
                raise _Unusable(f"there is no '{word}'{nearest(word, choices)}")
        return result

    return chosen


def _namespace(value: Any) -> str:
    name = _text(value)
    if not NAME.fullmatch(name):
        raise ValueError
    return name


def _pools(value: Any) -> tuple[PoolSpec, ...]:
    """From text, from a list of texts or specs, or from a table ``{name = workers}``."""
    if isinstance(value, Mapping):
        value = [f"{name}={workers}" for name, workers in value.items()]
    if isinstance(value, list | tuple):
        value = ",".join(str(one) for one in value)
    return parse_pools(_text(value))


def _pool_transport(value: Any) -> tuple[tuple[str, str], ...]:
    """From text, a list of texts, or a table ``{name = transport}``."""
    if isinstance(value, Mapping):
        value = [f"{name}={transport}" for name, transport in value.items()]
    chosen = {}
    for one in _words(value):
        name, equals, transport = one.partition("=")
        if not equals or not NAME.fullmatch(name):
            raise ValueError
        if transport not in TRANSPORTS and transport not in (known := transports()):
            raise _Unusable(f"there is no transport '{transport}'{nearest(transport, known)}")
        chosen[name] = transport
    return tuple(chosen.items())


_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


def _modules(value: Any) -> tuple[str, ...]:
    names = _words(value)
    for name in names:
        if name.partition(":")[0].endswith(".py"):
            dotted = name.partition(":")[0].removesuffix(".py").strip("./").replace("/", ".")
            raise _Unusable(f"'{name}' is a file; write the module, '{dotted}'")
        if not _MODULE.fullmatch(name):
            raise _Unusable(f"'{name}' is not a module's name")
    return names


def _ui(value: Any) -> str | None:
    if value is None or value is False or str(value).lower() == "none":
        return None
    host, _, port = _text(value).rpartition(":")
    named = re.fullmatch(r"\[[0-9A-Fa-f:.%\w]+\]|[^\s:/@\[\]]+", host)
    if not named or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise ValueError
    return f"{host}:{int(port)}"


def _credentials(value: Any) -> str:
    user, _, password = _text(value).partition(":")
    if not user or not password:
        raise ValueError
    return f"{user}:{password}"


def _prefix(value: Any) -> str:
    prefix = _text(value).rstrip("/")
    if not re.fullmatch(r"(/[A-Za-z0-9_.~-]+)*", prefix):
        raise ValueError
    return prefix


def _band(value: Any) -> tuple[float, float]:
    low, high = value.split("..") if isinstance(value, str) else value
    low, high = _seconds(0, above=True)(low), _seconds(0, above=True)(high)
    if low > high:
        raise ValueError
    return low, high


def _aging(value: Any) -> tuple[str, ...]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    found = {}
    for one in _words(value):
        name, equals, number = one.rpartition("=")
        if bool(equals) != bool(name) or (name and not NAME.fullmatch(name)):
            raise ValueError
        found[name] = f"{name}{equals}{_seconds(0)(number):g}"
    return tuple(found.values())


# ----------------------------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: how a setting is named, read, explained and shown.

    ``takes`` completes "it takes ..." in messages; ``metavar`` None makes the flag a switch.
    ``parse`` gets text, or the native value of a TOML file or of ``configure()``.
    """

    name: str
    parse: Parser
    takes: str
    help: str
    metavar: str | None = None
    secret: bool = False

    @property
    def flag(self) -> str:
        """``--hang-timeout``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """``SKEDULR_HANG_TIMEOUT``."""
        return "SKEDULR_" + self.name.upper()

    @property
    def default(self) -> Any:
        """The default, as ``Config`` has it."""
        return _DEFAULTS[self.name]


_DEFAULTS = {one.name: one.default for one in fields(Config) if one.default is not MISSING}


def _url(value: Any) -> str:
    return check_url(_text(value).strip())


_POSITIVE = "a number of seconds above 0"
_ZERO_UP = "a number of seconds, 0 or more"
_ONE_UP = "a whole number, 1 or more"
_COUNT = "a whole number, 0 or more"
_SWITCH = "yes or no"

SETTINGS: tuple[Setting, ...] = (
    Setting("redis", _url, "a URL such as redis://host:6379/0", "the server to use", "URL", True),
    Setting("embedded", _switch, _SWITCH, "start a private server for development"),
    Setting("embedded_dir", _text, "a folder", "where the private server keeps its data", "DIR"),
    Setting("namespace", _namespace, "1 to 64 letters, digits, '_', '.' or '-'",
            "prefix of every key; nodes see each other inside one", "NAME"),
    Setting("pools", _pools, POOLS_FORM, "the pools to serve: " + POOLS_FORM, "SPEC"),
    Setting("pool_transport", _pool_transport, "NAME=TRANSPORT, as in events=streams",
            "how the ready work of pools is kept (zset or streams), where their specs do not say",
            "NAME=TRANSPORT"),
    Setting("modules", _modules, "names as in shop.tasks or shop.tasks:app",
            "the modules with the tasks", "MODULE[:ATTR]"),
    Setting("chdir", _text, "a folder", "change to this folder first (default: stay)", "DIR"),
    Setting("ui", _ui, "HOST:PORT, as in 127.0.0.1:8725, or none",
            "address of the web UI", "HOST:PORT"),
    Setting("ui_auth", _credentials, "USER:PASSWORD",
            "credentials of the web UI (default: none, on this machine alone)", "USER:PASSWORD",
            True),
    Setting("ui_auth_file", _text, "a file", "a file with USER:PASSWORD in it", "FILE"),
    Setting("ui_host", _words, "host names, with commas between",
            "names the web UI may be called by, beside its address", "NAME"),
    Setting("ui_prefix", _prefix, "a path such as /jobs", "path the web UI is mounted at", "PATH"),
    Setting("ui_proxies", _words, "addresses or networks, with commas between",
            "peers whose X-Forwarded-* headers the web UI believes", "ADDRESS"),
    Setting("ui_read_only", _switch, _SWITCH, "show, and change nothing, in the web UI"),
    Setting("metrics_auth", _switch, _SWITCH, "ask for credentials on /metrics as well"),
    Setting("grace", _seconds(0), _ZERO_UP, "time running tasks get at a shutdown", "SECONDS"),
    Setting("lease", _seconds(1), "a number of seconds, 1 or more",
            "how long a silent process keeps its tasks", "SECONDS"),
    Setting("hang_timeout", _seconds(0, above=True), _POSITIVE,
            "replace a child that has not yielded for so long", "SECONDS"),
    Setting("max_tasks", _whole(1), _ONE_UP,
            "replace a child after so many tasks (default: never)", "N"),
    Setting("max_rss", _whole(1), _ONE_UP,
            "replace a child that holds more memory (default: never)", "MB"),
    Setting("target_wait", _band, "LOW..HIGH in seconds, as in 1..5",
            "band an auto-tuned pool keeps the predicted wait in", "LOW..HIGH"),
    Setting("reload", _switch, _SWITCH, "restart the children when code changes (development)"),
    Setting("preload", _switch, _SWITCH,
            "import the modules once, in the master: children share their memory, but only a "
            "restart of the master loads new code"),
    Setting("no_patch", _one_of(PATCHES, _words), "parts gevent patches, as in ssl,queue",
            "parts of the standard library to leave unpatched, as in ssl,queue (default: none)",
            "NAMES"),
    Setting("log_level", _one_of(LOG_LEVELS), "one of " + ", ".join(LOG_LEVELS),
            "what is logged: " + ", ".join(LOG_LEVELS), "LEVEL"),
    Setting("log_json", _switch, _SWITCH, "log one JSON object a line"),
    Setting("pid_file", _text, "a file", "write the master's process id there, and refuse a second",
            "FILE"),
    Setting("unknown_after", _seconds(0), _ZERO_UP,
            "when a task whose name no child knows is given up", "SECONDS"),
    Setting("aging", _aging, "seconds for all pools, or for some, as in 30 or bulk=600,mail=30",
            "work that has waited so long goes first, whatever its priority (default: never)",
            "SECONDS"),
    Setting("submit_timeout", _seconds(0, above=True), _POSITIVE,
            "how long a submit may take before it fails", "SECONDS"),
    Setting("codec", _codec, "sign:FILE or encrypt:FILE",
            "sign, or encrypt, what tasks carry, with the keys in FILE, one a line", "KIND:FILE"),
    Setting("payload_limit", _whole(1), _ONE_UP, "most bytes of a task's arguments", "BYTES"),
    Setting("result_limit", _whole(1), _ONE_UP, "most bytes of a task's result", "BYTES"),
    Setting("keep_records_days", _seconds(0), "a number of days, 0 or more",
            "how long records of finished tasks are kept", "DAYS"),
    Setting("keep_records", _whole(0), _COUNT,
            "how many records of finished tasks a pool keeps", "N"),
    Setting("keep_dead", _whole(0), _COUNT, "how many dead tasks a pool keeps", "N"),
    Setting("keep_records_mb", _whole(1), _ONE_UP,
            "how much memory in Redis the records of a pool take, dead ones go last", "MB"),
    Setting("capacity", _whole(1), _ONE_UP,
            "most tasks a pool holds unfinished; a submit beyond it fails (default: any number)",
            "N"),
    Setting("wait_replicas", _whole(0), _COUNT,
            "replicas that must have a submitted task before it counts", "N"),
)  # fmt: skip
_BY_NAME = {setting.name: setting for setting in SETTINGS}

#: The settings that have flags, under the headings of the help.
HEADINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("which Redis", ("redis", "embedded", "embedded_dir", "namespace", "wait_replicas")),
    ("what is run", (
        "pools", "pool_transport", "chdir", "target_wait", "aging", "unknown_after", "capacity",
        "no_patch", "preload", "reload",
    )),
    ("ends and replacements", (
        "grace", "lease", "hang_timeout", "max_tasks", "max_rss", "pid_file",
    )),
    ("the web UI", (
        "ui", "ui_auth", "ui_auth_file", "ui_host", "ui_prefix", "ui_proxies", "ui_read_only",
        "metrics_auth",
    )),
    ("the log", ("log_level", "log_json")),
    ("what is sent and kept", (
        "submit_timeout", "codec", "payload_limit", "result_limit", "keep_records_days",
        "keep_records", "keep_dead", "keep_records_mb",
    )),
)

#: Other names for a setting, in every source. ``no_ui`` and ``redis_url_file`` are not here: they
#: change the value as well, and are folded in by ``_fold``.
_ALIASES = {"redis_url": "redis"}
_FOLDED = ("no_ui", "redis_url_file")
_NO_UI = Setting("no_ui", _switch, _SWITCH, "serve no web UI")


def add_flags(parser: Any, names: Iterable[str] | None = None) -> None:
    """Give an ``argparse`` parser the flags of ``names``, or of every setting but ``modules``.

    Flags that were not given are None, as ``load`` expects; values stay text until ``load``.
    """
    for name in [one.name for one in SETTINGS if one.name != "modules"] if names is None else names:
        setting = _BY_NAME[name]
        if setting.metavar is None:
            parser.add_argument(setting.flag, action="store_true", default=None, help=setting.help)
            continue
        shown = show(setting, setting.default)
        tail = f" (default: {shown})" if shown else ""
        parser.add_argument(setting.flag, metavar=setting.metavar, help=setting.help + tail)
        if name == "ui":
            parser.add_argument("--no-ui", action="store_true", default=None, help=_NO_UI.help)


# ----------------------------------------------------------------------------------- the merge


@dataclass(frozen=True, slots=True)
class _Given:
    """A raw value and where it came from. Lower ``rank``: the stronger source."""

    value: Any
    source: str
    rank: int


_Layer = dict[str, _Given]


def load(
    flags: Mapping[str, Any],
    configured: Mapping[str, Any],
    environ: Mapping[str, str],
    directory: Path,
    file: Path | None = None,
) -> Config:
    """The settings in force: flags, then ``configure()``, ``SKEDULR_*``, the file, defaults.

    ``flags`` and ``configured`` map names of settings to values; None means not given. The file is
    ``file`` (or ``SKEDULR_CONFIG``), else pyproject.toml or setup.cfg in ``directory`` itself; if
    both have a section, pyproject.toml alone is read. ``ConfigError``: an unknown name or a value
    that can not be used, and where it was found.

    >>> load({"lease": "30"}, {}, {}, Path("/nowhere")).lease
    30.0
    """
    if file is None and environ.get("SKEDULR_CONFIG"):
        file = Path(environ["SKEDULR_CONFIG"])
    layers = (
        _from_flags(flags),
        _from_configure(configured),
        _from_environment(environ),
        _from_file(directory, file),
    )
    given: _Layer = {}
    for layer in reversed(layers):
        given.update(layer)
    values = {name: _parse(_BY_NAME[name], one) for name, one in given.items()}
    sources = dict.fromkeys(_BY_NAME, "default") | {n: one.source for n, one in given.items()}
    _choose_server(values, sources, given)
    _choose_transports(values, sources)
    return Config(**values, sources=sources)


def _parse(setting: Setting, given: _Given) -> Any:
    try:
        return setting.parse(given.value)
    except ConfigError as error:
        raise ConfigError(f"{given.source}: {error}") from None
    except _Unusable as error:
        raise ConfigError(f"{given.source}: {error}; it takes {setting.takes}") from None
    except (ValueError, TypeError, OverflowError):
        shown = "the value" if setting.secret else _short(given.value)
        why = f"{shown} can not be used"
        raise ConfigError(f"{given.source}: {why}; it takes {setting.takes}") from None


def _choose_transports(values: dict[str, Any], sources: dict[str, str]) -> None:
    """What ``pool_transport`` says goes into the specs of the pools."""
    wanted = dict(values.get("pool_transport", ()))
    pools = values.get("pools", _DEFAULTS["pools"])
    for name in wanted:
        if name not in {pool.name for pool in pools}:
            raise ConfigError(
                f"{sources['pool_transport']}: no pool is called '{name}'"
                f"{nearest(name, [pool.name for pool in pools])}"
            )
    chosen = []
    for pool in pools:
        transport = wanted.get(pool.name, pool.transport)
        if pool.transport not in ("zset", transport):
            raise ConfigError(
                f"{sources['pool_transport']}: pool '{pool.name}' is '{transport}', and "
                f"'{pool.transport}' in {sources['pools']}"
            )
        chosen.append(replace(pool, transport=transport))
    if wanted:
        values["pools"] = tuple(chosen)


def _choose_server(values: dict[str, Any], sources: dict[str, str], given: _Layer) -> None:
    """``--redis`` and ``--embedded`` exclude each other: the stronger source wins."""
    if not values.get("embedded") or values.get("redis") is None:
        return
    redis, embedded = given["redis"], given["embedded"]
    if redis.rank == embedded.rank:
        raise ConfigError(f"{redis.source} and {embedded.source}: give one of the two")
    loser, value, winner = ("redis", None, embedded) if embedded.rank < redis.rank else (
        "embedded", False, redis)  # fmt: skip
    values[loser], sources[loser] = value, winner.source


def _from_flags(flags: Mapping[str, Any]) -> _Layer:
    def source(name: str) -> str:
        if name == "modules":
            return "the command line"
        return f"flag --{name.replace('_', '-')}"

    return _fold(0, {n: v for n, v in flags.items() if v is not None}, source, "flag")


def _from_configure(configured: Mapping[str, Any]) -> _Layer:
    values = {n: v for n, v in configured.items() if v is not None}
    if "url" in values:
        values.setdefault("redis_url", values.pop("url"))
    return _fold(1, values, lambda name: "configure()", "option of configure()")


#: What Kubernetes and Docker put in the environment for a service that is called skedulr.
_SERVICE_LINK = re.compile(
    r"SKEDULR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|NAME|ENV_\w+"
    r"|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def _from_environment(environ: Mapping[str, str]) -> _Layer:
    """``SKEDULR_*``. An empty variable counts as not set: compose files leave such behind."""
    values = {}
    for variable, value in environ.items():
        if not variable.startswith("SKEDULR_") or variable == "SKEDULR_CONFIG" or not value.strip():
            continue
        name = variable.removeprefix("SKEDULR_").lower()
        if _known(name) or not _SERVICE_LINK.fullmatch(variable):
            values[name] = value
    return _fold(2, values, lambda name: f"environment SKEDULR_{name.upper()}", "variable")


def _from_file(directory: Path, file: Path | None) -> _Layer:
    found = _read_file(file, asked=True) if file is not None else None
    if file is None:
        for file in (directory / "pyproject.toml", directory / "setup.cfg"):
            found = _read_file(file, asked=False)
            if found is not None:
                break
    if found is None or file is None:
        return {}
    place = f"file {file.name if file.parent == directory else file}"
    values = {n: v for n, v in found.items() if not (isinstance(v, str) and not v.strip())}
    return _fold(3, values, lambda name: f"{place}, {name}", f"key in {place}", lambda name: place)


def _read_file(file: Path, asked: bool) -> Mapping[str, Any] | None:
    """The section of ``file``, or None where there is none; one that was asked for must have it."""
    toml = file.suffix == ".toml"
    try:
        text = file.read_text(encoding="utf-8-sig")
        found = _toml_section(text, asked) if toml else _ini_section(text)
    except FileNotFoundError:
        if asked:
            raise ConfigError(f"there is no configuration file {file}") from None
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, configparser.Error) as error:
        why = " ".join(str(error).split())
        raise ConfigError(f"configuration file {file} can not be read: {why}") from error
    if found is None and asked:
        wanted = "[tool.skedulr]" if toml else "[skedulr]"
        raise ConfigError(f"configuration file {file} has no section {wanted}")
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"configuration file {file}: tool.skedulr is not a table")
    return found


def _toml_section(text: str, asked: bool) -> Any:
    tables = tomllib.loads(text)
    found = tables.get("tool", {}).get("skedulr")
    # A file of our own, named by --config, may leave out the "tool" that pyproject.toml needs.
    return tables.get("skedulr") if found is None and asked else found


def _ini_section(text: str) -> Mapping[str, Any] | None:
    # [DEFAULT] is other tools' business: a default section nobody can have switches it off.
    parser = configparser.ConfigParser(interpolation=None, default_section="\n")
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are kept as written
    parser.read_string(text)
    return dict(parser.items("skedulr")) if parser.has_section("skedulr") else None


def _fold(
    rank: int,
    values: Mapping[str, Any],
    source: Callable[[str], str],
    kind: str,
    shown: Callable[[str], str] | None = None,
) -> _Layer:
    """One source's values under the settings' own names; unknown names are refused.

    ``source`` names the value in an error; ``shown``, if it differs, in ``Config.sources``.
    """
    layer: _Layer = {}
    for name, value in values.items():
        if not _known(name):
            spelled = f"SKEDULR_{name.upper()}" if kind == "variable" else name
            names = (*_BY_NAME, *_ALIASES, *_FOLDED)
            hint = nearest(spelled, (f"SKEDULR_{n.upper()}" for n in names) if kind == "variable"
                           else names)  # fmt: skip
            raise ConfigError(f"unknown {kind} '{spelled}'{hint}")
        target = _ALIASES.get(name, name)
        if name == "no_ui":
            if not _parse(_NO_UI, _Given(value, source(name), rank)):
                continue
            target, value = "ui", None
        if name == "redis_url_file":
            target, value = "redis", _read_url(value, source(name))
        if target in layer:
            raise ConfigError(f"{source(name)} and {layer[target].source}: give one of the two")
        layer[target] = _Given(value, (shown or source)(name), rank)
    return layer


def _known(name: str) -> bool:
    return name in _BY_NAME or name in _ALIASES or name in _FOLDED


def _read_url(file: Any, source: str) -> str:
    try:
        url = Path(_text(file)).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source}: {_short(file)} can not be read: {error}") from error
    if not url:
        raise ConfigError(f"{source}: {_short(file)} is empty; it takes a file with a URL in it")
    return url


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:76] + "...'"


# --------------------------------------------------------------------------------- which Redis


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A server's URL, how it was found (a phrase for messages), whether someone asked for it."""

    url: str = field(repr=False)
    how: str
    explicit: bool = False

    def __str__(self) -> str:
        return f"{hide_password(self.url)} ({self.how})"


def find_redis(config: Config, environ: Mapping[str, str], directory: Path) -> RedisAddress:
    """Which server is meant, seen from ``directory``; nothing is connected to.

    In order: flag, ``configure()``, environment, file (all four are in ``config``; if that was made
    without ``load``, the environment is looked up here), the embedded server in ``.skedulr`` here
    or above, the default address. With ``embedded`` set: that server's address, running or not.
    """
    if config.redis is not None:
        return RedisAddress(config.redis, _how(config.sources.get("redis", "")), explicit=True)
    if config.embedded:
        home = directory / config.embedded_dir
        path = socket_in(home) or home / SOCKET_FILE
        return RedisAddress(socket_url(path), f"embedded server in {config.embedded_dir}", True)
    if not config.sources and (given := _from_environment(environ).get("redis")):
        return RedisAddress(_parse(_BY_NAME["redis"], given), _how(given.source), explicit=True)
    for folder in _folders_up(directory):
        found = socket_in(folder / config.embedded_dir)
        if found is not None:
            shown = os.path.relpath(folder / config.embedded_dir, directory)
            return RedisAddress(socket_url(found), f"found embedded server in {shown}")
    return RedisAddress(DEFAULT_URL, "the default address")


def _how(source: str) -> str:
    return "from " + (re.sub(r"^(flag|environment|file) ", "", source) or "the configuration")


def _folders_up(directory: Path) -> Iterator[Path]:
    here = Path(os.path.abspath(directory))
    yield here
    yield from here.parents


def socket_in(directory: Path) -> Path | None:
    """The socket of the embedded server that runs in ``directory``, or None.

    Not promised: that it answers. A socket that a killed server left behind is not returned (its
    keeper's lock is free), nor is another user's: a folder above may be one that anybody can write.
    """
    if sys.platform == "win32":
        return None
    directory = Path(os.path.abspath(directory))
    path = directory / SOCKET_FILE
    try:
        if path.stat().st_uid != os.geteuid() or _lock_is_free(directory / LOCK_FILE):
            return None
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            return path
        path = Path((directory / SHORT_PATH_FILE).read_text(encoding="utf-8"))
        return path if path.exists() else None
    except (OSError, ValueError):
        return None


def _lock_is_free(lock: Path) -> bool:
    """Whether a keeper left this lock behind. Tries it shared, for a moment: keepers try again."""
    if sys.platform == "win32":
        return False
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def socket_url(path: Path) -> str:
    """``unix://`` URL of a socket; clients undo the quoting of blanks and ``%``."""
    return "unix://" + quote(os.fsencode(os.path.abspath(path)))


# ---------------------------------------------------------------------------------------- URLs


def check_url(url: str) -> str:
    """``url`` itself if it can name a server; else ``ConfigError`` with what is wrong in it.

    >>> check_url("redis://127.0.0.1:6379/0")
    'redis://127.0.0.1:6379/0'
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise ConfigError(f"'{hide_password(url)}' has no scheme; write redis://HOST:PORT/DB")
    if scheme not in SCHEMES:
        shown = hide_password(url)
        raise ConfigError(f"'{shown}': no scheme '{scheme}'{nearest(scheme, SCHEMES)}")
    why = _url_fault(scheme, rest.partition("?")[0])
    if why:
        raise ConfigError(f"'{hide_password(url)}': {why}")
    return url


def _url_fault(scheme: str, rest: str) -> str | None:
    """What is wrong with ``[user:password@]host[:port][,...]/path``, if anything."""
    base, _, kind = scheme.partition("+")
    if base == "unix":
        return None if "/" in rest else "no path; write unix:///path/to/redis.sock"
    credentials, _, address = rest.rpartition("@")
    if re.search(r"[/#]", credentials):
        return "its password has a '/' or '#' that is not quoted (%2F, %23)"
    hosts, _, path = address.partition("/")
    if kind and not all(hosts.split(",")):
        return f"an empty host; write {scheme}://HOST:PORT,HOST:PORT"
    for host in hosts.split(","):
        port = re.sub(r"^(\[[^\]]*\]|[^:]*)", "", host, count=1)
        if port and not (re.fullmatch(r":[0-9]{1,5}", port) and 0 < int(port[1:]) < 65_536):
            return f"'{port[1:]}' is not a port (a '?' in a password is written %3F)"
    service, _, database = path.partition("/") if kind == "sentinel" else ("", "", path)
    if kind == "sentinel" and not service:
        return f"no service; write {scheme}://HOST,HOST/SERVICE/DB"
    if not kind and "," in hosts:
        return f"several hosts; write {base}+sentinel:// or {base}+cluster://"
    if database and not re.fullmatch(r"[0-9]{1,5}/?", database):
        return f"'{database}' is not a database number"
    if kind == "cluster" and database.strip("/0"):
        return "a Cluster has database 0 alone"
    return None


def kind_of(url: str) -> str:
    """SERVER, SENTINEL or CLUSTER: what a URL leads to, by its scheme alone."""
    kind = url.partition("://")[0].partition("+")[2]
    return kind if kind in (SENTINEL, CLUSTER) else SERVER


def hide_password(url: str) -> str:
    """``url`` as it may be shown: passwords replaced by ``***``.

    >>> hide_password("redis://ann:secret@db/0?password=more")
    'redis://ann:***@db/0?password=***'
    """
    # Up to the last "@", so that a password with an unquoted "@" or "/" in it is hidden whole.
    url = re.sub(r"((?:^|://)[^:/@]*):(?!//).*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"([?&]\w*(?:password|secret)=)[^&#]*", r"\1***", url, flags=re.IGNORECASE)


# ------------------------------------------------------------------------------------- showing


def describe(config: Config) -> list[tuple[str, str, str]]:
    """Each setting's name, its value as text (passwords hidden) and where it came from."""
    return [
        (one.name, show(one, getattr(config, one.name)), config.sources.get(one.name, "default"))
        for one in SETTINGS
    ]


def show(setting: Setting, value: Any) -> str:
    """A value as text that the same setting would read back; secrets are hidden, None is empty."""
    if value is None:
        return "none" if setting.name == "ui" else ""
    if setting.name == "ui_auth":
        return f"{value.partition(':')[0]}:***"
    if setting.secret:
        return hide_password(str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if setting.name == "target_wait":
        return f"{value[0]:g}..{value[1]:g}"
    if isinstance(value, tuple):
        return ",".join(str(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Imports inside the package run one way; read from the source, so nothing is loaded for it.

A new module at the top of the package is added to ``LAYERS``; one inside of ``cli``, ``pools``,
``ui`` or ``hub`` belongs to that name already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import skedulr

PACKAGE = Path(skedulr.__file__).parent

#: From the top down. A module imports from its own layer and those below. ``pools`` and ``ui`` are
#: above ``app``, though a command puts all of them together: a child serves the tasks of an app,
#: while an app knows neither.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__", "cli", "launch"),
    ("pools", "ui", "contrib", "integrations", "testing", "bench"),
    ("app", "schedule_methods", "otel"),
    ("client", "bulk", "prepare", "committer", "waiting", "workflows",
     "schedule_client", "schedule_records", "schedule_store", "delivery", "flows",
     "spreading", "workflow_list", "importer", "exporter", "doctor", "findings", "rounds", "held",
     "ties"),
    ("transports", "storage", "streams",
     "store", "queries", "lists", "views", "counts", "tasks", "options", "middleware",
     "names", "sizing", "subscription", "wires", "handles", "hooks", "scheduling", "dag",
     "signatures", "defaults",
     "dependencies", "limit_store", "figures", "measures", "metrics", "lead", "tuning"),
    ("wire", "wire_errors", "exchange", "lookout", "whereabouts", "addresses", "sentinels",
     "cluster", "redis_scripts", "keys", "message", "payload", "retries", "limiting", "uids",
     "context", "logs", "servercheck", "acl", "statistics", "codecs", "kept", "transfer"),
    ("cronline", "config", "clock", "errors", "errortext", "embedded", "_version"),
)
#: These see less than their place would allow.
ONLY = {
    "hub": {"hub", "clock", "errors"},
    "errors": set(),
    "clock": {"errors"},
    "config": {"errors"},
}
#: Whoever is not named here may not import these.
FOR = {
    "hub": {"hub", "pools", "testing", "cli", "launch"},
}
#: Side by side, and never one from the other.
APART = ({"pools", "ui"},)

#: Imports inside of functions, each with its reason; everything else is at the top of its file.
DEFERRED = {
    ("app", "client"): "loads redis, and so ssl, which must not happen before patching",
    ("schedule_methods", "schedule_client"): "loads redis, as above",
    ("app", "ui.app"): "loads bottle and redis; only who mounts the dashboard needs them",
    ("__main__", "cli"): "the master patches before it imports anything",
    ("bench.producer", "bench.jobs"): "the process patches before it imports anything",
    ("__main__", "launch"): "the master patches before it imports anything",
}


@cache
def modules() -> dict[str, Path]:
    """Name inside the package (``pools.child``) to file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts).removesuffix("__init__").rstrip(".")] = path
    return found


@cache
def imports(name: str, path: Path) -> tuple[tuple[str, bool], ...]:
    """Each module of the package that a file imports, and whether at its top level."""
    return tuple(_imports(name, path))


def _imports(name: str, path: Path) -> Iterator[tuple[str, bool]]:
    known = modules()
    tree = ast.parse(path.read_text("utf-8"))
    inside = {id(one) for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))
              for one in ast.walk(node)}
    checked_only = {id(one) for node in ast.walk(tree) if _for_type_checkers(node)
                    for one in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in checked_only:
            continue
        for target in _targets(node, name, path.name == "__init__.py"):
            while target and target not in known:
                target = target.rpartition(".")[0]
            yield target, id(node) not in inside


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.AST, name: str, is_package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.partition(".")[0] == "skedulr":
                yield alias.name.partition(".")[2]
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, name, is_package)
        if base is not None:
            for alias in node.names:
                yield f"{base}.{alias.name}".lstrip(".")


def _base(node: ast.ImportFrom, name: str, is_package: bool) -> str | None:
    """The package's own name for what is imported from; None where it is another package."""
    module = node.module or ""
    if not node.level:
        top, _, rest = module.partition(".")
        return rest if top == "skedulr" else None
    parts = name.split(".") if name else []
    keep = len(parts) - node.level + (1 if is_package else 0)
    return ".".join([*parts[:keep], *filter(None, [module])])


def room(name: str) -> str:
    """The name that stands in the tables: ``pools.child`` is of ``pools``."""
    return name.partition(".")[0]


def layer(name: str) -> int:
    for depth, names in enumerate(LAYERS):
        if room(name) in names:
            return depth
    raise AssertionError(f"skedulr/{name.replace('.', '/')}.py is in none of LAYERS: add it there")


def edges() -> list[tuple[str, str]]:
    """(importer, imported): without the package's own front, which loads its names lazily, and
    without what ``DEFERRED`` excuses."""
    return [
        (name, target) for name, path in modules().items() if name
        for target, at_top in imports(name, path)
        if target and target != name and (at_top or (name, target) not in DEFERRED)
    ]


def test_the_package_itself_imports_its_version_only() -> None:
    assert [target for target, _ in imports("", PACKAGE / "__init__.py")] == ["_version"]


def test_every_import_goes_down_or_stays_in_its_layer() -> None:
    wrong = [
        f"{name} imports {target}" for name, target in edges()
        if "hub" not in (room(name), room(target)) and layer(target) < layer(name)
    ]
    assert wrong == []


def test_what_sees_little_imports_no_more() -> None:
    wrong = [
        f"{name} imports {target}" for name, target in edges()
        if room(target) not in ONLY.get(room(name), {room(target)}) | {room(name)}
    ]
    assert wrong == []


def test_what_is_for_few_is_imported_by_them_only() -> None:
    wrong = [
        f"{name} imports {target}" for name, target in edges()
        if room(name) not in FOR.get(room(target), {room(name)})
    ]
    assert wrong == []


def test_what_stands_apart_does_not_meet() -> None:
    wrong = [
        f"{name} imports {target}" for name, target in edges()
        if room(name) != room(target) and any({room(name), room(target)} <= two for two in APART)
    ]
    assert wrong == []


def test_no_imports_go_in_a_circle() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for name, target in edges():
        graph[name].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"imports in a circle: {' -> '.join(error.args[1])}") from None


def test_imports_inside_of_functions_are_those_with_a_reason() -> None:
    deferred = {
        (name, target) for name, path in modules().items()
        for target, at_top in imports(name, path) if not at_top
    }
    assert deferred == set(DEFERRED)


def test_no_file_does_without_the_future_import_of_annotations() -> None:
    # Without it the types above TYPE_CHECKING would have to be imported.
    missing = [
        name for name, path in modules().items()
        if "import TYPE_CHECKING" in (text := path.read_text("utf-8"))
        and "from __future__ import annotations" not in text
    ]
    assert missing == []

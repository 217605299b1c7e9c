"""The grammar of ``skedulr``: every command, its flags, help and examples, in one table.

Nothing here runs a command. ``Command.runs`` names the function that does, as ``module:function``
inside this package, so that a command's module is loaded when the command is used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from .. import __version__
from ..errors import nearest
from . import exits


class Command(NamedTuple):
    """One row: ``name`` may be two words (``dead purge``); ``examples`` are (command, what for)."""

    name: str
    runs: str
    summary: str
    explains: str
    examples: tuple[tuple[str, str], ...]
    add: Callable[[argparse.ArgumentParser], None] = lambda parser: None


class Group(NamedTuple):
    """Commands that belong together, under their heading in the help."""

    heading: str
    commands: tuple[Command, ...]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """What the arguments say; ``command`` is the command's name. Raises SystemExit, told already,
    for a mistake, and after ``--help`` and ``--version``."""
    top = make_parser()
    if not arguments:
        top.print_help(sys.stderr)
        raise SystemExit(exits.USAGE)
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    given, unknown = top.parse_known_args(arguments)
    if unknown:
        parser: argparse.ArgumentParser = given.parser
        flag = unknown[0].partition("=")[0]
        known = parser._option_string_actions
        parser.error(
            f"there is no option {flag}{nearest(flag, known)}" if flag.startswith("-")
            else f"{unknown[0]!r} is one argument too many{_INSTEAD.get(given.command, '')}"
        )
    return given


#: What was likely meant by one argument too many.
_INSTEAD = {
    "submit": """: a task's own go into --args '["ann@example.com"]'""",
    "schedules preview": ": put the cron line in quotes",
}


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="skedulr", usage="skedulr COMMAND [options]", description=overview(),
        epilog=_EPILOG, formatter_class=_Formatter, allow_abbrev=False,
    )
    add_common(top)
    top.add_argument("--version", action="version", version=f"skedulr {__version__}")
    # The overview lists the commands, grouped; argparse's own list would do it once more.
    places = {"": _branch(top, "command")}
    for group in GROUPS:
        for command in group.commands:
            family, _, word = command.name.rpartition(" ")
            if family not in places:
                places[family] = _branch(_add_family(places[""], family), "subcommand")
            parser = places[family].add_parser(
                word, prog=f"skedulr {command.name}", description=help_text(command),
                formatter_class=_Formatter, allow_abbrev=False,
            )
            command.add(parser)
            add_common(parser)
            parser.usage = usage(command.name, parser)
            parser.set_defaults(command=command.name, parser=parser)
    return top


def find(name: str) -> Command:
    """The command of that name."""
    return next(one for group in GROUPS for one in group.commands if one.name == name)


def usage(name: str, parser: argparse.ArgumentParser) -> str:
    """``skedulr cancel ID [options]``: the flags are told one by one below it."""
    forms = {"?": "[{}]", "*": "[{} ...]"}
    words = [forms.get(str(one.nargs), "{}").format(one.metavar)
             for one in parser._actions if not one.option_strings]
    return " ".join(["skedulr", name, *words, "[options]"])


def overview() -> str:
    """What ``skedulr --help`` says: the commands by group."""
    lines = ["Submit background tasks, look at them, and steer the pools that run them."]
    for group in GROUPS:
        lines += ["", f"{group.heading}:"]
        lines += [f"  {one.name:<19}{one.summary}" for one in group.commands]
    lines += ["", "run:", f"  {'master':<19}the pools and the web UI; the same as skedulr-master"]
    return "\n".join(lines)


def help_text(command: Command) -> str:
    """What a command's ``--help`` says above its flags."""
    lines = [command.explains, "", "examples:"]
    for line, purpose in command.examples:
        lines += [f"  {line}", f"      {purpose}"]
    return "\n".join(lines)


def add_common(parser: argparse.ArgumentParser) -> None:
    """The flags that every command takes, before or after its name."""
    common = parser.add_argument_group("common options")
    # Suppressed: a default here would overwrite what was given before the command's name.
    common.add_argument(
        "--redis", metavar="URL", default=argparse.SUPPRESS,
        help="the server; else SKEDULR_REDIS_URL, the file, .skedulr here or above, 127.0.0.1:6379",
    )
    common.add_argument(
        "--namespace", metavar="NAME", default=argparse.SUPPRESS,
        help="the installation on that server (default: skedulr)",
    )
    common.add_argument(
        "--config", metavar="FILE", default=argparse.SUPPRESS,
        help="read the settings from this file",
    )
    common.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS,
        help="print one JSON document on stdout; errors go to stderr",
    )


# -------------------------------------------------------------------------------- the parser


class _Parser(argparse.ArgumentParser):
    """Mistakes in one line, with the nearest name and where to read more."""

    def error(self, message: str) -> NoReturn:
        self.exit(exits.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "command" if action.nargs == argparse.PARSER else action.metavar or action.dest
            raise argparse.ArgumentError(
                None, f"there is no {kind} {value!r}{nearest(value, action.choices)}"
            )


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Text as it was written; flags in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _format_action(self, action: argparse.Action) -> str:
        if action.nargs == argparse.PARSER:
            return ""
        return super()._format_action(action)


def _branch(parser: argparse.ArgumentParser, dest: str) -> Any:
    return parser.add_subparsers(
        dest=dest, metavar="COMMAND", required=True, parser_class=_Parser,
    )


def _add_family(places: Any, family: str) -> argparse.ArgumentParser:
    """``skedulr dead``, above its subcommands."""
    members = [one for group in GROUPS for one in group.commands
               if one.name.startswith(family + " ")]
    lines = [f"  skedulr {one.name:<19}{one.summary}" for one in members]
    parser: argparse.ArgumentParser = places.add_parser(
        family, prog=f"skedulr {family}", usage=f"skedulr {family} COMMAND [options]",
        description="\n".join(["One of:", *lines]), formatter_class=_Formatter, allow_abbrev=False,
    )
    add_common(parser)
    return parser


#: The exit statuses, as the help and the page of commands tell them.
STATUSES = (
    (exits.OK, "done"),
    (exits.FAILURE, "failure, or what was asked for could not be done"),
    (exits.USAGE, "usage or configuration"),
    (exits.ENDED_OTHERWISE, "result: the task ended otherwise than succeeded; "
                            "skedulr-master: the children can not boot"),
    (exits.NOT_YET, "result: the task has not ended yet"),
    (exits.INTERRUPTED, "interrupted by Ctrl-C"),
    (exits.BROKEN_PIPE, "whoever read the output has gone"),
)
_EPILOG = "\n".join([
    "Each command explains itself, with examples: skedulr COMMAND --help", "", "exit status:",
    *(f"  {status:<5}{meaning.partition(';')[0]}" for status, meaning in STATUSES),
])


# ------------------------------------------------------------------------- kinds of arguments


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return number


def _header(text: str) -> tuple[str, str]:
    """``NAME=TEXT``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=TEXT")
    return name, value


def _task_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", metavar="ID", help="POOL/UID as submit printed it; UID alone means pool default"
    )


def _workflow(parser: argparse.ArgumentParser) -> None:
    _task_id(parser)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--cancel", action="store_true",
                        help="cancel every step that has not ended")
    action.add_argument("--resubmit", action="store_true",
                        help="put back every step that failed; what was skipped for it waits again")


def _submit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="the task's name")
    parser.add_argument("--args", metavar="JSON", help="positional arguments: a JSON array")
    parser.add_argument("--kwargs", metavar="JSON", help="named arguments: a JSON object")
    own = parser.add_argument_group("options of the call")
    own.add_argument("--pool", metavar="NAME", help="the pool that is to run it")
    own.add_argument(
        "--priority", metavar="N", type=whole,
        help="-100 to 100, higher first (default: 0)",
    )
    own.add_argument("--delay", metavar="SECONDS", type=seconds, help="not before so long from now")
    own.add_argument(
        "--at", metavar="WHEN",
        help="not before this time: epoch seconds, or ISO with an offset as in "
             "2026-12-01T09:00+01:00",
    )
    own.add_argument(
        "--timeout", metavar="SECONDS", type=seconds,
        help="most time for one attempt (default: none)",
    )
    own.add_argument(
        "--max-retries", metavar="N", type=whole,
        help="attempts after the first (default: 3)",
    )
    own.add_argument(
        "--expires", metavar="SECONDS", type=seconds,
        help="drop it if it has not started so long after due",
    )
    own.add_argument("--id", metavar="UID", help="its id, so that a repeat is no second task")
    own.add_argument("--key", metavar="TEXT", help="a key of yours, shown with the task")
    own.add_argument(
        "--unique", metavar="HOW",
        help="one task at a time with these arguments, or with this key: until_done, until_start, "
             "or for so many seconds",
    )
    own.add_argument(
        "--on-duplicate", metavar="WHAT", help="with --unique: raise (default), return or replace"
    )
    own.add_argument(
        "--header", metavar="NAME=TEXT", action="append", dest="headers", type=_header,
        help="a header that travels with the task; may be repeated",
    )
    own.add_argument(
        "--tag", metavar="TEXT", action="append", dest="tags", help="a tag; may be repeated"
    )
    own.add_argument(
        "--keep-result", metavar="SECONDS", type=seconds,
        help="keep the result so long; 0: not at all (default: as long as the record)",
    )
    many = parser.add_argument_group("many at once")
    many.add_argument(
        "--jsonl", metavar="FILE",
        help='a call a line: {"name", "args", "kwargs", "options"}; - reads standard input',
    )


def _result(parser: argparse.ArgumentParser) -> None:
    _task_id(parser)
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=0.0,
        help="wait so long for the task to end (default: 0, look once)",
    )


def _list(parser: argparse.ArgumentParser) -> None:
    _filters(parser)
    _paging(parser)


def _paging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", metavar="N", type=whole, default=50,
        help="how many, 1 to 500 (default: 50)",
    )
    parser.add_argument("--cursor", metavar="TEXT", help="go on where an earlier list ended")


def _filters(parser: argparse.ArgumentParser, state: bool = True) -> None:
    if state:
        stated = parser.add_argument(
            "--state", metavar="STATE", help=f"one of {', '.join(STATES)}"
        )
        # Not its choices: a wrong one is refused by the client, which names the nearest.
        stated.completes = STATES  # type: ignore[attr-defined]
    parser.add_argument("--pool", metavar="NAME", help="only this pool")
    parser.add_argument("--name", metavar="NAME", help="only tasks of this name")
    parser.add_argument(
        "--query", metavar="TEXT",
        help="only tasks with this text in their id, arguments or errors; a word is narrowed by "
             "tag: key: error: name: or worker: before it",
    )


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tasks a second above 0")
    return rate


def _dead_list(parser: argparse.ArgumentParser) -> None:
    _filters(parser, state=False)
    _paging(parser)


def _dead_resubmit(parser: argparse.ArgumentParser) -> None:
    _filters(parser, state=False)
    parser.add_argument(
        "--rate", metavar="N", type=_rate,
        help="no more than N tasks a second, for a service that just came back",
    )


def _dead_purge(parser: argparse.ArgumentParser) -> None:
    _filters(parser, state=False)
    parser.add_argument("--yes", action="store_true", help="do not ask, also at a terminal")


def _pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL", nargs="?", help="the pool; without it all pools")


def _scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL", help="the pool")
    parser.add_argument(
        "workers", metavar="N|reset", help="workers of each process, 0 to 10,000; or reset"
    )
    parser.add_argument(
        "--create", action="store_true", help="have every node serve it, where none does"
    )


def _limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pool", metavar="NAME", help="only those of this pool")


def _limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the limit's name, or its task's")
    parser.add_argument(
        "--pool", metavar="NAME", help="in this pool (default: in all that know it)"
    )


def _set_limit(parser: argparse.ArgumentParser) -> None:
    _limit(parser)
    parser.add_argument("--concurrency", metavar="N", type=whole, help="how many run at once")
    parser.add_argument("--rate", metavar="N", type=_number, help="how many start in --per seconds")
    parser.add_argument(
        "--per", metavar="SECONDS", type=_number,
        help="what --rate is for (default: 1)",
    )
    parser.add_argument(
        "--burst", metavar="N", type=whole, help="how many of them start at once after a pause"
    )


def _schedule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the schedule's name")


def _preview(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "line", metavar="CRON", help="minute hour day month weekday, in one pair of quotes"
    )
    parser.add_argument(
        "--tz", metavar="ZONE", default="UTC",
        help="a zone such as Europe/Paris (default: UTC)",
    )
    parser.add_argument(
        "--start", metavar="WHEN",
        help="times after this one: epoch seconds, or ISO with an offset (default: now)",
    )
    parser.add_argument(
        "--count", metavar="N", type=whole, default=5,
        help="how many times, 1 to 1,000 (default: 5)",
    )
    parser.add_argument(
        "--seconds", metavar="first|last", choices=("first", "last"),
        help="where the field for seconds stands in a line of six fields",
    )


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", action="store_true", help="mend what can be mended")
    parser.add_argument("--pool", metavar="NAME", help="only this pool")


def _top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=1.0,
        help="between two looks (default: 1)",
    )


def _config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--acl", action="store_true",
                        help="print the rights that are needed on the server")


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "parts", metavar="PART", nargs="*",
        help="of submit, drain, latency, delayed, memory; without one all of them",
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the tasks")
    parser.add_argument(
        "--tasks", metavar="N", type=whole,
        help="tasks to drain (default: 100,000)",
    )
    parser.add_argument(
        "--submits", metavar="N", type=whole,
        help="single submits (default: 10,000)",
    )
    parser.add_argument(
        "--payload", metavar="BYTES", type=whole, default=100,
        help="arguments of each task (default: 100)",
    )
    parser.add_argument(
        "--workers", metavar="N", type=whole, default=100,
        help="workers of each child (default: 100)",
    )
    parser.add_argument(
        "--processes", metavar="N", type=whole, default=1, help="children of the pool (default: 1)"
    )
    parser.add_argument(
        "--persistence", metavar="HOW", choices=("none", "everysec", "always"),
        help="of the bench's own server: none (default), or an append-only file with fsync "
             "everysec or always",
    )


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file to write; - is standard output")
    parser.add_argument("--pool", metavar="NAME", help="only this pool; else all")
    parser.add_argument(
        "--format", metavar="FORMAT", choices=("msgpack", "jsonl"),
        help="msgpack, or jsonl for JSON lines (default: jsonl for a FILE that ends with .jsonl)",
    )
    parser.add_argument(
        "--unfinished", action="store_true",
        help="without the tasks that have ended, but for those that others wait for",
    )


def _import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what export wrote; - is standard input")
    parser.add_argument("--pool", metavar="NAME", help="only this pool of the file")
    parser.add_argument("--into", metavar="NAME", help="put it into a pool of this name")
    parser.add_argument(
        "--partial", action="store_true", help="take a file that was cut, as far as it goes"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would come of it, and change nothing"
    )


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=2.0,
        help="how long Redis may take to answer (default: 2)",
    )


#: The states of a task, in the order of its life.
STATES = (
    "waiting", "scheduled", "queued", "running", "succeeded", "dead", "cancelled", "skipped",
    "expired",
)


# --------------------------------------------------------------------------------- the table

GROUPS: tuple[Group, ...] = (
    Group("tasks", (
        Command(
            "submit", "submitting:submit", "queue a task by its name, or a file of calls",
            "Queue a task by its name and print its id. The code of the task need not be here.\n"
            "\n"
            "With --jsonl every line of FILE is a call; NAME and the options are what lines say\n"
            "nothing else about. A bad line stops it and is named. Running the same file again is\n"
            "safe where each line has an id in its options: what is stored already stays one task.",
            (
                ("skedulr submit send_email --args '[\"ann@example.com\"]'", "queue one task"),
                ("skedulr submit report --kwargs '{\"day\": 1}' --pool slow --delay 60",
                 "with options of its own"),
                ("skedulr submit send_email --jsonl calls.jsonl",
                 'many: lines such as {"args": ["ann@example.com"], "options": {"id": "mail-1"}}'),
                ("produce-calls | skedulr submit --jsonl -", "from standard input"),
            ),
            _submit,
        ),
        Command(
            "task", "asking:show_task", "everything known of one task",
            "Show everything known of a task: state, attempts, times, arguments, result, error.",
            (("skedulr task critical/0k3v5b", "one task"),
             ("skedulr task critical/0k3v5b --json | jq .state", "one field of it")),
            _task_id,
        ),
        Command(
            "result", "asking:show_result", "what a task returned",
            "Print what a task returned. The exit status tells how it stands: 0 succeeded,\n"
            "3 ended otherwise (the error goes to stderr), 4 not yet.\n"
            "\n"
            "A text is printed as it is, everything else as JSON. What JSON has no form for\n"
            "becomes text: datetime, date and time in ISO 8601, a timedelta as 0:01:30, Decimal\n"
            "and UUID as they read, bytes as b'\\xff'; a set becomes a sorted list.",
            (("skedulr result 0k3v5b --timeout 30", "wait up to 30 seconds for it"),
             ("skedulr result 0k3v5b --json", 'prints {"result": ...}')),
            _result,
        ),
        Command(
            "workflow", "asking:show_workflow", "how far a workflow is, step by step",
            "Show a workflow: its state, its steps, what each waits for, times and errors. Of a\n"
            "large one the first 500 steps are shown, and all are counted.",
            (("skedulr workflow default/0k3v5b", "one workflow"),
             ("skedulr workflow default/0k3v5b --json | jq .counts", "how many steps are where"),
             ("skedulr workflow default/0k3v5b --resubmit", "put back what failed of it")),
            _workflow,
        ),
        Command(
            "list", "asking:list_tasks", "tasks by state, pool, name or text",
            "List tasks: those at work first, then queued, scheduled, ended; the newest first.\n"
            "--cursor goes on where an earlier list ended. A search looks at some 20,000 tasks,\n"
            "then gives what it found and a cursor.",
            (("skedulr list --state dead --pool critical", "what failed for good"),
             ("skedulr list --query 'ann@example.com error:ValueError'", "a text, and an error"),
             ("skedulr list --json | jq -r '.items[].id'", "ids for a script")),
            _list,
        ),
        Command(
            "cancel", "steering:cancel", "cancel a task, or tell it to stop",
            "Cancel a task. One that has not started ends at once; a running one is interrupted.\n"
            "Exit status 1 if it had ended already.",
            (("skedulr cancel critical/0k3v5b", "one task"),
             ("skedulr cancel critical/0k3v5b --json", "what it is then, for a script")),
            _task_id,
        ),
        Command(
            "resubmit", "steering:resubmit", "put an ended task back into its queue",
            "Put an ended task back into its queue: the same id, attempts from 0, its history\n"
            "kept. Exit status 1 if it has not ended.",
            (("skedulr resubmit critical/0k3v5b", "one task"),),
            _task_id,
        ),
        Command(
            "remove", "steering:remove", "remove a task for good",
            "Remove a task for good: one that has not started, or the record of one that ended.\n"
            "One that runs has to be cancelled first.",
            (("skedulr remove critical/0k3v5b", "one task"),),
            _task_id,
        ),
    )),
    Group("dead tasks", (
        Command(
            "dead list", "dead:show", "what is in the dead-letter queues",
            "List the tasks that failed for good, the newest first.",
            (("skedulr dead list --pool critical", "of one pool"),
             ("skedulr dead list --query error:Timeout", "by the kind of error"),
             ("skedulr dead list --json | jq -r '.items[] | [.id, .error.type] | @tsv'",
              "for a script")),
            _dead_list,
        ),
        Command(
            "dead resubmit", "dead:resubmit", "put them back into their queues",
            "Put dead tasks back into their queues, all or those that the filters mean. One whose\n"
            "unique key another task holds by now stays. It can be interrupted and run again.",
            (("skedulr dead resubmit --pool critical --name send_email", "after a repair"),
             ("skedulr dead resubmit --query error:ConnectionError --rate 50",
              "by the kind of error, gently")),
            _dead_resubmit,
        ),
        Command(
            "dead purge", "dead:purge", "remove them for good",
            "Remove dead tasks for good, all or those that the filters mean. At a terminal it\n"
            "asks first.",
            (("skedulr dead purge --pool reports", "of one pool"),
             ("skedulr dead purge --name old_report --yes", "without asking")),
            _dead_purge,
        ),
    )),
    Group("pools", (
        Command(
            "pause", "steering:pause", "claim nothing more; what runs goes on",
            "Pause a pool, or all: nothing more is claimed, on any node, until it is resumed.\n"
            "What runs goes on, and submits are accepted.",
            (("skedulr pause critical", "one pool"), ("skedulr pause", "all of them")),
            _pool,
        ),
        Command(
            "resume", "steering:resume", "go on after a pause",
            "Go on after a pause.",
            (("skedulr resume critical", "one pool"), ("skedulr resume", "all of them")),
            _pool,
        ),
        Command(
            "scale", "steering:scale", "change a pool's workers everywhere",
            "Give a pool another number of workers a process. Every node follows within a second,\n"
            "and keeps to it across restarts, until it is reset. 0 claims nothing.",
            (("skedulr scale critical 16", "16 workers in each process"),
             ("skedulr scale critical reset", "back to what --pools and tuning say"),
             ("skedulr scale reports 2 --create", "a new pool, on every node")),
            _scale,
        ),
    )),
    Group("limits", (
        Command(
            "limits list", "limits:show", "what is limited, and what waits",
            "List the limits: what holds, what the tasks declare, how many keys have tasks that\n"
            "wait.",
            (("skedulr limits list", "of all pools"),
             ("skedulr limits list --json | jq '.items[] | select(.waiting > 0)'",
              "those that hold something back")),
            _limits,
        ),
        Command(
            "limits set", "limits:set_", "change one at once",
            "Have a limit be another one at once, whatever its tasks declare, until it is reset.\n"
            "What runs goes on.",
            (("skedulr limits set crawl --rate 100 --per 60", "100 a minute"),
             ("skedulr limits set render --concurrency 2 --pool media", "in one pool")),
            _set_limit,
        ),
        Command(
            "limits reset", "limits:reset", "back to what the code says",
            "Have a limit be what its tasks declare again.",
            (("skedulr limits reset crawl", "as declared"),),
            _limit,
        ),
    )),
    Group("schedules", (
        Command(
            "schedules list", "schedules:show", "what runs when",
            "List the schedules by name: what each runs, when it runs next, when it ran last.",
            (("skedulr schedules list", "all of them"),
             ("skedulr schedules list --json | jq '.items[] | select(.paused) | .name'",
              "the paused ones")),
            _paging,
        ),
        Command(
            "schedules run", "schedules:run", "run one now, beside its times",
            "Run a schedule now, paused or not, and print the task's id. Its next time stays.",
            (("skedulr schedules run digest", "now"),),
            _schedule,
        ),
        Command(
            "schedules pause", "schedules:pause", "no more runs until it is resumed",
            "Pause a schedule: it has no next time until it is resumed. What runs goes on.",
            (("skedulr schedules pause digest", "for now"),),
            _schedule,
        ),
        Command(
            "schedules resume", "schedules:resume", "go on from now",
            "Have a paused schedule go on. Times that passed meanwhile are not made up.",
            (("skedulr schedules resume digest", "go on"),),
            _schedule,
        ),
        Command(
            "schedules remove", "schedules:remove", "remove one",
            "Remove a schedule. What it has queued already still runs. One that code declares\n"
            "comes back with the next deployment of that code.",
            (("skedulr schedules remove digest", "for good"),),
            _schedule,
        ),
        Command(
            "schedules preview", "schedules:preview", "when a cron line comes due",
            "Show the next times of a cron line, or why it would be refused. Asks no server.",
            (('skedulr schedules preview "0 9 * * mon-fri" --tz Europe/Paris', "the next five"),
             ('skedulr schedules preview "30 2 * * *" --tz Europe/Paris --start 2026-03-28T00:00Z',
              "across a change of the clocks"),
             ('skedulr schedules preview "*/10 * * * * *" --seconds first --count 3',
              "with seconds")),
            _preview,
        ),
    )),
    Group("backup and move", (
        Command(
            "export", "transfer:export", "pools into a file, to keep or to import elsewhere",
            "Write a pool, or all, into a file: tasks with all that is kept of them, records of\n"
            "those that have ended, schedules made through the API, limits, whether a pool is\n"
            "paused. Nothing is changed, and any size goes in constant memory. The file is for\n"
            "its owner alone: arguments and results are in it.\n"
            "\n"
            "It may be used while all runs: each task is then as it was at one moment, and what\n"
            "runs is written as queued. To move to another place pause the pools first, and wait\n"
            "until nothing runs, or those tasks run here and there.",
            (("skedulr export backup.msgpack", "everything"),
             ("skedulr export critical.jsonl --pool critical", "one pool, to look into"),
             ("skedulr export - | gzip > backup.gz", "through a pipe"),
             ("skedulr export - --pool old | skedulr import - --redis redis://new/0",
              "to another server")),
            _export,
        ),
        Command(
            "import", "transfer:import_", "what export wrote, back into Redis",
            "Put back what export wrote. A task that is there already, ended or not, stays as it\n"
            "is, and so do schedules and limits; so an import that was broken off is run again.\n"
            "What was queued goes behind what is queued there, in its order. A pool that was\n"
            "paused is paused, where it has no tasks yet.\n"
            "\n"
            "A file that was cut is refused before anything is written (of a pipe it is known at\n"
            "its end only). Exit status 1 if something could not be put back: its unique key is\n"
            "held by another task, or it has a limit, and the pool is kept in streams.",
            (("skedulr import backup.msgpack --dry-run", "what would come of it"),
             ("skedulr import backup.msgpack --namespace copy", "into another installation"),
             ("gunzip -c backup.gz | skedulr import - --pool critical", "one pool of it"),
             ("skedulr import old.msgpack --pool old --into new", "under another name")),
            _import,
        ),
    )),
    Group("watch", (
        Command(
            "stats", "watching:stats", "the whole namespace in numbers",
            "Totals of the namespace, then each pool.",
            (("skedulr stats", "how it stands"),
             ("skedulr stats --json | jq .queued", "one number for a script")),
        ),
        Command(
            "pools", "watching:pools", "each pool: workers, tasks, rates",
            "Each pool: its workers, its tasks by state, its rate over the last minute.",
            (("skedulr pools", "how they stand"),
             ("skedulr pools --json | jq '.items[] | select(.unserved) | .name'",
              "those that nobody serves")),
        ),
        Command(
            "top", "top:top", "a live view: pools, rates, running tasks",
            "The pools and what runs, once a second, until q. Keys: up and down choose a pool,\n"
            "p pauses or resumes it, + and - give each of its processes a worker more or fewer,\n"
            "r goes back to what --pools says, ? tells the keys. Without a terminal one look is\n"
            "printed.",
            (("skedulr top", "watch and steer"),
             ("skedulr top --json", "one look, for a script")),
            _top,
        ),
        Command(
            "nodes", "watching:nodes", "each master and its children",
            "Each node (a master with its children): host, process, version, pools, hub lag. One\n"
            "whose record is not fresh is shown as silent.",
            (("skedulr nodes", "who is at work"),
             ("skedulr nodes --json | jq -r '.items[] | select(.silent) | .host'",
              "hosts that fell silent")),
        ),
        Command(
            "check", "watching:check", "is it alive? for probes",
            "Exit status 0 if Redis answers and at least one node has written its record lately,\n"
            "else 1 and the reason.",
            (("skedulr check --timeout 1", "as a container's health check"),
             ("skedulr check --json", "with the reason, for a monitor")),
            _check,
        ),
        Command(
            "doctor", "doctor:doctor", "what is broken in Redis, and its repair",
            "Look for states that no script of Skedulr leaves behind: after a failover that lost\n"
            "writes, or after somebody changed keys by hand. Exit status 1 if there are any. What\n"
            "counts is still there at a second look, so it may be used while all runs.\n"
            "\n"
            "With --fix they are mended, each by a small step that looks once more; what is left\n"
            "then, or needs a person, makes the exit status 1. A task is given back rather than\n"
            "lost: one that ran without a lease may run twice.",
            (("skedulr doctor", "look"), ("skedulr doctor --fix", "look and mend"),
             ("skedulr doctor --pool critical --json | jq '.items[].kind'", "for a script")),
            _doctor,
        ),
        Command(
            "bench", "bench:bench", "how fast it is here, on a server of its own or on yours",
            "Measure submits, drain, latency, delayed tasks and memory with a real master, in\n"
            "about a minute. Without --redis it starts a private server and removes it\n"
            "afterwards. On yours it works in a namespace made up for the run (or the one you\n"
            "name, if that has no keys), touches no other key, and leaves nothing behind, also\n"
            "after Ctrl-C.\n"
            "\n"
            "The figures hold for this machine, this moment and the conditions that stand below\n"
            "them: compare runs of one machine only. CPU and bytes of the server count all it\n"
            "did meanwhile. Delayed tasks are due by the server's clock.",
            (("skedulr bench --quick", "a first idea, in some 15 seconds"),
             ("skedulr bench drain --tasks 1000000 --processes 2", "one part, larger"),
             ("skedulr bench --persistence everysec", "what an append-only file costs"),
             ("skedulr bench --redis redis://10.0.0.5/0 --json > before.json",
              "on your server, for a comparison")),
            _bench,
        ),
        Command(
            "config", "settings:show_config", "every setting, and where it came from",
            "Every setting in force here, where it came from, and which server is meant.\n"
            "Passwords are hidden. Nothing is connected to.\n"
            "\n"
            "With --acl: the line of an ACL file that gives a user the rights which are needed on\n"
            "that server, in this namespace, and no others.",
            (("skedulr config", "what holds in this folder"),
             ("skedulr config --namespace shop --acl", "a user for one installation")),
            _config,
        ),
        Command(
            "completion", "completion:completion", "have your shell complete these commands",
            "Print a script for your shell, made from the commands of this version; it asks no\n"
            "server. To have it in every shell, put this line into ~/.bashrc or ~/.zshrc:\n"
            "\n"
            '  eval "$(skedulr completion bash)"',
            (("skedulr completion bash", "for bash"), ("skedulr completion zsh", "for zsh")),
            _completion,
        ),
    )),
)

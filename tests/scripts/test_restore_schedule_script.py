"""restore_schedule.lua: schedules of an exported pool go on; one whose name is known stays."""

from __future__ import annotations

from script_driver import Reply, Scripts

#: revision, by, tick, held, fired, skipped, runs
STATE = "rev1 - 5000 1 7 2 4000,3000"
Row = tuple[str, bytes, str, str, str]


def restore(pool: Scripts, *rows: Row, mode: str = "store") -> Reply:
    return Reply(pool.run("restore_schedule", mode, "control", "schedules default",
                          *(part for row in rows for part in row)))


def test_a_schedule_goes_on_with_what_it_counted_and_waits_for_no_run(pool: Scripts) -> None:
    reply = restore(pool, ("s", b"definition", STATE, "", "5000"),
                    ("p", b"paused", "rev2 - 6000 0 0 0 -", "paused", ""))
    assert reply.verdicts == "ss"
    assert pool.state() == {
        "schedules": {"s": "definition", "p": "paused"},
        "planned": {"s": "rev1 - 5000 0 7 2 4000,3000", "p": "rev2 - 6000 0 0 0 -"},
        "resting": {"p": "paused"}, "ticks": {"s": 5000},
    }


def test_a_name_that_is_known_stays(pool: Scripts) -> None:
    restore(pool, ("s", b"definition", STATE, "", "5000"))
    before = pool.state()
    again = restore(pool, ("s", b"another", "rev2 - 9000 0 0 0 -", "", "9000"))
    assert again.verdicts == "a"
    assert pool.state() == before


def test_a_look_changes_nothing(pool: Scripts) -> None:
    row = ("s", b"definition", STATE, "", "5000")
    assert restore(pool, row, row, mode="look").verdicts == "sa"
    assert pool.state() == {}


def test_a_state_that_nobody_can_read_is_left_out(pool: Scripts) -> None:
    assert restore(pool, ("s", b"definition", "of a later release", "", "5000")).verdicts == "n"
    assert pool.state() == {}

"""Every night a report: three sources are read side by side, then one report is built and sent.
Where anything of it fails for good, somebody is told instead.

Start it: skedulr-master --pools default=10 examples.nightly_report
It runs at 02:30 in Berlin. To see it at once: skedulr schedules run nightly-report
"""

from __future__ import annotations

import datetime
import random
import zoneinfo
from typing import Any

import skedulr

SOURCES = ("orders", "returns", "visits")


@skedulr.cron("30 2 * * *", tz="Europe/Berlin", name="nightly-report", overlap="skip",
              catch_up="latest")
@skedulr.task(name="nightly_report")
def nightly_report() -> str:
    """Only describes the night's work: stored as a whole, or not at all.

    The workflow's id is made from the day, so a repeat of this task finds it there instead of
    starting a second one. A tick missed while nobody ran is made up once.
    """
    task = skedulr.current_task()
    day = report_day(task.tick)
    with skedulr.workflow(f"report-{day}", id=f"report-{day}") as night:
        parts = [night.add(read_source.bind(source, day)) for source in SOURCES]
        report = night.add(build_report.bind(day), depends_on=parts)
        night.add(send_report.bind(report), depends_on=report)
        night.add(raise_alarm.bind(day), on_failure=[*parts, report])
    return night.id


def report_day(tick: float | None) -> str:
    """The day before the tick, in Berlin: "2026-11-29"."""
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    when = datetime.datetime.fromtimestamp(tick, zone) if tick else datetime.datetime.now(zone)
    return str(when.date() - datetime.timedelta(days=1))


@skedulr.task(name="read_source", timeout=60, max_retries=4,
              retry=skedulr.ExponentialBackoff(base=1, cap=30))
def read_source(source: str, day: str) -> dict[str, Any]:
    """Reads one source; a real one asks a database or a service, and is away now and then."""
    numbers = random.Random(f"{source} {day}")
    return {"source": source, "count": numbers.randrange(100, 1000)}


@skedulr.task(name="build_report", timeout=120)
def build_report(day: str) -> str:
    """The parts come from the steps before it, in the order they were named in."""
    parts = skedulr.current_task().inputs()
    lines = [f"{part['source']:>10} {part['count']:6,}" for part in parts]
    return "\n".join([f"Report of {day}", *lines])


@skedulr.task(name="send_report", max_retries=10)
def send_report(report: str) -> None:
    print(report, flush=True)


@skedulr.task(name="raise_alarm", pool="default", priority=50)
def raise_alarm(day: str) -> None:
    print(f"The report of {day} could not be built: see the dead-letter queue.", flush=True)

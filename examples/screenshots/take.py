"""Take the screenshots of this folder: a shop's queue with an hour behind it, each page twice.

    python examples/screenshots/take.py

Starts a master on an embedded server in a temporary folder, fills in the hour before, keeps it busy
and drives Debian's chromium (``apt install chromium``; ``pip install playwright``).
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import Page, sync_playwright

from skedulr import lists, message
from skedulr.app import Skedulr
from skedulr.config import find_redis, load
from skedulr.keys import PoolKeys
from skedulr.statistics import Tally
from skedulr.tasks import Call
from skedulr.uids import Uids
from skedulr.wire import Wire

HERE = Path(__file__).parent
PORT = 8799
BASE = f"http://127.0.0.1:{PORT}"
POOLS = "critical=4x2,default=4..12,mail=8,slow=2"
CHROMIUM = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)
#: (task, pool, runs a minute, usual milliseconds, share that dies, error)
PAST = (
    ("payments.charge_card", "critical", 40, 55, 0.02, "shop.CardDeclined"),
    ("mail.send_receipt", "mail", 60, 80, 0.004, "SMTPServerDisconnected"),
    ("media.resize_image", "default", 25, 190, 0.015, "OSError"),
    ("stock.sync_warehouse", "default", 0.4, 42_000, 0.1, "TimeoutError"),
)
MESSAGES = {
    "shop.CardDeclined": "order S-{n}: the bank declined 49.90 EUR",
    "SMTPServerDisconnected": "Connection unexpectedly closed by mx3.example.net",
    "OSError": "uploads/{n}.jpg: truncated JPEG, 1,204 bytes left over",
    "TimeoutError": "warehouse W{n} did not answer in 600 s",
}
TRACE = """Traceback (most recent call last):
  File "shop/tasks.py", line {line}, in {name}
    result = client.request(payload, timeout=30)
  File "shop/client.py", line 88, in request
    raise {error}(message)
{error}: {text}
"""


def main() -> None:
    """Start, fill, shoot, stop."""
    with tempfile.TemporaryDirectory(prefix="shop-") as folder, running_master(Path(folder)) as app:
        fill_in_the_past(app)
        # As long as the tuner takes to see that the queue is long.
        keep_busy(app, seconds=25)
        ids = interesting_tasks(app)
        steer(ids)
        ids["workflow"] = workflows(app)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
            for scheme in ("light", "dark"):
                page = browser.new_context(
                    viewport={"width": 1440, "height": 900}, color_scheme=scheme,
                ).new_page()
                shoot_all(page, scheme, ids, app)
            phone = browser.new_context(
                viewport={"width": 390, "height": 844}, device_scale_factor=2, color_scheme="dark",
            ).new_page()
            shoot(phone, "/", "phone")
            browser.close()


@contextmanager
def running_master(folder: Path) -> Iterator[Skedulr]:
    """A master with the shop's tasks; an app on its server."""
    # From a copy: tracebacks on the pictures show where the code was.
    shutil.copy(HERE / "shop.py", folder)
    master = subprocess.Popen(
        [sys.executable, "-m", "skedulr", "master", "--embedded", "--pools", POOLS,
         "--ui", f"127.0.0.1:{PORT}", "--grace", "1", "shop"],
        cwd=folder, stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                urlopen(f"{BASE}/readyz", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        address = find_redis(load({}, {}, {}, folder, None), {}, folder)
        yield Skedulr(url=address.url)
    finally:
        master.terminate()
        master.wait(20)


def fill_in_the_past(app: Skedulr) -> None:
    """Records of tasks that ended in the last hours, and what was counted in the last day, written
    as the scripts write them."""
    random.seed(7)
    for pool in {one[1] for one in PAST}:
        count_the_past(app, pool)
    uids = Uids()
    wire = Wire(app.client.config.url, name="past")
    now = int(time.time() * 1000)
    for name, pool, per_minute, usual_ms, dying, error in PAST:
        keys = PoolKeys(app.client.config.namespace, pool)
        head = message.name_part(name)
        for minute in range(1440, 0, -1):
            share = 1 if minute <= 70 else 0.06
            wave = 1 + 0.5 * math.sin(minute / 9) + random.uniform(-0.2, 0.2)
            for _ in range(poisson(per_minute * wave * share)):
                at = now - minute * 60_000 + random.randrange(60_000)
                took = max(2, int(random.lognormvariate(math.log(usual_ms), 0.4)))
                uid, number = uids.next(), random.randrange(10_000, 99_999)
                record = message.envelope(head, (f"S-{number}",), {}, {}, 10_000)
                record += stamp(at - took - 40)
                ended = message.entry(message.SUCCEEDED, "5f2a91c4.1.1", 1, at - took, "ok")
                dead = random.random() < dying
                if dead:
                    text = MESSAGES[error].format(n=number)
                    trace = TRACE.format(line=number % 300, name=name, error=error, text=text)
                    ended = message.entry(
                        message.DEAD, "5f2a91c4.1.1", 1, at - took, [error, text, trace]
                    )
                wire.call("HSET", keys.records, uid, record + ended + stamp(at))
                wire.call("ZADD", keys.dead if dead else keys.done, at, uid)
                wire.call("HINCRBY", keys.stats, "failed" if dead else "succeeded", 1)


def count_the_past(app: Skedulr, pool: str) -> None:
    """The tallies of a day's minutes and tens of minutes, of the pool and by name."""
    wire = Wire(app.client.config.url, name="past")
    keys, now_minute = PoolKeys(app.client.config.namespace, pool), int(time.time() // 60)
    fields: dict[str, Tally] = {}
    totals: dict[str, Tally] = {}
    for minute in range(now_minute - 1440, now_minute):
        ago = now_minute - minute
        day = 1 + 0.5 * math.sin(ago / 230) + 0.25 * math.sin(ago / 9) + random.uniform(-0.1, 0.1)
        crowd = 6 if 18 < ago < 26 or 300 < ago < 350 else 1
        for name, _, per_minute, usual_ms, dying, _ in (one for one in PAST if one[1] == pool):
            tally = Tally()
            for _ in range(poisson(per_minute * day * (1.7 if crowd > 1 else 1))):
                dead = random.random() < dying * crowd
                tally.runs, tally.submitted = tally.runs + 1, tally.submitted + 1
                tally.dead, tally.succeeded = tally.dead + dead, tally.succeeded + (not dead)
                tally.ran.add_ms(int(random.lognormvariate(math.log(usual_ms), 0.4)))
                tally.waited.add_ms(int(random.lognormvariate(math.log(9 * crowd ** 2), 0.8)))
            places = [f"t{minute // 10}", f"t{minute // 10} {name}"]
            if ago <= 480:
                places += [f"m{minute}", f"m{minute} {name}"]
            for place in places:
                fields.setdefault(place, Tally()).add(tally)
            totals.setdefault(f" {name}", Tally()).add(tally)
    kept = {
        kind: sorted({place.partition(" ")[0][1:] for place in fields if place[0] == kind}, key=int)
        for kind in "mt"
    }
    for key, texts in ((keys.history, fields), (keys.stats, totals)):
        for place, tally in texts.items():
            wire.call("HSET", key, place, tally_text(tally))
    for kind, spans in kept.items():
        wire.call("HSET", keys.history, f"{kind} kept", "".join(f" {span}" for span in spans))


def tally_text(tally: Tally) -> str:
    """A tally as the scripts keep it."""
    counts = (tally.runs, tally.succeeded, tally.dead, tally.cancelled, tally.expired,
              tally.retried, tally.crashed, tally.submitted)
    times = (
        " ".join([f"{one.sum_ms} {one.longest_ms}", *(
            f"{at}:{count}" for at, count in enumerate(one.buckets, 1) if count
        )]) for one in (tally.waited, tally.ran)
    )
    return "|".join([" ".join(map(str, counts)), *times])


def poisson(mean: float) -> int:
    """A whole number around ``mean``."""
    return max(0, int(random.gauss(mean, math.sqrt(mean)) + 0.5)) if mean > 0 else 0


def stamp(ms: int) -> bytes:
    """A time in a journal: a msgpack uint64."""
    return b"\xcf" + ms.to_bytes(8, "big")


def keep_busy(app: Skedulr, seconds: float) -> None:
    """A stream of orders, some work that takes longer, some for later."""
    def call(name: str, *args: object, **options: object) -> Call[object]:
        return app.remote(name, **options).bind(*args)  # type: ignore[arg-type]

    app.schedule_cron(app.remote("report.daily").bind("sales"), "0 9 * * mon-fri", name="sales",
                      tz="Europe/Paris")
    app.schedule_cron(app.remote("report.daily").bind("stock"), "30 6 * * *", name="stock-report",
                      tz="Europe/Paris")
    poll, ping = (app.remote(name, pool="critical") for name in ("stock.poll", "health.ping"))
    app.schedule_recurring(poll.bind("Lyon"), 2, name="poll-lyon")
    app.schedule_recurring(ping.bind(), 1, name="ping", overlap="skip")
    app.schedule_recurring(app.remote("mail.digest", pool="mail").bind(), 3600, name="digest")
    for shard in range(6):
        app.submit(call("search.reindex", shard, pool="slow", tags=["nightly"]))
    for place in ("Lyon", "Gent"):
        app.submit(call("stock.sync_warehouse", place, 600, tags=["stock", "eu"]))
    app.submit_many(call("media.resize_image", f"import/{i:03}.jpg", 320) for i in range(500))
    for at in range(90):
        partner = ("gent", "lyon", "oslo")[at % 3]
        app.submit(app.remote("partners.push_stock").bind(partner=partner, number=at))
    for i in range(40):
        app.submit(call("mail.send_receipt", f"user{i}@example.com", f"S-{i}", pool="mail",
                        delay=60 + 37 * i, tags=["reminder"]))
    keep_selling(app, seconds)


def keep_selling(app: Skedulr, seconds: float) -> None:
    """Orders as they come."""
    def call(name: str, *args: object, **options: object) -> Call[object]:
        return app.remote(name, **options).bind(*args)  # type: ignore[arg-type]

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = random.randrange(10_000, 99_999)
        app.submit_many([
            call("payments.charge_card", f"S-{number}", "49.90", pool="critical", key=f"S-{number}",
                 priority=10),
            *(call("mail.send_receipt", f"u{number}@example.com", f"S-{number}", pool="mail",
                   tags=["receipt"]) for _ in range(2)),
            *(call("media.resize_image", f"uploads/{number}-{i}.jpg", 1200) for i in range(2)),
        ])
        time.sleep(0.4)


def tasks_of(app: Skedulr, pool: str, state: str, limit: int) -> list[dict[str, Any]]:
    """The newest tasks of a pool in a state."""
    selection = lists.Selection(state=state, pool=pool)
    page: lists.Page = app.client.ask(
        lambda wire: lists.page(wire, app.client.config.namespace, [pool], selection, limit)
    )
    return page.items


def interesting_tasks(app: Skedulr) -> dict[str, str]:
    """A dead task and a running one."""
    dead = tasks_of(app, "critical", "dead", 2)[::-1]
    running = tasks_of(app, "default", "running", 20)
    reporting = [task for task in running if task["name"] == "stock.sync_warehouse"] or running
    return {"dead": dead[0]["id"], "running": reporting[0]["id"] if reporting else dead[0]["id"]}


def workflows(app: Skedulr) -> str:
    """Some that have ended, one that failed, and one on its way; its id."""
    mail, poll, work = (
        app.remote(name) for name in ("mail.send_receipt", "stock.poll", "media.resize_image")
    )
    broken = app.remote("health.ping", pool="critical")
    for name, steps in (("invoice 8814", 3), ("newsletter 48", 12), ("invoice 8815", 3)):
        with app.workflow(name) as w:
            first = w.add(poll.using(pool="critical").bind("Lyon"))
            for at in range(steps):
                w.add(mail.bind(f"u{at}@example.com", name), depends_on=first)
    with app.workflow("nightly check") as w:
        checks = [w.add(broken.bind(), name=f"check {at}") for at in range(12)]
        w.add(mail.bind("ops@example.com", "all well"), name="tell", on_success=checks)
    with app.workflow("catalogue 2027") as w:
        pages = [w.add(work.bind(f"page/{at}.png", 900), name=f"page {at}") for at in range(60)]
        w.add(mail.bind("print@example.com", "catalogue"), name="send", depends_on=pages)
    return order(app)


def order(app: Skedulr) -> str:
    """A workflow on its way; its id."""
    charge, mail, resize, sync, reindex = (app.remote(name) for name in (
        "payments.charge_card", "mail.send_receipt", "media.resize_image", "stock.sync_warehouse",
        "search.reindex",
    ))
    with app.workflow("order S-20514") as w:
        paid = w.add(charge.using(priority=20).bind("S-20514", "0.00"), name="charge")
        w.add(mail.using(priority=20).bind("ann@example.com", "S-20514"), name="receipt",
              depends_on=paid)
        with w.workflow("photos", depends_on=paid) as photos:
            for size in ("small", "large"):
                photos.add(resize.using(priority=20).bind(f"S-20514/{size}.jpg", 200), name=size)
        stock = w.add(sync.using(priority=20).bind("Lyon", 160), name="stock", depends_on=paid)
        index = w.add(reindex.bind(3), name="index", depends_on=photos)
        w.add(mail.bind("ann@example.com", "S-20514"), name="shipped", depends_on=[stock, index])
        w.add(mail.bind("shop@example.com", "S-20514"), name="trouble", on_failure=[paid, stock])
    time.sleep(3)
    return w.id


def steer(ids: dict[str, str]) -> None:
    """What an operator does on a morning."""
    for path, value in (
        ("pools/mail/scale", {"workers": 10}), ("pools/slow/pause", {}),
        (f"tasks/{ids['dead']}/resubmit", {}), ("tasks/resubmit", {"state": "dead", "name": "x"}),
        ("tasks", {"name": "mail.send_receipt", "args": ["ann@example.com", "S-1"],
                   "options": {"pool": "mail", "delay": 900}}),
        ("limits/partners.push_stock/set", {"concurrency": 2}), ("doctor", {}),
    ):
        body = json.dumps(value).encode()
        request = Request(f"{BASE}/api/{path}", body, {"Content-Type": "application/json"})
        urlopen(request, timeout=5).close()
    time.sleep(1)


def shoot_all(page: Page, scheme: str, ids: dict[str, str], app: Skedulr) -> None:
    """Every page in one colour scheme."""
    keep_selling(app, seconds=2)
    shoot(page, "/", f"overview-{scheme}")
    shoot(page, "/tasks?pool=critical", f"tasks-{scheme}")
    dead = tasks_of(app, "critical", "dead", 200)
    newest = next(one["id"] for one in dead if one["name"] == "payments.charge_card")
    shoot(page, f"/tasks/{newest}", f"task-dead-{scheme}")
    shoot(page, f"/tasks/{ids['running']}", f"task-running-{scheme}")
    shoot(page, "/workflows", f"workflows-{scheme}")
    shoot(page, f"/workflows/{ids['workflow']}", f"workflow-{scheme}")
    shoot(page, "/dead", f"dead-{scheme}")
    shoot(page, "/schedules?line=0+9+*+*+mon-fri&tz=Europe/Paris", f"schedules-{scheme}")
    shoot(page, "/limits", f"limits-{scheme}")
    shoot(page, "/nodes", f"nodes-{scheme}")
    shoot(page, "/submit?name=payments.charge_card", f"submit-{scheme}")
    shoot(page, "/redis", f"redis-{scheme}")
    shoot(page, "/changes", f"changes-{scheme}")


def shoot(page: Page, path: str, name: str) -> None:
    """One screenshot, once the page has heard from the stream and drawn its charts."""
    # The overview is longer than a screen, and worth it.
    tall = path == "/" and "phone" not in name
    size = page.viewport_size or {"width": 1440, "height": 900}
    page.set_viewport_size({**size, "height": 1240 if tall else min(900, size["height"])})
    page.goto(BASE + path)
    page.wait_for_selector("#stream.live")
    if path == "/":
        page.wait_for_selector("#charts[data-drawn]")
        page.wait_for_timeout(300)
    page.screenshot(path=HERE / f"{name}.png")


if __name__ == "__main__":
    main()

"""What people do on the pages, and that nothing a task carries can do anything there."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from harness import wait_until
from playwright.sync_api import expect
from storefront import Shop

import skedulr
from skedulr.lists import Selection
from skedulr.ui.operations import Operations
from skedulr.ui.pages import NAVIGATION

HOSTILE = "\"'><img src=x onerror=hacked()><script>hacked()</script>{{7*7}}</pre></textarea>"


def test_a_task_is_submitted_by_the_form_of_its_parameters(page: Any, shop: Shop) -> None:
    page.goto("/submit")
    page.fill("input[name=name]", "add")
    page.press("input[name=name]", "Tab")
    page.fill("input[name='p:a']", "2")
    page.fill("input[name='p:b']", "40")
    page.click("main button:has-text('Submit')")
    expect(page).to_have_url(re.compile(r"/tasks/default/"))
    expect(page.locator("h1 .state")).to_have_text("succeeded")
    expect(page.locator("main")).to_contain_text("42")


def test_a_task_is_submitted_by_json_that_is_checked_as_it_is_typed(page: Any) -> None:
    page.goto("/submit?name=add&json=1")
    page.fill("textarea[name=args]", "[2, ")
    expect(page.locator("textarea[name=args]")).to_have_attribute("aria-invalid", "true")
    page.click("main button:has-text('Submit')")
    expect(page.locator(".trouble")).to_contain_text("no JSON")
    expect(page.locator("input[name=name]")).to_have_value("add")
    page.fill("textarea[name=args]", "[20, 22]")
    page.click("main button:has-text('Submit')")
    expect(page.locator("h1 .state")).to_have_text("succeeded")
    page.complaints[:] = [one for one in page.complaints if "400" not in one]


def test_a_task_is_cancelled_and_resubmitted_and_removed(page: Any, shop: Shop) -> None:
    id = shop.submit("add", 1, 2, delay=3600)
    page.goto(f"/tasks/{id}")
    page.click("button[value=cancel]")
    page.click("#confirm >> text=Keep")
    expect(page.locator("h1 .state")).to_have_text("scheduled")
    page.click("button[value=cancel]")
    page.click("#confirm-yes")
    expect(page.locator("h1 .state")).to_have_text("cancelled")
    page.click("button[value=resubmit]")
    shop.wait(id, "succeeded")
    page.goto(f"/tasks/{id}")
    expect(page.locator(".line")).to_contain_text("resubmitted")
    page.click("button[value=remove]")
    page.click("#confirm-yes")
    expect(page.locator("main h1")).to_have_text("Not found")
    page.complaints[:] = [one for one in page.complaints if "404" not in one]


def test_a_dead_task_is_edited_and_submitted_anew(page: Any, shop: Shop) -> None:
    id = shop.submit("fail", "edit me", tags=["eu"])
    shop.wait(id, "dead")
    page.goto(f"/tasks/{id}")
    page.click("text=Edit and submit anew")
    expect(page.locator("textarea[name=args]")).to_have_value(re.compile("edit me"))
    expect(page.locator("input[name=tags]")).to_have_value("eu")
    page.fill("textarea[name=args]", '["edited"]')
    page.click("main button:has-text('Submit')")
    expect(page.locator(".failure")).to_contain_text("edited", timeout=10_000)


def test_selected_tasks_are_cancelled_from_the_list(page: Any, shop: Shop) -> None:
    ids = [shop.submit("add", i, i, delay=3600, tags=["some"]) for i in range(3)]
    page.goto("/tasks?state=scheduled&query=tag:some")
    page.check(f'input[value="{ids[0]}"]')
    page.check(f'input[value="{ids[2]}"]')
    page.click("#bulk button[value=cancel]")
    expect(page.locator(".note")).to_contain_text("2 cancelled")
    assert [shop.app.client.state(id) for id in ids] == ["cancelled", "scheduled", "cancelled"]


def test_all_that_match_are_cancelled_in_the_background(page: Any, shop: Shop) -> None:
    shop.app.submit_many(
        shop.app.remote("add", delay=3600, tags=["many"]).bind(i, i) for i in range(1200)
    )
    page.goto("/tasks?state=scheduled&query=tag:many")
    page.check("input[name=all]")
    page.click("#bulk button[value=cancel]")
    expect(page.locator("#confirm-text")).to_contain_text("every task that matches")
    page.click("#confirm-yes")
    expect(page).to_have_url(re.compile(r"/operations/\w+$"))
    expect(page.locator("h1 .state")).to_have_text("finished", timeout=15_000)
    expect(page.locator(".progress")).to_contain_text("1,200 changed")
    page.reload()
    expect(page.locator(".progress")).to_contain_text("1,200 changed")


def test_an_operations_bar_survives_a_reload_and_is_on_the_lists(page: Any, shop: Shop) -> None:
    space, client = shop.app.client.space, shop.server.client
    record = {
        "id": "elsewhere", "action": "cancel", "by": "ann", "state": "running", "states": ["dead"],
        "selection": {"state": None, "pool": None, "name": "x", "query": None}, "cursor": None,
        "done": 300, "changed": 250, "total": 1000, "error": None, "started_at": time.time(),
        "finished_at": None,
    }
    # As if another master worked on it: nobody here takes it up.
    client.set(space.operation_lock("elsewhere"), "another")
    client.hset(space.operations, "elsewhere", msgpack.packb(record))
    try:
        page.goto("/operations/elsewhere")
        for _ in range(2):
            expect(page.locator(".progress")).to_contain_text("300 of 1,000 looked at, 250 changed")
            page.reload()
        for path in ("/", "/tasks", "/dead"):
            page.goto(path)
            expect(page.locator("#operation-elsewhere")).to_contain_text("cancel 300 of 1,000")
        client.hset(space.operations, "elsewhere", msgpack.packb({**record, "done": 600}))
        page.click("#operation-elsewhere a")
        expect(page.locator(".progress")).to_contain_text("600 of 1,000")
    finally:
        client.hdel(space.operations, "elsewhere")
        client.delete(space.operation_lock("elsewhere"))


def test_a_limit_is_set_and_reset(page: Any, shop: Shop) -> None:
    limit = skedulr.Limit(concurrency=3, name="few")
    shop.app.submit_call(shop.app.remote("add", limit=limit, delay=3600).bind(1, 2))
    page.goto("/limits")
    row = page.locator("#limit-concurrency-default-few")
    row.locator("input[name=concurrency]").fill("7")
    row.get_by_role("button", name="Set").click()
    expect(page.locator(".note")).to_contain_text("Limit few holds from now on")
    expect(row).to_contain_text("7 at once")
    expect(row).to_contain_text("changed")
    row.get_by_role("button", name="Reset").click()
    expect(row).not_to_contain_text("7 at once")


def test_all_pools_are_paused_and_resumed_after_a_question(page: Any, shop: Shop) -> None:
    page.goto("/")
    for verb, paused in (("Pause", True), ("Resume", False)):
        page.click(f"text={verb} all")
        page.click("#confirm-yes")
        expect(page.locator(".note")).to_contain_text(f"All pools are {verb.lower()}d")
        assert {pool["paused"] for pool in shop.app.client.pools()} == {paused}


def test_a_group_of_dead_tasks_is_resubmitted(page: Any, shop: Shop) -> None:
    ids = [shop.submit("fail", f"group {i}", pool="other") for i in range(3)]
    for id in ids:
        shop.wait(id, "dead")
    page.goto("/dead?pool=other")
    expect(page.locator("tbody tr")).to_contain_text("ValueError", timeout=8_000)
    page.click("text=Resubmit all")
    expect(page.locator("#confirm-text")).to_contain_text("Resubmit all dead fail with ValueError")
    page.click("#confirm-yes")
    expect(page.locator("h1 .state")).to_have_text("finished")
    expect(page.locator(".progress")).to_contain_text("3 changed")


def test_a_pool_is_paused_resumed_and_scaled(page: Any, shop: Shop) -> None:
    page.goto("/")
    row = page.locator("#pool-other")
    row.locator("button:text('Pause')").click()
    expect(row.locator(".state.paused")).to_be_visible()
    expect(page.locator(".note")).to_contain_text("Pool other is paused")
    id = shop.submit("add", 1, 1, pool="other")
    row.locator("button:text('Resume')").click()
    expect(row.locator(".state.paused")).to_be_hidden()
    shop.wait(id, "succeeded")
    row.locator("[aria-label='other: one worker more']").click()
    expect(row.locator("[data-live='pools.other.workers']")).to_have_text("3", timeout=10_000)
    expect(row).to_contain_text("manual")
    row.locator("button:text('reset')").click()
    expect(row.locator("[data-live='pools.other.workers']")).to_have_text("2", timeout=10_000)


def test_a_pool_is_purged_after_a_question(page: Any, shop: Shop) -> None:
    shop.submit("add", 1, 1, pool="other", delay=3600)
    page.goto("/")
    page.locator("#pool-other button:text('Purge')").click()
    expect(page.locator("#confirm-text")).to_contain_text("Remove every task of pool other")
    page.click("#confirm-yes")
    expect(page.locator("h1 .state")).to_have_text("finished")
    assert not [p for p in shop.app.client.pools() if p["name"] == "other" and p["scheduled"]]


def test_a_schedule_is_run_paused_and_previewed(page: Any, shop: Shop) -> None:
    shop.app.schedule_recurring(shop.app.remote("add").bind(1, 2), 3600, name="hourly")
    page.goto("/schedules")
    row = page.locator("#schedule-hourly")
    expect(row).to_contain_text("every 1 h")
    row.locator("button:text('Run now')").click()
    expect(page.locator("h1 .state")).to_have_text("succeeded")
    page.goto("/schedules")
    expect(row.locator(".run.succeeded")).to_have_count(1)
    row.locator("button:text('Pause')").click()
    expect(row.locator(".paused")).to_be_visible()
    page.fill("input[name=line]", "0 9 * * mon")
    expect(page.locator(".ticks li")).to_have_count(5)
    page.fill("input[name=line]", "0 99 * * *")
    expect(page.locator("#preview .bad")).to_be_visible()


def test_a_node_is_drained_and_claims_again(page: Any, shop: Shop) -> None:
    page.goto("/nodes")
    page.click("button:has-text('Drain')")
    page.click("#confirm-yes")
    expect(page.locator(".node h2")).to_contain_text("drained", timeout=15_000)
    id = shop.submit("add", 1, 2)
    page.click("button:has-text('Claim again')")
    shop.wait(id, "succeeded")


def test_the_doctor_finds_and_mends_from_the_page(page: Any, shop: Shop) -> None:
    ready = "{skedulr:default}:ready"
    shop.app.pause("default")
    shop.server.client.zadd(ready, {"<b>ghost</b>": 1})
    try:
        page.goto("/redis")
        page.click("#checkup button:has-text('Examine')")
        row = page.locator("#checkup tbody tr")
        expect(row).to_contain_text("<b>ghost</b>", timeout=20_000)
        page.click("#checkup button:has-text('Mend')")
        page.click("#confirm-yes")
        expect(page.locator("#checkup .finding.ok")).to_contain_text("1 mended", timeout=20_000)
        assert shop.server.client.zscore(ready, "<b>ghost</b>") is None
    finally:
        shop.app.resume("default")


def test_changes_are_listed(page: Any, shop: Shop) -> None:
    page.goto("/")
    page.locator("#pool-default button:text('Pause')").click()
    page.locator("#pool-default button:text('Resume')").click()
    page.goto("/changes")
    expect(page.locator("tbody tr").first).to_contain_text("resume")
    expect(page.locator("tbody tr").first).to_contain_text("127.0.0.1")


def hostile_records(shop: Shop) -> str:
    """As if a node, the leader and a limit had written such text; an operation's id."""
    redis, now = shop.server.client, time.time()
    redis.hset("{skedulr}:nodes", "hostile", msgpack.packb({
        "id": HOSTILE, "host": HOSTILE, "pid": HOSTILE, "version": HOSTILE, "started_at": now,
        "beat_at": now - 15, "drained": True,
        "children": [{"pool": HOSTILE, "pid": 1, "workers": 0, "busy": 0}],
    }))
    redis.lpush("{skedulr}:decisions", msgpack.packb({
        "at": now, "pool": "pool <b>hostile</b>", "kind": HOSTILE, "from": 1, "to": 2,
        "why": HOSTILE,
    }))
    limit = skedulr.Limit(concurrency=1, name="<b>limit</b>", key=HOSTILE.replace("{", "(").replace(
        "}", ")"
    ))
    shop.app.submit_call(shop.app.remote("add", limit=limit, delay=3600).bind(1, 2))
    shop.app.schedule_cron(
        shop.app.remote("<img src=x onerror=hacked()>").bind(HOSTILE), "0 0 1 1 *", name="hostile"
    )
    operations = Operations(shop.app.client)
    record = operations.start("cancel", Selection(name=HOSTILE, query=HOSTILE), HOSTILE)
    return str(record["id"])


def test_hostile_text_is_text_on_every_page(page: Any, shop: Shop) -> None:
    name = "<img src=x onerror=hacked()>"
    page.add_init_script("window.hacked = () => { console.error('hacked'); }")
    call = shop.app.remote(name, tags=[HOSTILE[:80]], key=HOSTILE[:80])
    dead = shop.app.submit_call(call.bind(HOSTILE, **{"k\"><b>": [HOSTILE]})).id
    shop.wait(dead, "dead")
    waiting = shop.app.submit_call(call.using(delay=3600, pool="other").bind(HOSTILE)).id
    with shop.app.workflow(HOSTILE) as w:
        w.add(call.bind(HOSTILE), name=HOSTILE)
    operation = hostile_records(shop)
    for path in (
        "/", "/tasks", f"/tasks/{dead}", f"/tasks/{waiting}", "/dead", "/nodes", "/changes",
        f"/submit?from={dead}", f"/tasks?query={HOSTILE}", f"/tasks?name={name}",
        f"/submit?name={HOSTILE}", "/redis", "/workflows", f"/workflows/{w.id}", "/limits",
        "/schedules", f"/schedules?line={HOSTILE}&tz={HOSTILE}", f"/operations/{operation}",
        f"/?pool={HOSTILE}&span={HOSTILE}", f"/nothing/{HOSTILE}",
    ):
        page.goto(path.replace("<", "%3C").replace('"', "%22").replace("#", "%23"))
        expect(page.locator("#stream")).to_have_text("live")
        assert page.locator("main img, main script:not([src])").count() == 0
        assert page.evaluate("document.querySelectorAll('[onerror], [onload]').length") == 0
    page.complaints[:] = [one for one in page.complaints if "404" not in one]
    page.goto("/nodes")
    expect(page.locator("main")).to_contain_text("pool <b>hostile</b>")
    page.goto(f"/tasks/{dead}")
    expect(page.locator("h1")).to_contain_text(name)
    expect(page.locator(".failure")).to_contain_text("<script>hacked()</script>")
    expect(page.locator("main")).to_contain_text("{{7*7}}")


def test_other_sites_can_not_change_anything(tab: Callable[..., Any], shop: Shop) -> None:
    page = tab("http://evil.localhost")
    page.route("http://evil.localhost/**", lambda route: route.fulfill(
        content_type="text/html", body=f"""<form method=post action="{shop.url}/api/pause"
          enctype="text/plain"><input name='{{"a":"' value='"}}'><button>go</button></form>"""
    ))
    page.goto("http://evil.localhost/")
    status = page.evaluate("""async (url) => {
        try { return (await fetch(url, {method: 'POST', body: '{}', credentials: 'include',
            headers: {'Content-Type': 'application/json'}})).status; }
        catch (error) { return String(error); } }""", f"{shop.url}/api/pause")
    assert "Failed to fetch" in str(status)
    with page.expect_navigation() as moved:
        page.click("button")
    assert moved.value.status == 403
    assert not any(pool["paused"] for pool in shop.app.client.pools())
    # The browser says in its console what it kept that page from doing.
    page.complaints.clear()


# Who


@pytest.fixture(scope="module")
def guarded(open_shop: Callable[..., Shop], tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A master that asks for users."""
    file = tmp_path_factory.mktemp("users") / "users"
    file.write_text("ann:s3cret\nviewer vic:looks\n")
    return open_shop("--ui-auth-file", str(file), pools="default=2")


def test_people_log_in_and_out(tab: Callable[..., Any], guarded: Shop) -> None:
    page = tab(guarded.url)
    page.goto("/tasks?state=dead")
    page.fill("input[name=user]", "ann")
    page.fill("input[name=password]", "wrong")
    page.click("text=Log in >> nth=-1")
    expect(page.locator(".trouble")).to_contain_text("not right")
    page.fill("input[name=user]", "ann")
    page.fill("input[name=password]", "s3cret")
    page.press("input[name=password]", "Enter")
    expect(page.locator("#stream")).to_have_text("live")
    page.goto("/")
    page.locator("#pool-default button:text('Pause')").click()
    expect(page.locator(".note")).to_contain_text("paused")
    page.locator("#pool-default button:text('Resume')").click()
    page.goto("/changes")
    expect(page.locator("tbody tr").first).to_contain_text("ann")
    page.click("text=Log out")
    expect(page.locator("input[name=password]")).to_be_visible()
    page.complaints[:] = [one for one in page.complaints if "401" not in one]


def test_a_viewer_sees_everything_and_has_no_buttons(
    tab: Callable[..., Any], guarded: Shop
) -> None:
    id = guarded.submit("add", 1, 1, delay=3600)
    page = tab(guarded.url, http_credentials={"username": "vic", "password": "looks"},
               extra_http_headers={"Authorization": "Basic dmljOmxvb2tz"})
    for path in (*(one for _, one, _ in NAVIGATION if one != "/submit"), f"/tasks/{id}"):
        page.goto(path)
        expect(page.locator("#stream")).to_have_text("live")
        assert page.locator("main form[method=post] button").count() == 0, path


def test_the_interface_answers_programs_beside_the_pages(page: Any, shop: Shop) -> None:
    page.goto("/")
    stats = page.evaluate("fetch('/api/stats').then(answer => answer.text())")
    assert {pool["name"] for pool in json.loads(stats)["pools"]} == {"default", "other"}
    wait_until(lambda: shop.app.client.overview().nodes, "the node has written its record")

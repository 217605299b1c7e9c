"""The pages in a real browser: each of them, live, by keyboard, without JavaScript, on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from harness import wait_until
from playwright.sync_api import expect
from storefront import Shop

from skedulr.ui.pages import NAVIGATION

PAGES = tuple(path for _, path, _ in NAVIGATION)


@pytest.fixture(scope="module")
def ids(shop: Shop) -> dict[str, str]:
    """A task in each of the states that last."""
    made = {
        "succeeded": shop.submit("add", 1, 2), "dead": shop.submit("fail", "card declined"),
        "scheduled": shop.submit("add", 1, 2, delay=3600),
    }
    for state, id in made.items():
        shop.wait(id, state)
    return made


def test_every_page_opens_without_a_complaint(page: Any, ids: dict[str, str]) -> None:
    for path in (*PAGES, *(f"/tasks/{id}" for id in ids.values()), "/tasks?state=dead"):
        answer = page.goto(path)
        assert answer.status == 200, path
        expect(page.locator("#stream")).to_have_class(re.compile("live"))
        expect(page.locator("main h1").first).to_be_attached()


def test_the_overview_draws_its_charts_and_lists_the_pools(
    page: Any, ids: dict[str, str]
) -> None:
    page.goto("/")
    page.wait_for_selector("#charts[data-drawn]")
    for name in ("rate", "wait", "run"):
        expect(page.locator(f"#plot-{name} canvas")).to_be_visible()
    expect(page.locator("#chart-now")).to_contain_text("predicted wait")
    expect(page.locator("#pool-default")).to_contain_text("default")
    expect(page.locator("#pool-other")).to_be_visible()


def test_what_the_charts_show_is_in_the_address_and_comes_back(
    page: Any, ids: dict[str, str]
) -> None:
    page.goto("/")
    page.wait_for_selector("#charts[data-drawn]")
    page.click("text=24 h")
    page.locator("#pool-default a[data-chart]").first.click()
    expect(page).to_have_url(re.compile(r"/\?pool=default&span=24h$"))
    page.reload()
    page.wait_for_selector("#charts[data-drawn]")
    expect(page.locator('[data-span="24h"]')).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#chart-pool")).to_have_value("default")
    page.select_option("#chart-pool", "")
    expect(page).to_have_url(re.compile(r"/\?span=24h$"))


def test_charts_draw_what_just_ended_by_themselves(page: Any, shop: Shop) -> None:
    page.goto("/")
    page.wait_for_selector("#charts[data-drawn]")
    drawn = int(page.get_attribute("#charts", "data-drawn"))
    shop.submit("add", 1, 1)
    expect(page.locator("#charts")).not_to_have_attribute("data-drawn", str(drawn), timeout=15_000)


def test_a_search_is_completed_word_by_word(page: Any, ids: dict[str, str]) -> None:
    page.goto("/tasks")
    options = "[...document.querySelectorAll('#terms option')].map(each => each.value)"
    for box in ("#find", "#query"):
        page.focus(box)
        wait_until(lambda: "error:ValueError" in page.evaluate(options), "errors are offered")
        page.fill(box, 'declined "two words" err')
        assert 'declined "two words" error:ValueError' in page.evaluate(options)
        page.fill(box, "")
        assert "tag:" in page.evaluate(options)


def test_a_task_page_shows_what_is_known(page: Any, ids: dict[str, str]) -> None:
    page.goto(f"/tasks/{ids['dead']}")
    expect(page.locator("h1")).to_contain_text("fail")
    expect(page.locator(".failure")).to_contain_text("ValueError")
    expect(page.locator(".failure pre")).to_contain_text("Traceback")
    expect(page.locator(".line")).to_contain_text("submitted")
    page.goto(f"/tasks/{ids['succeeded']}")
    expect(page.locator("main")).to_contain_text("3")


def test_an_unknown_page_and_task_say_so(page: Any) -> None:
    for path in ("/nothing", "/tasks/default/nobody"):
        answer = page.goto(path)
        assert answer.status == 404
        expect(page.locator("main h1")).to_have_text("Not found")
    # The browser itself notes every 404 in its console.
    page.complaints[:] = [one for one in page.complaints if "404" not in one]


def test_a_filter_is_in_the_address_and_in_the_form(page: Any, ids: dict[str, str]) -> None:
    page.goto("/tasks")
    page.click(".tabs >> text=dead")
    page.fill("input[name=name]", "fail")
    page.fill("#query", "error:ValueError declined")
    page.click("text=Filter")
    expect(page).to_have_url(re.compile(r"state=dead.*name=fail.*query=error%3AValueError"))
    expect(page.locator("tbody tr")).not_to_have_count(0)
    expect(page.locator("#query")).to_have_value("error:ValueError declined")
    page.fill("#query", "no such text")
    page.press("#query", "Enter")
    expect(page.locator(".empty")).to_contain_text("No such tasks")


# Live


def test_numbers_move_by_themselves(page: Any, shop: Shop) -> None:
    page.goto("/")
    expect(page.locator("#stream")).to_have_class(re.compile("live"))
    place = page.locator("[data-live=scheduled]").first
    before = int(place.inner_text().replace(",", ""))
    page.evaluate("window.here = true")
    for _ in range(3):
        shop.submit("add", 1, 1, delay=3600)
    expect(place).to_have_text(f"{before + 3:,}")
    assert page.evaluate("window.here"), "the page was not loaded again"


def test_new_tasks_come_into_the_list_by_themselves(page: Any, shop: Shop) -> None:
    page.goto("/tasks?query=tag:fresh")
    expect(page.locator(".empty")).to_be_visible()
    shop.submit("add", 5, 6, tags=["fresh"])
    expect(page.locator("tbody tr")).to_have_count(1, timeout=15_000)


def test_progress_moves_until_the_task_has_ended(page: Any, shop: Shop) -> None:
    id = shop.submit("report", 25)
    shop.wait(id, "running")
    page.goto(f"/tasks/{id}")
    expect(page.locator(".progress")).to_contain_text(re.compile(r"step [1-9]"))
    expect(page.locator("h1 .state")).to_have_text("succeeded", timeout=10_000)


def test_a_running_task_shows_its_stack_from_the_nodes_page(page: Any, shop: Shop) -> None:
    id = shop.submit("report", 200)
    shop.wait(id, "running")
    page.goto("/nodes")
    page.locator("tr", has_text="report").get_by_role("link", name="show").click()
    expect(page.locator("#stack pre")).to_contain_text("in report")
    shop.app.cancel(id)
    expect(page.locator("#stack")).to_have_count(0, timeout=10_000)


def test_a_list_in_use_is_left_alone(page: Any, ids: dict[str, str]) -> None:
    page.goto("/tasks?state=dead")
    box = page.locator("input[name=ids]").first
    box.check()
    expect(page.locator("#picked")).to_have_text("1 selected:")
    page.wait_for_timeout(1500)
    assert box.is_checked()


def test_being_cut_off_is_shown_and_ends(page: Any) -> None:
    page.goto("/")
    expect(page.locator("#stream")).to_have_text("live")
    page.route("**/api/events", lambda route: route.abort())
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.reload()
    expect(page.locator("#stream")).to_have_text("cut off")
    page.unroute("**/api/events")
    expect(page.locator("#stream")).to_have_text("live", timeout=10_000)
    page.complaints[:] = [one for one in page.complaints if "ERR_FAILED" not in one]


# Keyboard


def test_keys_go_to_pages_and_search(page: Any, ids: dict[str, str]) -> None:
    page.goto("/")
    for key, path in (("t", "/tasks"), ("d", "/dead"), ("n", "/nodes"), ("r", "/redis"),
                      ("c", "/changes"), ("s", "/schedules"), ("w", "/workflows"), ("l", "/limits"),
                      ("a", "/submit"), ("o", "/")):
        page.locator("body").press("g")
        page.locator("body").press(key)
        expect(page).to_have_url(re.compile(rf"{re.escape(path)}$"))
    page.keyboard.press("/")
    page.keyboard.type("declined")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/tasks\?query=declined$"))
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()


def test_keys_walk_select_and_open_rows(page: Any, ids: dict[str, str]) -> None:
    page.goto("/tasks")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tbody tr").first).to_have_class("at")
    page.keyboard.press("x")
    expect(page.locator("#picked")).to_have_text("1 selected:")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/tasks/default/"))


def test_everything_can_be_reached_by_tab_and_has_a_name(page: Any, ids: dict[str, str]) -> None:
    for path in (*PAGES, f"/tasks/{ids['dead']}"):
        page.goto(path)
        nameless = page.evaluate("""() => [...document.querySelectorAll(
            'a[href], button, input:not([type=hidden]), select, textarea')].filter(each =>
            !(each.innerText || each.ariaLabel || each.title || each.placeholder
              || (each.labels && each.labels.length))).map(each => each.outerHTML)""")
        assert nameless == [], path
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")


# Other ways to look


def test_pages_are_readable_and_forms_work_without_javascript(
    tab: Callable[..., Any], shop: Shop, ids: dict[str, str]
) -> None:
    page = tab(shop.url, java_script_enabled=False)
    for path in (*PAGES, f"/tasks/{ids['dead']}"):
        page.goto(path)
        expect(page.locator("main h1").first).to_be_attached()
    page.goto("/")
    expect(page.locator("#pool-default")).to_contain_text("default")
    expect(page.locator("#charts")).to_be_hidden()
    page.goto(f"/tasks/{ids['scheduled']}")
    page.click("button[value=cancel]")
    expect(page.locator("h1 .state")).to_have_text("cancelled")
    page.click("button[value=resubmit]")
    expect(page.locator(".note")).to_contain_text("1 resubmitted")


def test_colours_follow_the_choice_and_are_kept(page: Any) -> None:
    page.goto("/")
    back = "getComputedStyle(document.body).backgroundColor"
    page.click("#theme")
    light = page.evaluate(back)
    page.click("#theme")
    dark = page.evaluate(back)
    assert light != dark
    page.reload()
    assert page.evaluate(back) == dark
    page.click("#theme")


def test_no_page_is_wider_than_the_screen(page: Any, ids: dict[str, str]) -> None:
    for path in (*PAGES, f"/tasks/{ids['dead']}"):
        page.goto(path)
        for width in (360, 768, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, (path, width, over)


def test_no_name_of_a_page_is_cut_off_on_a_screen_of_a_desk(page: Any) -> None:
    page.goto("/")
    for width in (900, 1100, 1101, 1200, 1280, 1320, 1321, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        over = page.evaluate(
            "(nav => nav.scrollWidth - nav.clientWidth)(document.querySelector('.bar nav'))"
        )
        assert over <= 0, (width, over)


def test_nothing_jumps_while_a_page_loads_or_is_kept_up_to_date(
    tab: Callable[..., Any], shop: Shop, ids: dict[str, str]
) -> None:
    for width, paths in ((390, (*PAGES, f"/tasks/{ids['dead']}")), (1440, ("/",))):
        page = tab(shop.url, viewport={"width": width, "height": 900})
        page.add_init_script("""window.moved = 0;
            new PerformanceObserver(list => list.getEntries().forEach(each => {
                if (!each.hadRecentInput) window.moved += each.value; }))
            .observe({type: 'layout-shift', buffered: true});""")
        for path in paths:
            page.goto(path)
            expect(page.locator("#stream")).to_have_text("live", use_inner_text=False)
            if path == "/":
                page.wait_for_selector("#charts[data-drawn]")
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            page.wait_for_timeout(250)
            # What browsers call good is 0.1.
            assert page.evaluate("window.moved") < 0.02, (path, width)


def test_a_first_visit_loads_little(page: Any) -> None:
    page.goto("/")
    page.wait_for_selector("#charts[data-drawn]")
    loaded = page.evaluate("""() => [...performance.getEntriesByType('resource'),
        ...performance.getEntriesByType('navigation')]
        .reduce((sum, each) => sum + each.transferSize, 0)""")
    assert 10_000 < loaded < 150_000


def test_text_stands_out_enough_in_both_colours(tab: Callable[..., Any], shop: Shop) -> None:
    for scheme in ("light", "dark"):
        page = tab(shop.url, color_scheme=scheme)
        page.goto("/")
        weak = page.evaluate(_CONTRAST)
        assert weak == [], scheme


#: Pairs of ink and ground whose contrast is under 4.5 (WCAG AA).
_CONTRAST = """() => {
  const style = getComputedStyle(document.documentElement);
  const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const light = (name) => {
    paint.fillStyle = style.getPropertyValue(name).trim();
    paint.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = [];
  for (const ground of ['--page', '--sheet', '--sunk'])
    for (const ink of ['--ink', '--soft', '--accent', '--bad']) pairs.push([ink, ground]);
  for (const name of ['good', 'warn', 'bad', 'busy', 'accent'])
    pairs.push([`--${name}`, `--${name}-soft`]);
  pairs.push(['--accent-ink', '--accent']);
  return pairs.map(([ink, ground]) => {
    const [low, high] = [light(ink), light(ground)].sort((a, b) => a - b);
    return [ink, ground, (high + 0.05) / (low + 0.05)];
  }).filter(([, , ratio]) => ratio < 4.5);
}"""


def test_a_workflow_s_graph_follows_its_steps_and_leads_to_them(page: Any, shop: Shop) -> None:
    add = shop.app.remote("add")
    with shop.app.workflow("sums") as w:
        first = w.add(add.using(delay=3).bind(1, 2), name="first")
        w.add(add.bind(first, 3), name="second")
    answer = page.goto(f"/workflows/{w.id}")
    assert answer.status == 200
    expect(page.locator("#graph .step")).to_have_count(2)
    # Both wait until a deliverer hears that the workflow begins; then the one, for the other.
    expect(page.locator("#graph .step.waiting")).to_have_count(1)
    expect(page.locator("#graph .step.waiting")).to_contain_text("second")
    # Live: nothing is loaded anew.
    expect(page.locator("#graph .step.succeeded")).to_have_count(2, timeout=15_000)
    expect(page.locator("h1 .state")).to_have_text("succeeded")
    page.locator("#graph .step.succeeded").last.click()
    expect(page).to_have_url(re.compile("/tasks/"))
    page.locator(".facts a", has_text=w.id).click()
    expect(page.locator("h1")).to_contain_text("sums")
    page.goto(f"/workflows/{w.id}")
    expect(page.locator("tbody tr")).to_have_count(2)


def test_the_list_of_workflows_moves_leads_on_and_acts(page: Any, shop: Shop) -> None:
    fail, add = shop.app.remote("fail"), shop.app.remote("add")
    with shop.app.workflow("listed") as w:
        first = w.add(add.using(delay=4).bind(1, 2), name="first")
        w.add(fail.bind("no"), on_success=first)
    page.goto("/workflows")
    row = page.locator(f"[id='workflow-{w.id}']")
    expect(row.locator(".state").first).to_have_text("running")
    expect(row.locator(".state").first).to_have_text("failed", timeout=20_000)
    expect(row).to_contain_text("2 of 2")
    page.click(".tabs >> text=failed")
    row.get_by_role("button", name="Resubmit what failed").click()
    expect(page.locator(".note")).to_contain_text("1 resubmitted")
    expect(page).to_have_url(re.compile(r"/workflows\?state=failed$"))
    with shop.app.workflow("waits") as later:
        later.add(add.using(delay=3600).bind(1, 2))
    page.goto("/workflows?state=running")
    page.locator(f"[id='workflow-{later.id}']").get_by_role("button", name="Cancel").click()
    page.click("#confirm-yes")
    expect(page.locator(".note")).to_contain_text("1 cancelled")
    page.goto("/workflows")
    page.click(f"[id='workflow-{later.id}'] th a")
    expect(page.locator("h1")).to_contain_text("waits")
    page.click(".crumbs a")
    expect(page.locator("h1")).to_have_text("Workflows")


def test_a_failed_workflow_is_resubmitted_by_its_button(page: Any, shop: Shop) -> None:
    with shop.app.workflow("broken") as w:
        w.add(shop.app.remote("fail").bind("no"), name="breaks")
    assert w.wait(timeout=15)
    page.goto(f"/workflows/{w.id}")
    expect(page.locator("#graph .step.dead")).to_have_count(1)
    page.click("text=Resubmit what failed")
    expect(page.locator(".note")).to_contain_text("1 resubmitted")

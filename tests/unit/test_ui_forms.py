"""What the pages' forms do, beyond what the interface does: fields, selections, ways back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from servers import Server, wait_until
from ui_world import Browser, World, browse

import skedulr
from skedulr import names
from skedulr.signatures import Parameter
from skedulr.ui.forms import signed_arguments
from skedulr.ui.problems import Problem


@pytest.fixture
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture
def ui(world: World) -> Browser:
    return browse(world)


def publish(world: World, function: Callable[..., Any], **options: Any) -> None:
    task = skedulr.Skedulr().task(**options)(function)
    world.call("HSET", world.client.space.names, task.name, names.pack(names.published(task)))


def test_a_form_of_a_known_task_has_a_field_for_each_parameter(world: World, ui: Browser) -> None:
    def mail(to: str, copies: int = 1, *more: Any, urgent: bool = False) -> None: ...

    publish(world, mail, name="mail", pool="post")
    page = ui.page("/submit?name=mail").text
    for field in ("p:to", "p:copies", "p:more", "p:urgent"):
        assert f'name="{field}"' in page
    assert 'placeholder="post"' in page
    assert 'name="p:to" value="" placeholder="" required' in page
    sent = ui.send("/do/submit", name="mail", signed="1", **{
        "p:to": "007", "p:copies": "3", "p:more": "", "p:urgent": "true",
    })
    task = ui.get(f"/api{sent.header('Location')}").json
    assert (task["pool"], task["args"]) == ("post", [])
    assert task["kwargs"] == {"to": "007", "copies": 3, "urgent": True}


def test_a_field_that_can_not_be_what_it_should_keeps_what_was_typed(
    world: World, ui: Browser
) -> None:
    def mail(to: str, copies: int = 1) -> None: ...

    publish(world, mail, name="mail")
    again = ui.send("/do/submit", name="mail", signed="1", **{"p:to": "ann", "p:copies": "three"})
    assert again.status == 400
    assert "copies: &#039;three&#039; is no int" in again.text
    assert 'value="ann"' in again.text
    assert ui.get("/api/stats").json["queued"] == 0


def test_an_unknown_task_is_submitted_all_the_same(ui: Browser) -> None:
    page = ui.page("/submit?name=nobody").text
    assert "No process has published a task of this name" in page
    assert 'name="args"' in page
    sent = ui.send("/do/submit", name="nobody", args="[1]", kwargs='{"a": 2}', priority="5",
                   tags="eu, new", delay="60", max_retries="0", timeout="1.5")
    task = ui.get(f"/api{sent.header('Location')}").json
    assert (task["args"], task["kwargs"], task["state"]) == ([1], {"a": 2}, "scheduled")
    assert (task["priority"], task["tags"], task["max_retries"]) == (5, ["eu", "new"], 0)


@pytest.mark.parametrize("fields", [
    {"name": ""}, {"name": "x", "args": "{}"}, {"name": "x", "args": "nope"},
    {"name": "x", "priority": "high"}, {"name": "x", "priority": "1000"}, {"name": "x", "id": "/"},
    {"name": "x", "kwargs": '{"a": NaN}'}, {"name": "x", "pool": "a b"},
])
def test_a_form_that_can_not_be_is_shown_again_with_the_reason(
    ui: Browser, fields: dict[str, str]
) -> None:
    again = ui.send("/do/submit", **fields)
    assert again.status == 400
    assert 'class="trouble"' in again.text


def test_choosing_a_task_leads_to_its_form(ui: Browser) -> None:
    assert ui.send("/do/submit", name="a b&c", fields="1").header("Location") == (
        "/submit?name=a+b%26c"
    )


@pytest.mark.parametrize(("kind", "annotation", "text", "args", "kwargs"), [
    ("any", "str", "7", [], {"x": "7"}), ("any", "int", "7", [], {"x": 7}),
    ("any", None, "7", [], {"x": 7}), ("any", None, "seven", [], {"x": "seven"}),
    ("any", "list[int]", "[1]", [], {"x": [1]}), ("any", "str | None", "a", [], {"x": "a"}),
    ("positional", "int", "7", [7], {}), ("args", None, "[1, 2]", [1, 2], {}),
    ("kwargs", None, '{"a": 1}', [], {"a": 1}), ("any", "int", " ", [], {}),
])
def test_fields_become_arguments(
    kind: str, annotation: str | None, text: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    parameter = Parameter("x", kind, False, None, annotation)
    assert signed_arguments([parameter], {"p:x": [text]}) == (args, kwargs)


def test_a_field_that_is_no_number_is_refused() -> None:
    with pytest.raises(Problem, match="is no int"):
        signed_arguments([Parameter("x", "any", True, None, "int")], {"p:x": ["seven"]})


# Lists


def test_ticked_tasks_are_changed_and_the_page_says_how_many(world: World, ui: Browser) -> None:
    ids = [world.submit() for _ in range(3)]
    world.succeed()
    sent = ui.send("/do/tasks", ids=ids, action="cancel", back="/tasks?state=queued")
    assert (sent.status, sent.header("Location")) == (303, "/tasks?state=queued")
    page = ui.page("/tasks?state=queued")
    assert "2 cancelled; 1 could not be." in page.text
    assert "2 cancelled" not in ui.page("/tasks").text


def test_all_that_match_become_an_operation_with_a_page(world: World, ui: Browser) -> None:
    for i in range(3):
        world.submit("mail" if i else "work")
    sent = ui.send("/do/tasks", all="1", name="mail", state="queued", action="cancel")
    place = sent.header("Location") or ""
    assert place.startswith("/operations/")
    wait_until(lambda: "finished" in ui.page(place).text, what="the operation ends")
    assert "<b>2</b> changed" in ui.page(place).text
    assert ui.send("/do/tasks", all="1", action="cancel").status == 400


@pytest.mark.parametrize("fields", [{}, {"action": "explode"}, {"action": ""}])
def test_a_form_without_an_action_is_refused(ui: Browser, fields: dict[str, str]) -> None:
    assert ui.send("/do/tasks", ids="default/x", **fields).status == 400


def test_nothing_selected_is_said(ui: Browser) -> None:
    ui.send("/do/tasks", action="cancel", back="/tasks")
    assert "Nothing was selected." in ui.page("/tasks").text


@pytest.mark.parametrize("back", ["//evil.example/x", "https://evil.example", "/\t/evil", ""])
def test_a_form_leads_back_to_our_own_pages_only(ui: Browser, back: str) -> None:
    assert ui.send("/do/tasks", action="cancel", back=back).header("Location") == "/"

"""Who may see and change, whence a change may come, and under which paths the UI works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bottle
import pytest
from servers import Server
from ui_world import Answer, Browser, World, basic, browse

from skedulr.errors import ConfigError
from skedulr.ui.api import Api
from skedulr.ui.forms import Forms
from skedulr.ui.pages import NAVIGATION
from skedulr.ui.security import Credentials, User, read_users
from skedulr.ui.site import Site

USERS = [User("ann", "s3cret"), User("vic", "looks", "viewer")]
PAGES = tuple(path for _, path, _ in NAVIGATION)


def _posts(*sources: Any) -> tuple[str, ...]:
    """Where anything can be posted to, as the routes are: a new one is checked without a word."""
    routes = bottle.Bottle()
    for source in sources:
        source.install(routes)
    places = {one.rule: one for one in routes.routes if one.method == "POST"}
    return tuple(re.sub("<.*?>", "x", one.replace("<pool>", "default")) for one in places)


_SITE = Site(lambda: pytest.fail("nothing is asked"))
CHANGES = _posts(Api(_SITE))
FORMS = tuple(
    path for path in _posts(Forms(_SITE, None, None))  # type: ignore[arg-type]
    if path not in ("/login", "/logout")
)


@pytest.fixture
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture
def ui(world: World) -> Browser:
    return browse(world)


@pytest.fixture
def guarded(world: World) -> Browser:
    return browse(world, auth=USERS)


# Who


@pytest.mark.parametrize(
    "path", [*PAGES, "/terms", "/api/stats", "/api/events", "/api/openapi.json"]
)
def test_nothing_is_shown_without_credentials(guarded: Browser, path: str) -> None:
    assert guarded.page(path).status == 401
    assert guarded.get(path, **basic("ann", "wrong")).status == 401
    assert guarded.get(path, **basic("nobody", "s3cret")).status == 401


@pytest.mark.parametrize("path", [*CHANGES, *FORMS])
def test_nothing_is_changed_without_credentials(guarded: Browser, path: str) -> None:
    assert guarded.post(path).status == 401


@pytest.mark.parametrize("text", [
    "", "Basic", "Basic !!!", "Basic YW5u", "Bearer s3cret", "basic YW5uOnMzY3JldA", "Basic /w==",
])
def test_a_torn_authorization_header_is_a_missing_one(guarded: Browser, text: str) -> None:
    answer = guarded.get("/api/stats", HTTP_AUTHORIZATION=text)
    assert answer.status == 401
    assert answer.header("WWW-Authenticate", ) == 'Basic realm="Skedulr", charset="UTF-8"'


def test_probes_need_neither_credentials_nor_a_known_host(guarded: Browser) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert guarded.get(path, HTTP_HOST="10.1.2.3").status == 200
        assert guarded.ask("HEAD", path).body == b""


def test_an_admin_changes_and_a_viewer_only_looks(guarded: Browser) -> None:
    task = {"name": "work"}
    assert guarded.post("/api/tasks", task, **basic("ann", "s3cret")).status == 201
    assert guarded.get("/api/stats", **basic("vic", "looks")).status == 200
    for path in (*CHANGES, *FORMS):
        refused = guarded.post(path, task, **basic("vic", "looks"))
        assert (refused.status, refused.code) == (403, "read_only"), path
    assert "/do/" not in guarded.page("/", **basic("vic", "looks")).text


def test_read_only_binds_everybody(world: World) -> None:
    for ui in (browse(world, read_only=True), browse(world, read_only=True, auth=lambda e: True)):
        assert ui.get("/api/stats").status == 200
        assert {ui.post(path).status for path in (*CHANGES, *FORMS)} == {403}
    both = browse(world, read_only=True, auth=USERS)
    assert both.post("/api/pause", **basic("ann", "s3cret")).status == 403


@pytest.mark.parametrize(("allowed", "status"), [(True, 200), (False, 401), (None, 401), (1, 401)])
def test_the_host_application_decides_where_it_gives_a_function(
    world: World, allowed: Any, status: int
) -> None:
    assert browse(world, auth=lambda environ: allowed).get("/api/stats").status == status


def test_a_session_opens_by_the_form_and_ends(guarded: Browser) -> None:
    asked = guarded.page("/tasks?state=dead")
    assert asked.status == 401
    assert 'name="password"' in asked.text
    assert _log_in(guarded, "ann", "wrong", "/").status == 401
    opened = _log_in(guarded, "ann", "s3cret", "/tasks?state=dead")
    assert (opened.status, opened.header("Location")) == (303, "/tasks?state=dead")
    flags = opened.header("Set-Cookie") or ""
    assert "HttpOnly" in flags
    assert "SameSite=Lax" in flags
    assert guarded.page("/tasks?state=dead").status == 200
    assert guarded.send("/do/pools/pause").status == 303
    guarded.send("/logout")
    assert guarded.page("/").status == 401


def _log_in(ui: Browser, user: str, password: str, back: str) -> Answer:
    return ui.send("/login", page="/login", user=user, password=password, back=back)


@pytest.mark.parametrize("back", [
    "//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)",
    "/\r\nX-Evil: 1", "",
])
def test_a_login_leads_to_our_own_pages_only(guarded: Browser, back: str) -> None:
    assert _log_in(guarded, "ann", "s3cret", back).header("Location") == "/"


def test_sessions_are_refused_when_forged_old_or_of_another_password() -> None:
    users = Credentials(USERS, lambda: b"key")
    ann = users.check("ann", "s3cret")
    assert ann is not None
    text = users.open_session(ann, 1000.0)
    assert users.resume(text, 1001.0) == ann
    assert users.resume(text, 1000.0 + 13 * 3600) is None
    assert users.resume(text[:-1] + ("0" if text[-1] != "0" else "1"), 1001.0) is None
    assert Credentials(USERS, lambda: b"other").resume(text, 1001.0) is None
    changed = Credentials([User("ann", "new")], lambda: b"key")
    assert changed.resume(text, 1001.0) is None
    demoted = Credentials([User("ann", "s3cret", "viewer")], lambda: b"key")
    assert demoted.resume(text, 1001.0) is None
    for torn in ("", ".", "..", "a.b.c", "é.1.é", text.replace(".", "..")):
        assert users.resume(torn, 1001.0) is None


def test_masters_of_one_namespace_know_each_others_sessions(world: World, guarded: Browser) -> None:
    _log_in(guarded, "ann", "s3cret", "/")
    other = browse(World(world.client.config.url), auth=USERS)
    other.cookies = dict(guarded.cookies)
    assert other.page("/").status == 200


def test_users_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# ours\nann:a:b\n\nviewer vic:looks\nadmin bob:x\n")
    assert read_users("eve:y", str(file)) == [
        User("eve", "y"), User("ann", "a:b"), User("vic", "looks", "viewer"), User("bob", "x"),
    ]
    assert "a:b" not in repr(User("ann", "a:b"))
    for text, said in (("ann\n", "line 1"), ("# none\n", "no line")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_users(None, str(file))
    with pytest.raises(ConfigError, match="missing"):
        read_users(None, str(tmp_path / "missing"))


# Whence


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:8725", "localhost.evil.example", "127.0.0.1.evil.example", "",
    "localhost:8725@evil.example", "localhost/..", "a b", "192.168.0.7:8725",
])
def test_a_foreign_host_is_misdirected(ui: Browser, host: str) -> None:
    ui.host = host
    assert (ui.get("/api/stats").status, ui.get("/api/stats").code) == (421, "unknown_host")
    assert ui.post("/api/pause").status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8725", "127.0.0.1:9", "[::1]:8725"])
def test_this_machines_own_names_are_known(ui: Browser, host: str) -> None:
    ui.host = host
    assert ui.get("/api/stats").status == 200


def test_more_names_are_given_and_addresses_are_known_beyond_loopback(world: World) -> None:
    ui = browse(world, auth=USERS, loopback=False, hosts=["jobs.example.com"])
    for host, status in (
        ("jobs.example.com", 200), ("Jobs.Example.com:443", 200), ("10.1.2.3:8725", 200),
        ("evil.example", 421),
    ):
        ui.host = host
        assert ui.get("/api/stats", **basic("ann", "s3cret")).status == status, host


@pytest.mark.parametrize("path", [*CHANGES, *FORMS])
@pytest.mark.parametrize("environ", [
    {"HTTP_ORIGIN": "https://evil.example"}, {"HTTP_ORIGIN": "null"},
    {"HTTP_ORIGIN": "http://127.0.0.1:3000"}, {"HTTP_ORIGIN": "http://127.0.0.1:8725.evil.example"},
    {"HTTP_SEC_FETCH_SITE": "cross-site"}, {"HTTP_SEC_FETCH_SITE": "same-site"},
])
def test_another_sites_page_changes_nothing(
    ui: Browser, path: str, environ: dict[str, str]
) -> None:
    refused = ui.post(path, {"name": "x"}, **environ)
    assert (refused.status, refused.code) == (403, "foreign_origin")


def test_our_own_pages_and_programs_change(world: World, ui: Browser) -> None:
    own = {"HTTP_ORIGIN": "http://127.0.0.1:8725", "HTTP_SEC_FETCH_SITE": "same-origin"}
    assert ui.post("/api/tasks", {"name": "x"}, **own).status == 201
    assert ui.post("/api/tasks", {"name": "x"}).status == 201
    proxied = browse(world, hosts=["jobs.example.com"])
    assert proxied.post(
        "/api/tasks", {"name": "x"}, HTTP_ORIGIN="https://jobs.example.com"
    ).status == 201


@pytest.mark.parametrize("kind", [
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
    "application/jsonp", "text/plain; application/json",
])
@pytest.mark.parametrize("path", CHANGES)
def test_only_json_changes_through_the_interface(
    world: World, ui: Browser, path: str, kind: str
) -> None:
    world.submit("work", id="x")
    assert ui.ask("POST", path, b'{"name":"x"}', CONTENT_TYPE=kind).status == 415


@pytest.mark.parametrize("path", FORMS)
def test_a_form_without_its_token_is_refused(ui: Browser, path: str) -> None:
    for body in (b"", b"token=", b"token=" + b"0" * 64, b"token=%ff"):
        answer = ui.ask("POST", path, body, CONTENT_TYPE="application/x-www-form-urlencoded")
        assert answer.status in (400, 403), body
    assert ui.post(path).status == 415


def test_a_token_is_one_users_own(guarded: Browser) -> None:
    page = guarded.page("/submit", **basic("ann", "s3cret")).text
    token = re.search(r'name="token" value="(\w+)"', page)
    other = [*USERS, User("bob", "b")]
    assert token
    for user, status in (("ann", 303), ("bob", 403)):
        password = {one.name: one.password for one in other}[user]
        ui = Browser(guarded.app) if user == "ann" else guarded
        answer = ui.ask(
            "POST", "/do/pools/pause", f"token={token[1]}".encode(), **basic(user, password),
            CONTENT_TYPE="application/x-www-form-urlencoded",
        )
        assert answer.status == (status if user == "ann" else 401)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_refused_and_no_header_overrides_one(ui: Browser, method: str) -> None:
    assert ui.ask(method, "/api/tasks/default/x/cancel").status == 405
    assert ui.get("/api/pause", HTTP_X_HTTP_METHOD_OVERRIDE="POST").status == 405
    assert ui.get("/api/pause?_method=POST").status == 405


@pytest.mark.parametrize("path", [
    *PAGES, "/api/stats", "/nothing", "/static/skedulr.css", "/livez", "/api/tasks/default/x",
])
def test_every_answer_carries_the_policy(ui: Browser, path: str) -> None:
    answer = ui.page(path)
    policy = answer.header("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.header("X-Content-Type-Options") == "nosniff"
    assert answer.header("Access-Control-Allow-Origin") is None


def test_no_page_has_anything_inline_or_from_elsewhere(world: World, ui: Browser) -> None:
    id = world.submit()
    for path in (*PAGES, f"/tasks/{id}", "/nothing"):
        text = ui.page(path).text
        inline = r"<script(?![^>]* src=)|<[^>]*\s(?:on\w+|style)=|javascript:"
        assert not re.search(inline, text), path
        assert not re.search(r'(src|href|action)="(https?:)?//', text), path


def test_static_files_are_compressed_kept_and_the_only_ones_served(ui: Browser) -> None:
    page = ui.page("/").text
    address = re.search(r'href="(/static/skedulr\.css\?v=\w+)"', page)
    assert address
    plain, packed = ui.get(address[1]), ui.get(address[1], HTTP_ACCEPT_ENCODING="gzip")
    assert "immutable" in (plain.header("Cache-Control") or "")
    assert packed.header("Content-Encoding") == "gzip"
    assert len(packed.body) < len(plain.body)
    tag = plain.header("ETag")
    assert ui.get("/static/skedulr.css", HTTP_IF_NONE_MATCH=tag).status == 304
    for path in ("/static/../app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/"):
        assert ui.get(path).status == 404


# Under which paths


def kept(prefix: str) -> dict[str, str]:
    """A proxy that passes the path on as it is."""
    return {"PATH_PREFIX": prefix}


@pytest.mark.parametrize("prefix", ["/jobs", "/a/b"])
@pytest.mark.parametrize("way", ["kept", "stripped", "script_name"])
def test_links_forms_and_redirects_stay_below_the_prefix(
    world: World, prefix: str, way: str
) -> None:
    mounted = "" if way == "script_name" else prefix
    ui = browse(world, prefix=mounted if way != "script_name" else "")
    shape: Callable[[str], tuple[str, dict[str, str]]] = {
        "kept": lambda path: (prefix + path, {}),
        "stripped": lambda path: (path, {}),
        "script_name": lambda path: (path, {"SCRIPT_NAME": prefix}),
    }[way]
    for path in (*PAGES, "/nothing"):
        route, environ = shape(path)
        text = ui.page(route, **environ).text
        for address in re.findall(r'(?:src|href|action|formaction)="([^"#]+)"', text):
            assert address.startswith(prefix + "/"), (path, address)
        assert f'data-root="{prefix}"' in text
    route, environ = shape("/submit")
    token = re.search(r'name="token" value="(\w+)"', ui.page(route, **environ).text)
    route, environ = shape("/do/submit")
    world.submit()
    made = ui.ask(
        "POST", route, f"token={token[1] if token else ''}&name=work".encode(),
        CONTENT_TYPE="application/x-www-form-urlencoded", **environ,
    )
    assert (made.header("Location") or "").startswith(f"{prefix}/tasks/default/")
    assert f"Path={prefix}" in (made.header("Set-Cookie") or "")


def test_the_prefix_works_with_and_without_a_slash_at_its_end(world: World) -> None:
    ui = browse(world, prefix="/jobs/")
    assert ui.page("/jobs").status == ui.page("/jobs/").status == 200
    assert ui.get("/jobs/api/stats").status == 200
    assert ui.get("/jobsapi/stats").status == 404


def test_forwarded_headers_of_strangers_change_nothing(ui: Browser) -> None:
    text = ui.page("/", HTTP_X_FORWARDED_PREFIX="/evil", HTTP_X_FORWARDED_HOST="evil.example",
                   HTTP_X_SCRIPT_NAME="/evil").text
    assert "evil" not in text

"""Settings: pool specs, the order of the sources, what is refused, which Redis is meant."""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skedulr.config import (
    DEFAULT_URL,
    HEADINGS,
    SETTINGS,
    Config,
    PoolSpec,
    add_flags,
    check_url,
    describe,
    find_redis,
    hide_password,
    load,
    parse_pools,
    socket_in,
)
from skedulr.errors import ConfigError


def loaded(
    directory: Path = Path("/nowhere"),
    flags: dict[str, Any] | None = None,
    configured: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    file: Path | None = None,
) -> Config:
    return load(flags or {}, configured or {}, environ or {}, directory, file)


def refusal(**sources: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(**sources)
    text = str(caught.value)
    assert "\n" not in text
    return text


# ---------------------------------------------------------------------------------- pool specs


def test_pool_specs_are_read_with_bounds_processes_and_transport() -> None:
    assert parse_pools("cpu=4x2,default=2..32,events=8:streams") == (
        PoolSpec("cpu", 4, 4, processes=2),
        PoolSpec("default", 2, 32),
        PoolSpec("events", 8, 8, transport="streams"),
    )


def test_only_a_pool_with_two_bounds_is_tuned() -> None:
    assert [pool.tuned for pool in parse_pools("a=4,b=2..32,c=7..7")] == [False, True, False]


def test_blanks_and_line_ends_between_pools_do_not_matter() -> None:
    assert parse_pools("\n  a = 1,\n  b = 2 .. 3 x 4 : streams\n") == parse_pools(
        "a=1,b=2..3x4:streams"
    )


specs = st.builds(
    lambda name, low, more, processes, transport: PoolSpec(
        name, low, min(10_000, low + more), processes, transport
    ),
    st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
    st.integers(1, 10_000),
    st.integers(0, 10_000),
    st.integers(1, 1_000),
    st.sampled_from(["zset", "streams"]),
)


@given(st.lists(specs, min_size=1, max_size=5, unique_by=lambda spec: spec.name))
def test_the_text_of_pool_specs_reads_back_as_the_same_specs(pools: list[PoolSpec]) -> None:
    assert parse_pools(",".join(str(pool) for pool in pools)) == tuple(pools)


@given(st.text(max_size=30))
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    try:
        assert parse_pools(text)
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "named", "why"),
    [
        ("", "item 1 ''", "no pool in it"),
        ("a=1,,b=2", "item 2 ''", "no pool in it"),
        ("a=1,cpu", "item 2 'cpu'", "not a pool spec"),
        ("cpu=", "item 1 'cpu='", "not a pool spec"),
        ("cpu=four", "item 1 'cpu=four'", "not a pool spec"),
        ("cpu=-1", "item 1 'cpu=-1'", "not a pool spec"),
        ("cpu=1.5", "item 1 'cpu=1.5'", "not a pool spec"),
        ("cpu=\u0661", "item 1", "not a pool spec"),
        ("cpu=4x", "item 1 'cpu=4x'", "not a pool spec"),
        ("=4", "item 1 '=4'", "name is 1 to 64"),
        ("c pu=4", "item 1 'c pu=4'", "name is 1 to 64"),
        ("c:pu=4", "item 1 'c:pu=4'", "name is 1 to 64"),
        ("c" * 65 + "=4", "item 1", "name is 1 to 64"),
        ("cpu=0", "item 1 'cpu=0'", "1 to 10,000 workers"),
        ("cpu=10001", "item 1 'cpu=10001'", "1 to 10,000 workers"),
        ("cpu=" + "9" * 5000, "item 1", "1 to 10,000 workers"),
        ("cpu=1..10001", "item 1 'cpu=1..10001'", "1 to 10,000 workers"),
        ("cpu=0..3", "item 1 'cpu=0..3'", "1 to 10,000 workers"),
        ("cpu=9..3", "item 1 'cpu=9..3'", "MIN 9 is over MAX 3"),
        ("cpu=1x0", "item 1 'cpu=1x0'", "1 to 1,000 processes"),
        ("cpu=1x1001", "item 1 'cpu=1x1001'", "1 to 1,000 processes"),
        ("cpu=1:stream", "item 1 'cpu=1:stream'", "did you mean 'streams'"),
        ("a=1,b=2,a=3", "item 3 'a=3'", "pool 'a' is given twice"),
    ],
)
def test_a_bad_pool_spec_names_the_item_its_place_and_the_right_form(
    text: str, named: str, why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pools(text)
    message = str(caught.value)
    assert named in message
    assert why in message
    assert "NAME=WORKERS or NAME=MIN..MAX" in message
    assert len(message) < 400


# ----------------------------------------------------------------------------------- the table


def test_the_table_has_a_row_for_every_field_and_its_default() -> None:
    names = [one.name for one in fields(Config) if one.name != "sources"]
    assert sorted(setting.name for setting in SETTINGS) == sorted(names)
    assert [setting.default for setting in SETTINGS] == [
        getattr(Config(), setting.name) for setting in SETTINGS
    ]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_what_describe_shows_of_a_default_can_be_given_back(setting: Any) -> None:
    shown = {name: text for name, text, _ in describe(Config())}[setting.name]
    if shown:
        config = loaded(environ={setting.variable: shown})
        assert getattr(config, setting.name) == setting.default


def test_one_spelling_serves_flag_environment_and_file(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\nhang_timeout = 7\n")
    parser = argparse.ArgumentParser()
    add_flags(parser)
    flags = vars(parser.parse_args(["--hang-timeout", "7"]))
    configs = [
        loaded(flags=flags),
        loaded(environ={"SKEDULR_HANG_TIMEOUT": "7"}),
        loaded(tmp_path),
    ]
    assert [config.hang_timeout for config in configs] == [7.0, 7.0, 7.0]
    assert [config.sources["hang_timeout"] for config in configs] == [
        "flag --hang-timeout",
        "environment SKEDULR_HANG_TIMEOUT",
        "file setup.cfg",
    ]


def test_aging_is_for_all_pools_or_by_name_from_flag_environment_and_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\naging = bulk=600, 30\n")
    parser = argparse.ArgumentParser()
    add_flags(parser)
    for config in (
        loaded(flags=vars(parser.parse_args(["--aging", "bulk=600,30"]))),
        loaded(environ={"SKEDULR_AGING": "30,bulk=600"}),
        loaded(tmp_path),
    ):
        assert (config.aging_of("bulk"), config.aging_of("mail")) == (600, 30)
    assert loaded(configured={"aging": 2.5}).aging_of("mail") == 2.5
    only = loaded(environ={"SKEDULR_AGING": "bulk=600"})
    assert (only.aging_of("bulk"), only.aging_of("mail")) == (600, 0)
    assert loaded().aging_of("mail") == 0


@pytest.mark.parametrize("value", ["soon", "-1", "bulk=", "=3", "bulk=-3", "a b=3", "nan", "inf"])
def test_aging_that_is_no_time_is_refused_with_what_it_takes(value: str) -> None:
    said = refusal(environ={"SKEDULR_AGING": value})
    assert "SKEDULR_AGING" in said
    assert "seconds for all pools, or for some, as in 30 or bulk=600,mail=30" in said


def test_flags_that_were_not_given_leave_the_defaults() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert loaded(flags=vars(parser.parse_args([]))) == Config()


def test_flags_of_a_few_settings_can_be_chosen() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, ["redis", "namespace"])
    assert vars(parser.parse_args(["--redis", "unix:///s"])) == {
        "redis": "unix:///s",
        "namespace": None,
    }


def test_a_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().lease = 3  # type: ignore[misc]


def test_the_repr_of_a_config_shows_no_secret() -> None:
    config = Config(redis="redis://:secret@db", ui_auth="ann:secret")
    assert "secret" not in repr(config)


# ----------------------------------------------------------------------------------- the order


def test_the_strongest_source_wins_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\nlease=11\ngrace=11\nmax_tasks=11\nmax_rss=11\n")
    config = loaded(
        tmp_path,
        flags={"lease": "14"},
        configured={"lease": 13, "grace": 13},
        environ={"SKEDULR_LEASE": "12", "SKEDULR_GRACE": "12", "SKEDULR_MAX_TASKS": "12"},
    )
    names = ["lease", "grace", "max_tasks", "max_rss", "hang_timeout"]
    assert [getattr(config, name) for name in names] == [14, 13, 12, 11, 60]
    assert [config.sources[name] for name in names] == [
        "flag --lease",
        "configure()",
        "environment SKEDULR_MAX_TASKS",
        "file setup.cfg",
        "default",
    ]


def test_pyproject_wins_over_setup_cfg(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.skedulr]\nlease = 20\n")
    (tmp_path / "setup.cfg").write_text("[skedulr]\nlease = 30\ngrace = 30\n")
    config = loaded(tmp_path)
    assert (config.lease, config.grace) == (20, 25)


def test_setup_cfg_is_read_when_pyproject_has_no_section(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = x\n[skedulr]\nlease = 30\n")
    assert loaded(tmp_path).lease == 30


def test_the_file_is_looked_for_in_the_directory_only(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\nlease = 30\n")
    (tmp_path / "below").mkdir()
    assert loaded(tmp_path / "below").lease == 15


def test_a_file_without_a_section_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = x\n")
    assert loaded(tmp_path) == Config()


def test_setup_cfg_is_read_without_interpolation_and_without_the_default_section(
    tmp_path: Path,
) -> None:
    (tmp_path / "setup.cfg").write_text(
        "[DEFAULT]\nlease = 3\n[skedulr]\nredis = redis://:p%40%(x)s@db/1\n"
    )
    config = loaded(tmp_path)
    assert config.redis == "redis://:p%40%(x)s@db/1"
    assert config.lease == 15


def test_toml_values_keep_their_types(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.skedulr]\nlease = 20.5\nlog_json = true\nui = false\ntarget_wait = [2, 6]\n"
        'modules = ["a.b", "c:app"]\nno_patch = ["ssl"]\n'
        '[tool.skedulr.pools]\ncritical = 4\ndefault = "2..32"\n'
    )
    config = loaded(tmp_path)
    assert (config.lease, config.log_json, config.ui) == (20.5, True, None)
    assert (config.target_wait, config.modules) == ((2.0, 6.0), ("a.b", "c:app"))
    assert config.no_patch == ("ssl",)
    assert config.pools == parse_pools("critical=4,default=2..32")


def test_a_file_can_be_named_by_flag_or_environment(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[skedulr]\nlease = 20\n")
    (tmp_path / "setup.cfg").write_text("[skedulr]\ngrace = 1\n")
    named = loaded(tmp_path, file=own)
    assert (named.lease, named.grace) == (20, 25)
    assert named.sources["lease"] == "file own.toml"
    assert loaded(environ={"SKEDULR_CONFIG": str(own)}).sources["lease"] == f"file {own}"


def test_a_named_file_must_exist_and_have_the_section(tmp_path: Path) -> None:
    assert "no configuration file" in refusal(file=tmp_path / "missing.cfg")
    (tmp_path / "a.cfg").write_text("[other]\n")
    (tmp_path / "a.toml").write_text("")
    assert "no section [skedulr]" in refusal(file=tmp_path / "a.cfg")
    assert "no section [tool.skedulr]" in refusal(file=tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pyproject.toml", b"[tool.skedulr\n"),
        ("pyproject.toml", b"\xff\xfe"),
        ("setup.cfg", b"no section\n"),
        ("setup.cfg", b"[skedulr]\nlease = 1\nlease = 2\n"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert f"{name} can not be read" in refusal(directory=tmp_path)


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nskedulr = 3\n")
    assert "not a table" in refusal(directory=tmp_path)


def test_empty_variables_and_keys_count_as_not_given(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\ngrace =\n")
    assert loaded(tmp_path, environ={"SKEDULR_LEASE": ""}) == Config()


def test_modules_are_separated_by_commas_blanks_or_lines(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\nmodules =\n    a.b\n    c:app.x\n")
    assert loaded(tmp_path).modules == ("a.b", "c:app.x")
    assert loaded(environ={"SKEDULR_MODULES": "a.b, c d"}).modules == ("a.b", "c", "d")
    assert loaded(flags={"modules": ["a", "b"]}).sources["modules"] == "the command line"


def test_configure_takes_native_values() -> None:
    config = loaded(
        configured={
            "url": "redis://db",
            "lease": timedelta(minutes=1),
            "pools": [PoolSpec("a", 1, 2)],
            "ui": None,
        }
    )
    assert (config.redis, config.lease) == ("redis://db", 60.0)
    assert config.pools == (PoolSpec("a", 1, 2),)
    assert config.ui == "127.0.0.1:8725"


# ------------------------------------------------------------------------- switches that exclude


def test_no_ui_takes_the_ui_away_whatever_weaker_sources_say() -> None:
    config = loaded(flags={"no_ui": True}, environ={"SKEDULR_UI": "127.0.0.1:9000"})
    assert config.ui is None
    assert config.ui_address is None
    assert config.sources["ui"] == "flag --no-ui"


def test_a_stronger_address_of_the_ui_wins_over_no_ui() -> None:
    config = loaded(flags={"ui": "127.0.0.1:9000"}, environ={"SKEDULR_NO_UI": "1"})
    assert config.ui_address == ("127.0.0.1", 9000)
    assert loaded(environ={"SKEDULR_NO_UI": "no"}).ui == "127.0.0.1:8725"


def test_ui_and_no_ui_from_one_source_are_refused() -> None:
    assert "give one of the two" in refusal(flags={"ui": "127.0.0.1:1", "no_ui": True})


def test_embedded_and_redis_exclude_each_other_and_the_stronger_source_wins() -> None:
    url = {"SKEDULR_REDIS_URL": "redis://db"}
    config = loaded(flags={"embedded": True}, environ=url)
    assert (config.embedded, config.redis) == (True, None)
    config = loaded(flags={"redis": "redis://flag"}, environ={"SKEDULR_EMBEDDED": "1"})
    assert (config.embedded, config.redis) == (False, "redis://flag")
    assert "give one of the two" in refusal(environ={**url, "SKEDULR_EMBEDDED": "1"})


# ----------------------------------------------------------------------------- what is refused


def test_unknown_names_are_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\nhang-timeout = 3\n")
    assert refusal(directory=tmp_path) == (
        "unknown key in file setup.cfg 'hang-timeout' (did you mean 'hang_timeout'?)"
    )
    assert refusal(environ={"SKEDULR_LEAES": "3"}) == (
        "unknown variable 'SKEDULR_LEAES' (did you mean 'SKEDULR_LEASE'?)"
    )
    assert "did you mean 'namespace'" in refusal(configured={"namespac": "x"})


def test_variables_that_kubernetes_makes_for_a_service_are_left_alone() -> None:
    links = {
        "SKEDULR_SERVICE_HOST": "10.0.0.1",
        "SKEDULR_SERVICE_PORT": "8725",
        "SKEDULR_SERVICE_PORT_HTTP": "8725",
        "SKEDULR_PORT": "tcp://10.0.0.1:8725",
        "SKEDULR_PORT_8725_TCP": "tcp://10.0.0.1:8725",
        "SKEDULR_PORT_8725_TCP_ADDR": "10.0.0.1",
        "SKEDULR_REDIS_SERVICE_HOST": "10.0.0.2",
        "SKEDULR_REDIS_PORT_6379_TCP_PROTO": "tcp",
    }
    assert loaded(environ=links) == Config()


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("lease", "0.5", "1 or more"),
        ("lease", "soon", "1 or more"),
        ("lease", "nan", "1 or more"),
        ("lease", "inf", "1 or more"),
        ("lease", True, "1 or more"),
        ("lease", [1], "1 or more"),
        ("grace", "-1", "0 or more"),
        ("hang_timeout", "0", "above 0"),
        ("max_tasks", "0", "1 or more"),
        ("max_tasks", 1.5, "1 or more"),
        ("max_rss", "1GB", "1 or more"),
        ("keep_dead", "-1", "0 or more"),
        ("namespace", "a b", "letters"),
        ("namespace", "a{b}", "letters"),
        ("namespace", "", "letters"),
        ("target_wait", "5..1", "LOW..HIGH"),
        ("target_wait", "5", "LOW..HIGH"),
        ("target_wait", "1..2..3", "LOW..HIGH"),
        ("target_wait", 5, "LOW..HIGH"),
        ("log_level", "inf", "did you mean 'info'"),
        ("no_patch", "sockt", "did you mean 'socket'"),
        ("log_json", "perhaps", "yes or no"),
        ("ui", "8725", "HOST:PORT"),
        ("ui", ":8725", "HOST:PORT"),
        ("ui", "localhost:70000", "HOST:PORT"),
        ("ui", "http://localhost:80", "HOST:PORT"),
        ("ui_prefix", "jobs", "a path such as /jobs"),
        ("modules", "examples/quickstart.py", "write the module, 'examples.quickstart'"),
        ("modules", "quick-start", "not a module's name"),
        ("pools", "cpu", "NAME=WORKERS"),
        ("pools", 4, "NAME=WORKERS"),
    ],
)
def test_a_value_that_can_not_be_used_says_where_it_was_and_what_would_do(
    name: str, value: Any, takes: str
) -> None:
    text = refusal(flags={name: value})
    assert takes in text
    assert text.startswith("the command line" if name == "modules" else "flag --")


def test_a_refusal_does_not_repeat_a_secret() -> None:
    assert "secret" not in refusal(flags={"ui_auth": ":secret"})
    assert "secret" not in refusal(environ={"SKEDULR_REDIS_URL": "rediz://:secret@db"})


def test_log_levels_are_read_in_any_case() -> None:
    assert loaded(environ={"SKEDULR_LOG_LEVEL": "DEBUG"}).log_level == "debug"


@pytest.mark.parametrize(
    ("ui", "address", "loopback"),
    [
        ("127.0.0.1:8725", ("127.0.0.1", 8725), True),
        ("127.9.0.1:0", ("127.9.0.1", 0), True),
        ("localhost:1", ("localhost", 1), True),
        ("[::1]:80", ("::1", 80), True),
        ("[::]:80", ("::", 80), False),
        ("0.0.0.0:80", ("0.0.0.0", 80), False),
        ("127.0.0.1.evil.test:80", ("127.0.0.1.evil.test", 80), False),
    ],
)
def test_the_address_of_the_ui_is_told_apart(
    ui: str, address: tuple[str, int], loopback: bool
) -> None:
    config = loaded(flags={"ui": ui})
    assert (config.ui_address, config.ui_loopback) == (address, loopback)


# ---------------------------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://localhost",
        "redis:///3",
        "rediss://ann:pw@db.test:6380/0?ssl_ca_certs=/ca.pem",
        "redis://:p%2Fw%40@[::1]:6379/1",
        "unix:///tmp/redis.sock",
        "unix://ann:pw@/tmp/redis.sock?db=1",
        "redis+sentinel://ann:pw@h1:26379,h2,h3:26379/primary/0",
        "rediss+sentinel://h1/primary",
        "redis+cluster://h1:7000,h2:7001",
        "rediss+cluster://h1:7000/0",
    ],
)
def test_urls_that_name_a_server_are_taken_as_they_are(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:6379", "no scheme"),
        ("", "no scheme"),
        ("rediz://db", "did you mean 'redis'"),
        ("http://db", "no scheme 'http'"),
        ("redis+cluter://h1", "did you mean 'redis+cluster'"),
        ("redis://db:port", "'port' is not a port"),
        ("redis://db:99999", "'99999' is not a port"),
        ("redis://db:0", "'0' is not a port"),
        ("redis://db/first", "'first' is not a database number"),
        ("redis://:a/b@db", "not quoted"),
        ("redis://h1,h2/0", "several hosts"),
        ("unix://", "no path"),
        ("redis+sentinel://h1,h2", "no service"),
        ("redis+sentinel:///primary", "an empty host"),
        ("redis+sentinel://h1,h2/primary/x", "'x' is not a database number"),
        ("redis+cluster://h1,,h2", "an empty host"),
        ("redis+cluster://h1/3", "database 0 alone"),
    ],
)
def test_urls_that_can_not_name_a_server_say_what_is_wrong(url: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_url(url)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://db:6379/0", "redis://db:6379/0"),
        ("redis://ann@db", "redis://ann@db"),
        ("redis://ann:secret@db/0", "redis://ann:***@db/0"),
        ("redis://:secret@db/0", "redis://:***@db/0"),
        ("redis://ann:sec@r/et@db/0", "redis://ann:***@db/0"),
        ("ann:secret@db", "ann:***@db"),
        ("redis+sentinel://u:secret@h1:1,h2:2/s/0", "redis+sentinel://u:***@h1:1,h2:2/s/0"),
        (
            "redis://db?password=secret&sentinel_password=secret&db=1",
            "redis://db?password=***&sentinel_password=***&db=1",
        ),
        ("unix:///a@b/redis.sock", "unix:///a@b/redis.sock"),
    ],
)
def test_passwords_are_hidden_where_an_address_is_shown(url: str, shown: str) -> None:
    assert hide_password(url) == shown


# --------------------------------------------------------------------------------- which Redis


def make_socket(directory: Path, held: bool = True) -> Any:
    """A folder as an embedded server leaves it; ``held``: as one that runs."""
    directory.mkdir(parents=True)
    (directory / "redis.sock").touch()
    lock = (directory / "server.lock").open("w")
    if held:
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@pytest.mark.parametrize(
    ("sources", "url", "how"),
    [
        ({"flags": {"redis": "redis://flag"}}, "redis://flag", "from --redis"),
        ({"configured": {"url": "redis://code"}}, "redis://code", "from configure()"),
        (
            {"environ": {"SKEDULR_REDIS_URL": "redis://env"}},
            "redis://env",
            "from SKEDULR_REDIS_URL",
        ),
        ({"environ": {"SKEDULR_REDIS": "redis://env"}}, "redis://env", "from SKEDULR_REDIS"),
    ],
)
def test_an_address_that_was_given_says_by_whom(
    tmp_path: Path, sources: dict[str, Any], url: str, how: str
) -> None:
    with make_socket(tmp_path / ".skedulr"):
        address = find_redis(loaded(**sources), {}, tmp_path)
    assert (address.url, address.how, address.explicit) == (url, how, True)


def test_an_address_in_the_file_or_in_a_secret_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\nredis = redis://file\n")
    (tmp_path / "url").write_text("redis://:pw@mounted\n")
    address = find_redis(loaded(tmp_path), {}, tmp_path)
    assert (address.url, address.how) == ("redis://file", "from setup.cfg")
    environ = {"SKEDULR_REDIS_URL_FILE": str(tmp_path / "url")}
    address = find_redis(loaded(tmp_path, environ=environ), {}, tmp_path)
    assert (address.url, address.how) == ("redis://:pw@mounted", "from SKEDULR_REDIS_URL_FILE")
    assert str(address) == "redis://:***@mounted (from SKEDULR_REDIS_URL_FILE)"


def test_a_secret_file_must_be_readable_filled_and_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    variable = "SKEDULR_REDIS_URL_FILE"
    assert "can not be read" in refusal(environ={variable: str(tmp_path / "missing")})
    assert "is empty" in refusal(environ={variable: str(tmp_path / "empty")})
    (tmp_path / "url").write_text("redis://db")
    both = {variable: str(tmp_path / "url"), "SKEDULR_REDIS_URL": "redis://db"}
    assert "give one of the two" in refusal(environ=both)


def test_the_embedded_server_is_found_here_and_from_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with make_socket(tmp_path / ".skedulr"):
        here = find_redis(loaded(), {}, tmp_path)
        below = find_redis(loaded(), {}, tmp_path / "a" / "b")
    assert here.url == below.url == f"unix://{tmp_path}/.skedulr/redis.sock"
    assert here.how == "found embedded server in .skedulr"
    assert below.how == "found embedded server in ../../.skedulr"
    assert not here.explicit


def test_a_socket_whose_server_was_killed_is_passed_over(tmp_path: Path) -> None:
    with make_socket(tmp_path / ".skedulr", held=False):
        address = find_redis(loaded(), {}, tmp_path)
    assert (address.url, address.how) == (DEFAULT_URL, "the default address")
    assert not address.explicit


def test_another_users_socket_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_socket(tmp_path / ".skedulr"):
        assert socket_in(tmp_path / ".skedulr") is not None
        owner = (tmp_path / ".skedulr" / "redis.sock").stat().st_uid
        monkeypatch.setattr("os.geteuid", lambda: owner + 1)
        assert socket_in(tmp_path / ".skedulr") is None


def test_a_path_too_long_for_a_socket_is_found_by_its_short_one(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30) / ".skedulr"
    with make_socket(home):
        assert socket_in(home) is None
        short = tmp_path / "short"
        short.touch()
        (home / "socket-path").write_text(str(short))
        assert socket_in(home) == short


def test_blanks_in_the_path_are_quoted_in_the_url(tmp_path: Path) -> None:
    with make_socket(tmp_path / "a b%" / ".skedulr"):
        address = find_redis(loaded(), {}, tmp_path / "a b%")
    assert address.url == f"unix://{tmp_path}/a%20b%25/.skedulr/redis.sock"


def test_embedded_means_its_own_folder_whether_it_runs_or_not(tmp_path: Path) -> None:
    config = loaded(flags={"embedded": True, "embedded_dir": "data"})
    address = find_redis(config, {}, tmp_path)
    assert address.url == f"unix://{tmp_path}/data/redis.sock"
    assert address.explicit


def test_a_config_made_by_hand_has_the_environment_looked_up(tmp_path: Path) -> None:
    address = find_redis(Config(), {"SKEDULR_REDIS_URL": "redis://env"}, tmp_path)
    assert (address.url, address.how) == ("redis://env", "from SKEDULR_REDIS_URL")


# ------------------------------------------------------------------------------------- showing


def test_describe_shows_each_value_its_source_and_no_password() -> None:
    config = loaded(
        flags={"redis": "redis://:secret@db/0", "pools": "a=1x2,b=1..4"},
        environ={"SKEDULR_UI_AUTH": "ann:secret", "SKEDULR_LEASE": "20", "SKEDULR_NO_UI": "1"},
    )
    shown = {name: (value, source) for name, value, source in describe(config)}
    assert len(shown) == len(SETTINGS)
    assert shown["redis"] == ("redis://:***@db/0", "flag --redis")
    assert shown["ui_auth"] == ("ann:***", "environment SKEDULR_UI_AUTH")
    assert shown["pools"] == ("a=1x2,b=1..4", "flag --pools")
    assert shown["lease"] == ("20", "environment SKEDULR_LEASE")
    assert shown["ui"] == ("none", "environment SKEDULR_NO_UI")
    assert shown["target_wait"] == ("1..5", "default")
    assert "secret" not in str(shown)


def test_importing_config_loads_nothing_that_patching_must_precede() -> None:
    code = (
        "import sys, skedulr.config;"
        "print([m for m in ('gevent', 'redis', 'ssl', 'socket', 'threading', 'subprocess')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_flag_stands_under_one_heading_of_the_help() -> None:
    placed = [name for _, names in HEADINGS for name in names]
    assert sorted(placed) == sorted(one.name for one in SETTINGS if one.name != "modules")

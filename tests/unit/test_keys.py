"""Names, ids and keys: what they may be made of, and that no two installations can meet."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from skedulr import ConfigError
from skedulr.keys import PER_OWNER, SINGLE, PoolKeys, SpaceKeys, check_name, split_id
from skedulr.redis_scripts import names, script


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 64, "..", "-"])
def test_a_name_is_made_of_letters_digits_and_three_signs(name: str) -> None:
    assert check_name("pool", name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "a b", "a:b", "a{b", "a}b", "ü", "a\n", "a/b", None, 3]
)
def test_another_name_is_refused_naming_its_kind(name: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check_name("namespace", name)
    assert f"namespace name {name!r}" in str(caught.value)


@pytest.mark.parametrize(("id", "parts"), [
    ("critical/a1", ("critical", "a1")),
    ("a1", ("default", "a1")),
    ("a.b-c/x@2026-08-01T09:00:00+00:00", ("a.b-c", "x@2026-08-01T09:00:00+00:00")),
])
def test_an_id_is_pool_and_uid(id: str, parts: tuple[str, str]) -> None:
    assert split_id(id) == parts


@pytest.mark.parametrize("id", ["", "/a", "a/", "a/b/c", "p/ a", "p/-a", "p q/a", "a\n"])
def test_another_id_is_refused(id: str) -> None:
    with pytest.raises(ConfigError, match="is not usable"):
        split_id(id)


def test_every_key_of_a_pool_is_in_one_slot() -> None:
    keys = PoolKeys("skedulr", "default")
    every = [*(getattr(keys, name) for name in SINGLE), *keys.of(PER_OWNER, "node:0")]
    assert all(key.startswith("{skedulr:default}:") for key in every)
    assert len(set(every)) == len(every)


def test_the_keys_of_two_installations_never_meet() -> None:
    spaces = ["a", "a.b", "a-b", "ab", "a.b.c"]
    pools = ["a", "b", "pools", "control", "a.b"]
    seen: set[str] = set()
    for space in spaces:
        own = {value for name, value in vars(SpaceKeys(space)).items() if name != "_prefix"}
        own |= {SpaceKeys(space).control, SpaceKeys(space).ended("x")}
        assert not own & seen
        seen |= own
    for space, pool in product(spaces, pools):
        keys = PoolKeys(space, pool)
        own = {getattr(keys, name) for name in SINGLE} | set(keys.of(PER_OWNER, "o"))
        assert not own & seen
        seen |= own


def test_the_attributes_are_the_names_of_the_keys() -> None:
    assert set(PoolKeys.__annotations__) == set(SINGLE)


def test_of_gives_the_keys_in_the_order_asked() -> None:
    keys = PoolKeys("n", "p")
    asked = keys.of(("tasks", "own", "ready"), "me")
    assert asked == ["{n:p}:tasks", "{n:p}:own:me", "{n:p}:ready"]


def test_every_script_takes_keys_that_exist() -> None:
    for name in names():
        keys = set(script(name).keys)
        # A pool's or the namespace's: never both, they lie in two slots.
        assert keys <= {*SINGLE, *PER_OWNER} or keys <= vars(SpaceKeys("n")).keys(), name


@pytest.mark.parametrize(("namespace", "pool"), [("a b", "p"), ("n", "a:b"), ("", "p")])
def test_keys_of_unusable_names_are_not_made(namespace: str, pool: str) -> None:
    with pytest.raises(ConfigError):
        PoolKeys(namespace, pool)

"""What skedulr-master refuses before it starts anything."""

from __future__ import annotations

import sys

import pytest

from skedulr import __main__ as commands
from skedulr import launch


@pytest.mark.parametrize(("arguments", "said"), [
    (["--preload", "--reload"], "--preload loads code once, --reload again and again: give one"),
    (["--pools", "events=8:stream"], "there is no transport 'stream'"),
    (["--codec", "sign:no_such_file"], "the keys in no_such_file can not be read: No such file"),
    (["--pool", "default=4"], "there is no option --pool (did you mean '--pools'?); see"),
], ids=["preload and reload", "transport", "keys", "flag"])
def test_settings_that_can_not_be_are_refused(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert launch.run(arguments) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [commands.main, commands.master])
def test_windows_is_refused_in_words(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    assert command() == 2
    assert "on Windows use the Windows Subsystem for Linux" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "environment", "file", "expected"), [
    ([], {}, "", ()),
    (["--no-patch", "ssl,dns"], {}, "no_patch = thread", ("ssl", "dns")),
    (["--no-patch=ssl"], {"SKEDULR_NO_PATCH": "dns"}, "", ("ssl",)),
    ([], {"SKEDULR_NO_PATCH": "dns"}, "no_patch = thread", ("dns",)),
    ([], {}, "no_patch = thread", ("thread",)),
    (["--no-patch", "nonsense"], {}, "", ()),
], ids=["nothing", "flag", "flag with =", "environment", "file", "wrong: said later"])
def test_what_is_not_patched_is_found_where_any_setting_is(
    arguments, environment, file, expected, tmp_path, monkeypatch
):
    (tmp_path / "setup.cfg").write_text(f"[skedulr]\n{file}\n")
    monkeypatch.chdir(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert commands._not_patched(arguments) == expected


@pytest.mark.parametrize(("flags", "environment", "warned"), [
    (["--redis", "redis://:pw@h/0"], {}, "--redis shows its password"),
    (["--redis", "redis://h/0"], {}, ""),
    ([], {"SKEDULR_REDIS_URL": "redis://:pw@h/0"}, ""),
    (["--ui-auth", "ann:pw"], {}, "--ui-auth shows its password"),
])
def test_a_password_that_others_can_see_in_a_list_of_processes_is_warned_of(
    flags, environment, warned, monkeypatch, caplog, tmp_path
):
    monkeypatch.chdir(tmp_path)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    with caplog.at_level("WARNING"):
        launch._warn_of_passwords(launch._settings(flags))
    assert (warned in caplog.text) if warned else not caplog.text
    assert "pw" not in caplog.text

"""The tasks' modules: what is said when one is not there."""

from __future__ import annotations

import sys

import pytest

from skedulr.errors import ConfigError
from skedulr.pools.modules import load_modules, print_error


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "letters_here.py").write_text("")
    (tmp_path / "needs_more.py").write_text("import letters_heer\n")
    yield tmp_path
    sys.modules.pop("letters_here", None)


@pytest.mark.parametrize(("module", "said"), [
    ("letters_heer", "did you mean 'letters_here'?"),
    ("quite_another", "(--chdir gives another folder)"),
])
def test_a_module_that_is_not_there_says_where_it_was_looked_for(folder, module, said, capsys):
    with pytest.raises(ModuleNotFoundError) as caught:
        load_modules([module])
    print_error(caught.value)
    assert said in capsys.readouterr().err


def test_a_module_that_lacks_another_one_is_no_typo_of_the_command(folder, capsys):
    with pytest.raises(ModuleNotFoundError) as caught:
        load_modules(["needs_more"])
    print_error(caught.value)
    assert "--chdir" not in capsys.readouterr().err


@pytest.mark.parametrize(("line", "said"), [
    ("@skedulr.task(prioritty=3)", "unknown option 'prioritty' (did you mean 'priority'?)"),
    ("@skedulr.task(queue='mail')", "unknown option 'queue' (here it is 'pool')"),
    ("@skedulr.task(timeout=-3)", "timeout=-3 is not usable: a number of seconds"),
    ("@skedulr.cron('0 9 * * mon-frx')\n@skedulr.task", "did you mean 'fri'?"),
    ("@skedulr.every(0)\n@skedulr.task", "every=0"),
])
def test_what_we_refuse_ends_at_the_line_of_the_user(folder, line, said, capsys):
    (folder / "refused.py").write_text(f"import skedulr\n\n{line}\ndef work():\n    pass\n")
    with pytest.raises(ConfigError) as caught:
        load_modules(["refused"])
    print_error(caught.value.with_traceback(caught.tb.tb_next))  # without this test's own
    printed = capsys.readouterr().err
    assert said in printed.splitlines()[-1]
    assert printed.count("File ") == 1, printed
    assert "refused.py" in printed and line.splitlines()[0] in printed


def test_a_fault_of_ours_is_shown_with_its_frames(folder, capsys):
    (folder / "fault.py").write_text("from skedulr.errors import nearest\nnearest(None, ['a'])\n")
    with pytest.raises(TypeError) as caught:
        load_modules(["fault"])
    print_error(caught.value.with_traceback(caught.tb.tb_next))
    assert "errors.py" in capsys.readouterr().err

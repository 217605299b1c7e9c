"""The tasks' modules: what is said when one is not there."""

from __future__ import annotations

import sys

import pytest

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

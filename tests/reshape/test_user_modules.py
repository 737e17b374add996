"""Modules of users: where they are looked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reshape.user_modules import user_module


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; what a test imports is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [name for name in sys.path if name])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_a_file_in_the_current_folder(folder: Path) -> None:
    (folder / "mine_here.py").write_text("value = 7\n")
    assert user_module("mine_here").value == 7


def test_no_file_in_the_current_folder_hides_an_installed_module(folder: Path) -> None:
    (folder / "tomllib.py").write_text("value = 7\n")
    sys.modules.pop("tomllib", None)
    assert not hasattr(user_module("tomllib"), "value")
    with pytest.raises(ModuleNotFoundError):
        user_module("nowhere")
    sys.modules.pop("tomllib", None)
    assert not hasattr(user_module("tomllib"), "value"), "also when the folder is on the path"


def test_what_a_module_lacks_is_named(folder: Path) -> None:
    (folder / "mine_lacking.py").write_text("import nowhere_at_all\n")
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        user_module("mine_lacking")


def test_a_current_folder_that_was_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        user_module("nowhere")

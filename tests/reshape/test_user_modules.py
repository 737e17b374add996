"""Modules of users: where they are looked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reshape.doctor.checks import check_names
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "\nimport nowhere_at_all",
            "ModuleNotFoundError: No module named 'nowhere_at_all' (FILE:2)",
        ),
        ("\nx = y", "NameError: name 'y' is not defined (FILE:2)"),
        ("\nraise SystemExit(0)", "SystemExit: 0 (FILE:2)"),
        ("\ndef f()\n", "SyntaxError: expected ':' (mine.py, line 2)"),
    ],
)
def test_what_is_wrong_in_a_module_is_named_with_its_line(
    folder: Path, text: str, says: str
) -> None:
    file = folder / "mine.py"
    file.write_text(text)
    with pytest.raises(ImportError) as error:
        user_module("mine")
    assert str(error.value) == says.replace("FILE", str(file))
    assert not isinstance(error.value, ModuleNotFoundError), "this module is there"


def test_a_current_folder_that_was_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        user_module("nowhere")


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def write(folder: Path, name: str) -> Path:
    """Write a module, or a package if the name ends with a slash."""
    path = folder / f"{name}__init__.py" if name.endswith("/") else folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    return path


@pytest.mark.parametrize("name", ["redistribution.py", "redistribution/"])
def test_a_program_beside_a_file_that_hides_ours(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name)
    (tmp_path / "program.py").write_text("import reshape; reshape.application()")
    done = python(tmp_path, "program.py")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"reshape.errors.ReshapeError: {file} hides the package 'redistribution'"
    )


@pytest.mark.parametrize("name", ["redistribution.py", "scheduler/", "simulator.py"])
def test_a_command_in_a_folder_with_a_file_that_hides_ours(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name)
    done = python(tmp_path, "-m", "reshape", "queue", "--help")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"reshape: error: {file} hides the package")
    assert done.stderr.count("\n") == 1


def test_other_files_do_not_matter(tmp_path: Path) -> None:
    """Nor do folders without modules, and names that a program of this kind does not use."""
    (tmp_path / "redistribution").mkdir()
    write(tmp_path, "scheduler/")
    (tmp_path / "program.py").write_text("import reshape; reshape.application()")
    assert python(tmp_path, "program.py").returncode == 0


def test_doctor_names_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_names().status == "ok"
    file = write(tmp_path, "apps/")
    check = check_names()
    assert (check.status, check.result) == ("fault", str(file))

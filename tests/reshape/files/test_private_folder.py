"""Shared memory that another user has prepared is refused; needs root, to become another user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from local_parts import part

from reshape.data import segments
from reshape.data.segments import RankMemory
from reshape.errors import ReshapeError
from reshape.files.job_folder import RESTART_FILE, has_restart_point
from reshape.files.private_folder import open_file, open_folder
from reshape.resizing.restart_point import RestartPoint

OTHER_USER = 65534
EMPTY = {"loop": 0, "before": 0, "signature": (), "state": b"\x80\x04}.", "cuts": {}, "places": ()}
POINT = RestartPoint(epoch=1, iteration=2, size=1, **EMPTY)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A name in memory where every user may create files."""
    path = Path("/dev/shm") / f"reshape-private-{uuid4().hex}"
    yield path
    if path.is_symlink() or path.is_file():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def as_other_user(statement: str) -> None:
    """Run a Python statement in a process of another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    code = f"import os; os.setgid({OTHER_USER}); os.setuid({OTHER_USER}); {statement}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd="/")


def check_refused(folder: Path, why: str) -> None:
    memory = RankMemory(folder, 1, 0)
    with pytest.raises(ReshapeError, match=why):
        segments.create(memory, *part("A", (4,), "f8"))
    with pytest.raises(ReshapeError, match=why):
        segments.reopen(memory, *part("A", (4,), "f8"))
    with pytest.raises(ReshapeError, match=why):
        segments.view(memory, *part("A", (4,), "f8"))
    with pytest.raises(ReshapeError, match=why):
        POINT.write(folder)
    with pytest.raises(ReshapeError, match=why):
        RestartPoint.read(folder)
    assert not has_restart_point(folder)


def test_folder_of_another_user_is_refused(folder: Path) -> None:
    as_other_user(f"os.mkdir({str(folder)!r}, 0o700)")
    check_refused(folder, f"{folder} belongs to user {OTHER_USER}, expected user 0")


def test_link_of_another_user_is_refused(folder: Path, tmp_path: Path) -> None:
    """The link leads to a folder that belongs to this user."""
    as_other_user(f"os.symlink({str(tmp_path)!r}, {str(folder)!r})")
    check_refused(folder, f"{folder} is a symbolic link or a file")
    assert list(tmp_path.iterdir()) == []


def test_link_of_the_same_user_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.symlink_to(tmp_path)
    check_refused(folder, f"{folder} is a symbolic link or a file")


def test_folder_that_others_may_enter_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    check_refused(folder, "has mode 0755, expected no rights for group and others")


def test_parent_of_another_user_is_refused(folder: Path) -> None:
    """The owner of the parent can put the folder aside, whatever its own mode is."""
    as_other_user(f"os.mkdir({str(folder)!r}); os.chmod({str(folder)!r}, 0o1777)")
    (folder / "job-1").mkdir(mode=0o700)
    check_refused(
        folder / "job-1", f"{folder} belongs to user {OTHER_USER}, expected root or user 0"
    )


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_parent_that_others_may_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    (folder / "job-1").mkdir(mode=0o700)
    check_refused(folder / "job-1", f"{folder} has mode {mode:04o}, .* 'chmod [+]t {folder}'")


def test_another_user_cannot_put_a_folder_aside_in_an_accepted_parent(folder: Path) -> None:
    """The parent has the sticky bit, as ``/dev/shm`` has."""
    folder.mkdir()
    folder.chmod(0o1777)
    own, aside = folder / "job-1", folder / "aside"
    POINT.write(own)
    with pytest.raises(subprocess.CalledProcessError):
        as_other_user(f"os.rename({str(own)!r}, {str(aside)!r})")
    assert RestartPoint.read(own) == POINT
    folder.chmod(0o777)  # without the bit the other user succeeds, so it is refused
    as_other_user(f"os.rename({str(own)!r}, {str(aside)!r}); os.mkdir({str(own)!r}, 0o700)")
    check_refused(own, f"{folder} has mode 0777")


def test_folder_below_a_missing_parent_is_created_for_this_user_alone(folder: Path) -> None:
    POINT.write(folder / "job-1")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert has_restart_point(folder / "job-1")


def test_files_of_another_user_are_refused(folder: Path) -> None:
    """Another user has written files into the folder while it was open to all users."""
    folder.mkdir()
    folder.chmod(0o777)
    as_other_user(
        f"[os.close(os.open(os.path.join({str(folder)!r}, name), os.O_CREAT, 0o600)) "
        f"for name in ({RESTART_FILE!r}, 'A.e1.r0')]"
    )
    folder.chmod(0o700)
    with pytest.raises(ReshapeError, match=f"{RESTART_FILE} belongs to user {OTHER_USER}"):
        RestartPoint.read(folder)
    with pytest.raises(ReshapeError, match=rf"A\.e1\.r0 belongs to user {OTHER_USER}"):
        segments.reopen(RankMemory(folder, 1, 0), *part("A", (4,), "f8"))


def test_files_that_are_links_or_pipes_are_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    (tmp_path / "target").touch(mode=0o600)
    (folder / "link").symlink_to(tmp_path / "target")
    os.mkfifo(folder / "pipe", 0o600)
    with open_folder(folder) as directory:
        with pytest.raises(OSError, match="symbolic links"):
            open_file(directory, "link", os.O_RDONLY)
        with pytest.raises(ReshapeError, match="pipe is not a regular file"):
            open_file(directory, "pipe", os.O_RDONLY)

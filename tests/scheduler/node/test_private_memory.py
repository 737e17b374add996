"""Folders in directories that all users can write to, attacked by a second user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape.errors import ReshapeError
from reshape.files.private_folder import make_private
from scheduler.node.directory import ServiceDirectory

OTHER_USER = 65534
needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can start a process of another user"
)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that all users can write to, as /dev/shm is."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="reshape-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def as_other_user(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shutil.which("python3", path="/usr/bin:/bin") or sys.executable, "-c", code]
        + [str(word) for word in arguments],
        user=OTHER_USER,
        group=OTHER_USER,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_folder_is_created_for_its_user_alone_and_found_again(public: Path) -> None:
    before = os.umask(0)
    try:
        make_private(public / "own")
    finally:
        os.umask(before)
    assert (public / "own").stat().st_mode & 0o7777 == 0o700
    make_private(public / "own")


def test_a_folder_with_access_for_others_is_refused(public: Path) -> None:
    (public / "open").mkdir()
    (public / "open").chmod(0o770)
    with pytest.raises(ReshapeError, match=r"open has mode 0770, expected no rights"):
        make_private(public / "open")


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_symbolic_link_is_refused(public: Path, target: str) -> None:
    (public / "elsewhere").mkdir(mode=0o700)
    (public / "link").symlink_to(public / target)
    with pytest.raises(ReshapeError, match=r"link is a symbolic link or a file"):
        make_private(public / "link")


def test_a_file_is_refused(public: Path) -> None:
    (public / "file").touch()
    with pytest.raises(ReshapeError, match="file is a symbolic link or a file"):
        make_private(public / "file")


@needs_root
def test_a_folder_of_another_user_is_refused(public: Path) -> None:
    done = as_other_user("import os, sys; os.mkdir(sys.argv[1], 0o700)", public / "trap")
    assert done.returncode == 0, done.stderr
    with pytest.raises(ReshapeError, match=r"trap belongs to user 65534"):
        make_private(public / "trap")


@needs_root
def test_a_memory_folder_that_another_user_has_created_is_replaced(tmp_path: Path) -> None:
    place = ServiceDirectory(tmp_path / "service")
    place.create()
    taken = place.memory
    done = as_other_user("import os, sys; os.mkdir(sys.argv[1], 0o777)", taken)
    assert done.returncode == 0, done.stderr
    done = as_other_user("import os, sys; os.mkdir(sys.argv[1], 0o777)", f"{taken}-0")
    assert done.returncode == 0, done.stderr
    try:
        place.make_job_folder(1)
        own = place.memory
        assert own.name.startswith(f"{taken.name}-")
        assert len(own.name) == len(taken.name) + 17
        assert own.stat().st_mode & 0o7777 == 0o700
        taken.rmdir()
        assert ServiceDirectory(place.path).memory == own, "its jobs may restart from there"
        shutil.rmtree(own)
        assert place.memory == taken
    finally:
        for folder in taken.parent.glob(f"{taken.name}*"):
            shutil.rmtree(folder)


@needs_root
def test_another_user_can_neither_read_nor_list_nor_connect(public: Path) -> None:
    place = ServiceDirectory(public / ("long-name-" * 12))  # the socket gets a folder of its own
    place.create()
    place.make_job_folder(1)
    socket = Path(place.endpoint.removeprefix("ipc://"))
    (place.shm(1) / "data").write_text("secret")
    code = """
import socket, sys
try:
    if sys.argv[1] == "connect":
        socket.socket(socket.AF_UNIX).connect(sys.argv[2])
    else:
        open(sys.argv[2]).read()
except PermissionError:
    sys.exit(42)
"""
    try:
        assert socket.parent.parent == Path(tempfile.gettempdir())
        for action, path in (
            ("connect", socket),
            ("read", place.shm(1) / "data"),
            ("read", place.path / "secret"),
        ):
            assert as_other_user(code, action, path).returncode == 42, path
    finally:
        shutil.rmtree(place.memory)
        shutil.rmtree(socket.parent)


def test_names_outside_of_the_directory_cannot_be_predicted(tmp_path: Path) -> None:
    names = set()
    for number in range(2):
        place = ServiceDirectory(tmp_path / str(number) / ("long-name-" * 12))
        place.create()
        names |= {place.memory.name, Path(place.endpoint).parent.name}
        assert place.memory == ServiceDirectory(place.path).memory
        Path(place.endpoint.removeprefix("ipc://")).parent.rmdir()
    assert len(names) == 4
    assert all(len(name) == len("reshape-") + 16 for name in names)

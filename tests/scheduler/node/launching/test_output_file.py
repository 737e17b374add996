"""Output files in folders in which other users may write, and what is no regular file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from scheduler.node.launching.output_file import open_output

FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")


def write(path: Path | str) -> None:
    descriptor = open_output(str(path), FLAGS, 0o600, [])
    os.write(descriptor, b"x")
    os.close(descriptor)


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder like /tmp, of this user."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@needs_root
@pytest.mark.parametrize("mode", [0o1777, 0o777], ids=["sticky", "open"])
def test_a_link_of_another_user_where_all_may_write_is_not_followed(
    public: Path, tmp_path: Path, mode: int
) -> None:
    public.chmod(mode)
    (public / "out").symlink_to(tmp_path / "target")
    os.lchown(public / "out", STRANGER, STRANGER)
    (public / "mine").symlink_to("out")
    for name in ("out", "mine"):
        with pytest.raises(OSError, match="it is a symbolic link of user 65534 in a folder"):
            write(public / name)
    assert not (tmp_path / "target").exists()


@needs_root
def test_a_file_of_another_user_where_all_may_write_is_not_written(public: Path) -> None:
    (public / "out").touch()
    os.chown(public / "out", STRANGER, STRANGER)
    with pytest.raises(OSError, match="it is a file of user 65534 in a folder"):
        write(public / "out")
    public.chmod(0o755)  # no other user could have put it there
    write(public / "out")


@needs_root
def test_what_the_owner_of_the_folder_has_put_there_is_used(public: Path, tmp_path: Path) -> None:
    os.chown(public, STRANGER, STRANGER)
    (public / "out").symlink_to(tmp_path / "target")
    os.lchown(public / "out", STRANGER, STRANGER)
    write(public / "out")
    assert (tmp_path / "target").read_text() == "x"


def test_own_links_are_followed_over_several_folders(public: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (public / "first").symlink_to("../work/second")
    (tmp_path / "work" / "second").symlink_to("third")
    write(public / "first")
    assert (tmp_path / "work" / "third").read_text() == "x"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links") as raised:
        write(tmp_path / "loop")
    assert raised.value.errno == errno.ELOOP


@pytest.mark.parametrize(
    "path", ["/proc/self/mem", "/dev/stdout", "/dev/fd/1", "/sys/kernel/notes", "/dev/zero"]
)
def test_what_only_looks_like_a_file_is_refused(path: str) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        write(path)


def test_a_pipe_is_refused_and_dev_null_is_used(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write(tmp_path / "pipe")
    write("/dev/null")
    with pytest.raises(IsADirectoryError):
        write(tmp_path)

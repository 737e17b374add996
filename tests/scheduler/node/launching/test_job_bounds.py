"""Paths of jobs: folders of the service or of other users, and what is no regular file."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from scheduler.node.launching.job_bounds import (
    folder_around,
    folder_named,
    folder_with,
    open_output,
)

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
    (tmp_path / "links").mkdir()
    (public / "first").symlink_to("../links/second")
    (tmp_path / "links" / "second").symlink_to("third")
    write(public / "first")
    assert (tmp_path / "links" / "third").read_text() == "x"
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


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "service"
    (folder / "access").mkdir(parents=True)
    (folder / "secret").write_text("secret")
    return folder


def test_links_and_names_that_do_not_exist_yet_lead_into_a_folder(own: Path) -> None:
    work = own.parent / "links"
    work.mkdir()
    (work / "file").symlink_to(own / "secret")
    (work / "folder").symlink_to(own / "access")
    (work / "new").symlink_to(own / "new.txt")  # creating it would create the other
    inside = ["file", "folder", "folder/a/b.txt", "new", "../service/x", str(own), f"{own}//x/.."]
    for name in inside:
        assert folder_around(os.path.join(work, name), [str(own)]) == str(own), name
    for name in ("x", "a/b.txt", "../service.txt", "../servic", "folder2"):
        assert folder_around(os.path.join(work, name), [str(own)]) == "", name
    assert folder_around(str(own), [str(own.parent / "not there")]) == ""


def test_a_folder_that_is_mounted_elsewhere_is_the_same(own: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    mount = ["mount", "--bind", str(own), str(other)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a bind mount needs root")
    try:
        assert folder_around(str(other / "access" / "x"), [str(own)]) == str(own)
    finally:
        subprocess.run(["umount", str(other)], check=True)


def test_a_file_under_another_name_is_found(own: Path, tmp_path: Path) -> None:
    (own / "access" / "admin.json").write_text("key")
    os.link(own / "access" / "admin.json", tmp_path / "hard")
    os.link(tmp_path / "hard", tmp_path / "harder")
    (tmp_path / "plain").write_text("")
    os.link(tmp_path / "plain", tmp_path / "second")
    for name, folder in (("hard", str(own)), ("harder", str(own)), ("plain", "")):
        with (tmp_path / name).open() as file:
            assert folder_with(file.fileno(), [str(own)]) == folder, name


def test_names_are_compared_by_their_parts() -> None:
    folders = ["/a/other", "/a/service"]
    assert folder_named("/a/b/../service/x", folders) == "/a/service"
    assert folder_named("/a/service", folders) == "/a/service"
    assert folder_named("/a/service2", folders) == ""
    assert folder_named("/x", ["/"]) == "/"

"""Which paths lead into a folder of the service."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scheduler.node.launching.own_folders import folder_around, folder_named, folder_with


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "service"
    (folder / "access").mkdir(parents=True)
    (folder / "secret").write_text("secret")
    return folder


def test_links_and_names_that_do_not_exist_yet_lead_into_a_folder(own: Path) -> None:
    work = own.parent / "work"
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

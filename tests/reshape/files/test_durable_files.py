"""Small files that are written durably, in one step."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reshape.files.durable_files import remove_drafts, write_durably

#: A process that is killed in the given call of `os` while it replaces a file.
DIES = """
import os, signal, sys
from pathlib import Path
from reshape.files.durable_files import write_durably
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[1], die)
write_durably(Path(sys.argv[2]), b"new")
"""


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_durably(path, b"new", 0o700)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_after_an_error_the_old_file_remains(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_durably(path, b"new")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("step", ["fchmod", "fsync", "replace"])
def test_a_writer_that_is_killed_leaves_the_old_file(tmp_path: Path, step: str) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")
    command = [sys.executable, "-c", DIES, step, path]
    assert subprocess.run(command, check=False, timeout=30).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    (draft,) = (each for each in tmp_path.iterdir() if each != path)
    written = draft.stat().st_mtime
    remove_drafts(tmp_path, written - 1.0)
    assert draft.exists()
    remove_drafts(tmp_path, written + 1.0)
    assert os.listdir(tmp_path) == ["file"]

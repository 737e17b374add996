"""Files of MPI libraries that killed processes have left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.node import leftovers, processes
from scheduler.node.leftovers import MpiFiles
from scheduler.node.processes import ProcessTree

#: Is not asked for anything here.
START: Any = None
#: Maps a file without keeping it open, until a line is read.
MAPS = """
import mmap, sys
with open(sys.argv[1], sys.argv[2] + "b") as file:
    mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev/shm."""
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path)
    monkeypatch.setattr(leftovers, "REMOVAL_S", 0.0)
    return tmp_path


@pytest.fixture
def create(memory: Path) -> Callable[[str], None]:
    """Create a file of a name; the time of the next one differs from it."""

    def create(name: str) -> None:
        (memory / name).touch()
        time.sleep(2 * leftovers.TIME_RESOLUTION_S)

    return create


def test_a_record_that_could_not_be_written_is_written_later(
    memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when shared memory was full."""
    files, tree = MpiFiles(memory / "later" / "record"), ProcessTree({}, START)
    tree.mpi_files = {"mpich_shm_left_0"}
    files.note([tree])
    files.note([tree])
    assert caplog.text.count("cannot write") == 1
    (memory / "later").mkdir()
    files.note([tree])
    assert "mpich_shm_left_0" in (memory / "later" / "record").read_text()


def test_files_that_appeared_after_the_start_are_removed(
    memory: Path, create: Callable[[str], None]
) -> None:
    files = MpiFiles(memory / "record")
    create("mpich_shm_before_0")
    tree = ProcessTree({}, START)
    create("mpich_shm_after_0")
    create("other")
    files.remove_later(tree)
    time.sleep(0.01)
    files.remove_due()
    assert set(os.listdir(memory)) == {"mpich_shm_before_0", "other"}


def test_processes_that_have_started_leave_only_files_after_the_last_look(
    memory: Path, create: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MPI_START_S", 0.0)
    files, tree = MpiFiles(memory / "record"), ProcessTree({}, START)
    create("mpich_shm_before_0")
    tree.looked_at = time.time()
    create("mpich_shm_after_0")
    files.remove_later(tree)
    time.sleep(0.01)
    files.remove_due()
    assert set(os.listdir(memory)) == {"mpich_shm_before_0"}


def test_the_next_agent_removes_what_was_recorded_and_what_appeared_after_that(
    memory: Path, create: Callable[[str], None]
) -> None:
    create("mpich_shm_foreign_0")
    create("mpich_shm_mapped_0")
    tree = ProcessTree({}, START, mpi_files={"mpich_shm_mapped_0"})
    MpiFiles(memory / "record").note([tree])
    create("ucx_shm_posix_unseen")
    MpiFiles(memory / "record").remove_left()
    assert set(os.listdir(memory)) == {"mpich_shm_foreign_0", "record"}


@pytest.mark.parametrize("access", ["r", "r+"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["visible", "in another pid namespace"])
def test_a_file_that_a_process_maps_stays_until_the_process_ends(
    memory: Path, create: Callable[[str], None], access: str, elsewhere: bool
) -> None:
    if elsewhere and os.getuid() != 0:
        pytest.skip("a pid namespace needs root")
    files, tree = MpiFiles(memory / "record"), ProcessTree({}, START)
    create("mpich_shm_used_0")
    (memory / "mpich_shm_used_0").write_bytes(bytes(4096))
    inside = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"] if elsewhere else []
    words = [*inside, sys.executable, "-c", MAPS, str(memory / "mpich_shm_used_0"), access]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mapped\n"
        files.remove_later(tree)
        time.sleep(0.01)
        files.remove_due()
        assert (memory / "mpich_shm_used_0").exists()
        process.communicate(b"\n", 10)
    files.remove_due()
    assert not (memory / "mpich_shm_used_0").exists()


def test_a_link_is_not_followed(memory: Path, create: Callable[[str], None]) -> None:
    files, tree = MpiFiles(memory / "record"), ProcessTree({}, START)
    create("other")
    (memory / "mpich_shm_link_0").symlink_to(memory / "other")
    files.remove_later(tree)
    time.sleep(0.01)
    files.remove_due()
    assert (memory / "other").exists()


def test_a_record_that_was_cut_off_is_not_fatal(memory: Path) -> None:
    (memory / "record").write_text("mpich_shm_a_0\nunseen-since 17x")
    (memory / "mpich_shm_a_0").touch()
    MpiFiles(memory / "record").remove_left()
    assert os.listdir(memory) == ["record"]

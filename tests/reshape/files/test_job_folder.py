"""Slots of ranks: made by one process each, removed after it, and read by others."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from reshape.files.job_folder import (
    AT,
    PLACE,
    Position,
    Slot,
    is_running,
    read_positions,
    slot_file,
)
from reshape.files.private_folder import make_private

#: A process that takes a slot as the rank of its argument, and keeps it until its input ends.
RANK = """
import sys
from pathlib import Path
from reshape.files.job_folder import Slot
slot = Slot.claim(Path(sys.argv[1]), 1)
slot.enter(0, 7, int(sys.argv[2]))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_private(tmp_path / "job")
    return tmp_path / "job"


def start(folder: Path, rank: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RANK, str(folder), str(rank)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def ended(process: subprocess.Popen[str]) -> None:
    process.communicate("")
    assert process.returncode == 0


def test_processes_that_start_together_have_slots_of_their_own(folder: Path) -> None:
    processes = [start(folder, rank) for rank in range(4)]
    for process in processes:
        begun(process)
    positions = read_positions(folder)
    assert [(p.pid, p.rank, p.loop, p.iteration) for p in positions] == [
        (process.pid, rank, 0, 7) for rank, process in enumerate(processes)
    ]
    ended(processes[2])
    assert [p.rank for p in read_positions(folder)] == [0, 1, 3]
    processes[2] = start(folder, 5)
    begun(processes[2])
    assert [p.rank for p in read_positions(folder)] == [0, 1, 3, 5]
    assert set(os.listdir(folder)) == {slot_file(process.pid) for process in processes}
    for process in processes:
        ended(process)


def test_a_rank_is_in_an_iteration_at_the_point_after_it_or_behind_the_loop(folder: Path) -> None:
    def place() -> Position:
        [position] = read_positions(folder)
        assert (position.pid, position.group, position.rank) == (os.getpid(), 3, 1)
        return position

    slot = Slot.claim(folder, 3)
    assert read_positions(folder) == []  # it has not joined yet
    slot.enter(2, 5, 1)
    assert place()[3:6] == (2, 5, False)
    assert 0 <= place().idle_s < 60
    slot.words[PLACE], slot.words[AT] = 5.5, 0.0
    assert place()[3:6] == (2, 5, True)
    assert place().idle_s > 0
    slot.leave()
    assert place()[3:6] == (2, -1, False)
    slot.free()
    assert read_positions(folder) == []
    slot.enter(0, 0, 0)  # in private memory now
    assert read_positions(folder) == []


@pytest.mark.parametrize("case", ["no folder", "a link"])
def test_without_a_slot_a_rank_computes_all_the_same(folder: Path, case: str) -> None:
    if case == "no folder":
        folder = folder / "file" / "job"
        folder.parent.touch()
    else:
        (folder / slot_file(os.getpid())).symlink_to("/dev/null")
    slot = Slot.claim(folder, 1)
    slot.enter(0, 0, 0)
    slot.leave()
    slot.free()
    assert read_positions(folder) == []


@examples(100)
@given(
    st.binary(max_size=60)
    | st.lists(st.floats(), min_size=5, max_size=5).map(lambda words: struct.pack("5d", *words))
)
def test_whatever_the_file_holds_is_read(tmp_path_factory: pytest.TempPathFactory, data) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.getbasetemp() / "any"
    make_private(folder)
    slot = folder / slot_file(os.getpid())
    slot.write_bytes(data)
    slot.chmod(0o600)
    for position in read_positions(folder):
        assert min(position.rank, position.loop, position.idle_s) >= 0


def test_a_file_that_is_longer_than_a_slot_is_not_read(folder: Path) -> None:
    slot = folder / slot_file(os.getpid())
    slot.touch(0o600)
    os.truncate(slot, 1 << 40)
    assert read_positions(folder) == []


def test_a_process_may_have_a_name_that_is_no_text(folder: Path) -> None:
    process, name = start(folder, 0), Path("/proc/self/comm")
    begun(process)
    own = name.read_bytes().rstrip(b"\n")
    name.write_bytes(b"\xff) Z (")
    try:
        Slot.claim(folder, 1).enter(0, 7, 1)
        assert [position.rank for position in read_positions(folder)] == [0, 1]
        assert is_running(os.getpid())
    finally:
        name.write_bytes(own)
    ended(process)
    assert not is_running(process.pid)

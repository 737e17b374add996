"""Spare memory: what is kept, what is prepared, and what is never used again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_parts import part

from reshape.data import segments, spares
from reshape.data.segments import RankMemory, Segment
from reshape.data.spares import Spares

MIB = 1 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """The name of a folder in shared memory."""
    path = Path("/dev/shm") / f"reshape-spares-{uuid4().hex}"
    yield path
    _remove(path)


def _remove(path: Path) -> None:
    if path.exists():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


def local_part(folder: Path, epoch: int, mib: int, name: str = "A") -> Segment:
    """Data of one rank."""
    return segments.create(RankMemory(folder, epoch, 0), *part(name, (mib * MIB,), "u1"))


def resize(memory: Spares, folder: Path, old: Segment | None, epoch: int, mib: int) -> Segment:
    """Replace a local part as a resize does."""
    new = memory.segment(RankMemory(folder, epoch, 0), *part("A", (mib * MIB,), "u1"))
    new.array[...] = epoch % 256
    if old is not None:
        memory.keep(old)
    memory.settle([new])
    memory.wait()
    return new


def mapped_bytes(segment: Segment) -> int:
    """Bytes of the file of a segment."""
    return 0 if segment.mapping is None else segment.mapping.size


def inode(folder: Path, file: str) -> int:
    """Identity of a file's memory."""
    return (folder / file).stat().st_ino


def test_the_memory_of_a_replaced_segment_serves_the_next_resize(folder: Path) -> None:
    memory = Spares(folder)
    first = local_part(folder, 0, 4)
    before = inode(folder, "A.e0.r0")
    second = resize(memory, folder, first, 1, 2)
    assert inode(folder, "1.A.e0.r0.spare") == before
    third = resize(memory, folder, second, 2, 4)
    assert inode(folder, "A.e2.r0") == before
    assert sorted(os.listdir(folder)) == ["2.A.e1.r0.spare", "A.e2.r0"]
    view = segments.view(RankMemory(folder, 2, 0), *part("A", (4 * MIB,), "u1"))
    assert (view == 2).all()
    assert memory.nbytes == 2 * MIB
    memory.close()
    third.discard()
    assert os.listdir(folder) == []


def test_segments_of_one_array_epoch_and_rank_are_kept_side_by_side(folder: Path) -> None:
    """Particles are packed at each checkpoint, so several times between two resizes."""
    memory = Spares(folder)
    for mib in (4, 2):
        memory.keep(local_part(folder, 0, mib))
    first, second = (
        memory.segment(RankMemory(folder, 1, 0), *part(name, (2 * MIB,), "u1")) for name in "AB"
    )
    first.array[...], second.array[...] = 1, 2
    for name, value in (("A", 1), ("B", 2)):
        view = segments.view(RankMemory(folder, 1, 0), *part(name, (2 * MIB,), "u1"))
        assert (view == value).all()
    assert sorted(os.listdir(folder)) == ["A.e1.r0", "B.e1.r0"]
    memory.close()


def test_memory_that_the_program_still_reads_is_not_written(folder: Path) -> None:
    memory = Spares(folder)
    first = local_part(folder, 0, 2)
    first.array[...] = 7
    stale = first.array[5:9]  # a view is writable even if the array is not any more
    second = resize(memory, folder, first, 1, 2)
    third = resize(memory, folder, second, 2, 2)
    stale[...] = 9
    assert (third.array == 2).all()
    assert stale.tolist() == [9] * 4
    del stale
    fourth = resize(memory, folder, third, 3, 2)
    assert (fourth.array == 3).all()
    memory.close()


def test_expected_memory_is_prepared_without_a_name(folder: Path) -> None:
    memory = Spares(folder)
    memory.expect([3 * MIB, MIB // 2], [])
    memory.wait()
    assert memory.nbytes == 3 * MIB  # what is small is not worth it
    assert os.listdir(folder) == []
    new = resize(memory, folder, None, 1, 3)
    assert memory.nbytes == 0
    assert os.listdir(folder) == ["A.e1.r0"]
    assert (segments.view(RankMemory(folder, 1, 0), *part("A", (3 * MIB,), "u1")) == 1).all()
    new.discard()


def test_what_is_there_is_not_prepared_again(folder: Path) -> None:
    memory = Spares(folder)
    second = resize(memory, folder, local_part(folder, 0, 4), 1, 2)
    memory.expect([4 * MIB], [second])
    memory.wait()
    assert memory.nbytes == 4 * MIB
    memory.expect([2 * MIB, 4 * MIB], [second])
    memory.wait()
    assert memory.nbytes == 6 * MIB
    memory.close()


def test_a_process_that_dies_leaves_no_prepared_memory(folder: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from reshape.data.spares import Spares;"
        f"memory = Spares(Path({str(folder)!r})); memory.expect([1 << 21], []); memory.wait();"
        "assert memory.nbytes == 1 << 21; os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == -9
    assert os.listdir(folder) == []


def test_no_spare_memory_with_a_limit_of_zero(folder: Path) -> None:
    memory = Spares(folder, limit_bytes=0)
    memory.expect([2 * MIB], [])
    new = resize(memory, folder, local_part(folder, 0, 2), 1, 2)
    assert memory.nbytes == 0
    assert os.listdir(folder) == ["A.e1.r0"]
    new.discard()


def test_private_memory_is_not_kept() -> None:
    memory = Spares()
    memory.expect([2 * MIB], [])
    old = segments.create(RankMemory(None, 0, 0), *part("A", (MIB,), "u1"))
    memory.keep(old)
    memory.settle([])
    assert memory.nbytes == 0
    assert not old.array.flags.writeable


def test_no_room_to_prepare_is_no_error(folder: Path) -> None:
    memory = Spares(folder)
    memory.expect([1 << 50], [])
    memory.wait()
    assert memory.nbytes == 0


def test_a_file_that_was_removed_is_replaced(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = Spares(folder)
    second = resize(memory, folder, local_part(folder, 0, 2), 1, 2)
    segments.sweep(folder, keep_epoch=1)
    assert os.listdir(folder) == ["A.e1.r0"]
    third = resize(memory, folder, second, 2, 2)
    assert (third.array == 2).all()
    assert "A.e2.r0" in os.listdir(folder)
    assert not caplog.records, "the array is in shared memory"
    memory.close()


def test_idle_memory_is_given_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Spares(folder)
    new = resize(memory, folder, local_part(folder, 0, 4), 1, 2)
    memory.release_if_idle()
    memory.wait()
    assert memory.nbytes == 4 * MIB
    monkeypatch.setattr(spares, "IDLE_S", -1.0)
    memory.release_if_idle()
    memory.wait()
    assert memory.nbytes == 0
    assert os.listdir(folder) == ["A.e1.r0"]
    new.discard()


@given(
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=8),
    st.none() | st.integers(0, 16),
)
def test_memory_is_bounded_and_contents_are_right(
    sizes: list[tuple[int, bool]], limit: int | None
) -> None:
    """The bound: what the most demanding resize has needed for old and new parts together."""
    folder = Path("/dev/shm") / f"reshape-spares-{uuid4().hex}"
    memory = Spares(folder, None if limit is None else limit * MIB)
    held, most = local_part(folder, 0, 3), 0
    try:
        for epoch, (mib, is_announced) in enumerate(sizes, 1):
            if is_announced:
                memory.expect([mib * MIB], [held])
            before = mapped_bytes(held)
            held = resize(memory, folder, held, epoch, mib)
            assert (held.array == epoch).all()
            after = mapped_bytes(held)
            most = max(most, before + after)
            assert after <= mib * MIB / spares.SMALLEST_FRACTION
            assert memory.nbytes <= max(0, most - after)
            assert limit is None or memory.nbytes <= limit * MIB
            files = sum(os.stat(folder / file).st_size for file in os.listdir(folder))
            assert files <= most
            assert held.mapping is not None
            assert np.shares_memory(held.array, held.mapping.array((1,), "u1", "C"))
    finally:
        memory.close()
        held.discard()
        assert os.listdir(folder) == []
        _remove(folder)

"""Segments, which outlive their processes, and the restart point that refers to them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from local_parts import part

from redistribution.layout import MemoryOrder
from reshape.data import segments
from reshape.data.segments import RankMemory
from reshape.errors import ReshapeError
from reshape.files.job_folder import RESTART_FILE, has_restart_point
from reshape.resizing.restart_point import RestartPoint

EMPTY = {"loop": 0, "before": 0, "signature": (), "state": b"\x80\x04}.", "cuts": {}, "places": ()}
POINT = RestartPoint(epoch=3, iteration=17, size=4, **EMPTY)


@pytest.fixture
def folder() -> Iterator[Path]:
    """The name of a folder in shared memory."""
    path = Path("/dev/shm") / f"reshape-segments-{uuid4().hex}"
    yield path
    if path.exists():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", "<c16", "i1"])
def test_contents_outlive_the_process(folder: Path, order: MemoryOrder, dtype: str) -> None:
    code = (
        "import os, signal, numpy as np; from pathlib import Path;"
        "from reshape.data import segments; from reshape.data.declarations import declare;"
        f"memory = segments.RankMemory(Path({str(folder)!r}), 2, 5);"
        f"A = declare('A', 'replicated', (7, 3), (), {dtype!r}, {order!r});"
        "s = segments.create(memory, A, A.layout(6));"
        "assert not s.array.any(); s.array[...] = np.arange(21).reshape(7, 3);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == -9
    again = segments.reopen(RankMemory(folder, 2, 5), *part("A", (7, 3), dtype, order))
    assert np.array_equal(again.array, np.arange(21).reshape(7, 3).astype(dtype))
    assert again.array.flags.f_contiguous == (order == "F")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "A.e2.r5").stat().st_mode & 0o777 == 0o600


def test_a_new_segment_is_zero_even_if_its_file_exists(folder: Path) -> None:
    old = segments.create(RankMemory(folder, 1, 0), *part("A", (4,), float))
    old.array[:] = 7
    new = segments.create(RankMemory(folder, 1, 0), *part("A", (4,), float))
    assert not new.array.any()
    assert (old.array == 7).all()


def test_a_discarded_segment_is_read_only(folder: Path) -> None:
    segment = segments.create(RankMemory(folder, 1, 0), *part("A", (4,), float))
    segment.array[:] = 7
    segment.discard()
    assert list(folder.iterdir()) == []
    assert (segment.array == 7).all()
    with pytest.raises(ValueError, match="read-only"):
        segment.array[0] = 1


def test_an_array_without_elements_has_no_file(folder: Path) -> None:
    segment = segments.create(RankMemory(folder, 1, 0), *part("A", (0, 9), float))
    assert segment.outlives
    assert segment.array.shape == (0, 9)
    assert segments.reopen(RankMemory(folder, 1, 0), *part("A", (0, 9), float)).array.shape == (
        0,
        9,
    )


def test_a_segment_larger_than_the_file_system_is_private(folder: Path) -> None:
    """A file system that is full must cause an error, not a SIGBUS."""
    whole = os.statvfs("/dev/shm")
    elements = whole.f_blocks * whole.f_frsize // 8
    try:
        segment = segments.create(RankMemory(folder, 0, 0), *part("A", (elements + 1,), "i8"))
    except MemoryError:
        pass  # private memory is too small as well
    else:
        assert segment.path is None
    assert list(folder.iterdir()) == []


def test_free_space_is_checked_before_allocation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated: list[int] = []
    allocate = os.posix_fallocate

    def recorded(descriptor: int, offset: int, size: int) -> None:
        allocated.append(size)
        allocate(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", recorded)
    free = os.statvfs("/dev/shm")
    segments.create(RankMemory(folder, 0, 0), *part("A", (8,), "i1"))
    assert allocated == [8]
    with suppress(MemoryError):
        shape = (free.f_blocks * free.f_frsize + 8,)
        segments.create(RankMemory(folder, 0, 0), *part("B", shape, "i1"))
    assert allocated == [8]


def test_private_memory_is_used_if_the_file_system_is_full(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    for name in "AB":
        segment = segments.create(RankMemory(folder, 1, 0), *part(name, (4,), float))
        assert segment.array.shape == (4,)
        assert not segment.outlives
    assert [r.getMessage() for r in caplog.records] == [
        f"arrays go to private memory: No space left on device in {folder}"
    ]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("shape", "state"), [((3,), "is missing"), ((5,), "has 32 bytes")])
def test_a_segment_that_does_not_fit_cannot_be_reopened(
    folder: Path, shape: tuple[int], state: str
) -> None:
    segments.create(RankMemory(folder, 1, 0), *part("A", (4,), float))
    epoch = 1 if shape == (5,) else 2
    with pytest.raises(ReshapeError, match=rf"A\.e{epoch}\.r0 {state}.*submit the job again"):
        segments.reopen(RankMemory(folder, epoch, 0), *part("A", shape, float))


def test_sweep_keeps_one_epoch_and_other_files(folder: Path) -> None:
    for epoch in (1, 2, 12):
        segments.create(
            RankMemory(folder, epoch, 0), *part("A-e2.r1".replace(".", "_"), (4,), float)
        )
    (folder / "notes.txt").touch()
    segments.sweep(folder, keep_epoch=2)
    assert sorted(p.name for p in folder.iterdir()) == ["A-e2_r1.e2.r0", "notes.txt"]


def test_a_restart_point_is_written_read_and_removed(folder: Path) -> None:
    assert not has_restart_point(folder)
    POINT.write(folder)
    assert has_restart_point(folder)
    assert [p.name for p in folder.iterdir()] == [RESTART_FILE]
    assert RestartPoint.read(folder) == POINT
    assert POINT.load_state() == {}
    RestartPoint.remove(folder)
    RestartPoint.remove(folder)
    assert not has_restart_point(folder)


def test_a_restart_point_of_another_format_is_refused(folder: Path) -> None:
    POINT.write(folder)
    later = msgspec.msgpack.decode(msgspec.msgpack.encode(POINT)) | {"format": 2}
    (folder / RESTART_FILE).write_bytes(msgspec.msgpack.encode(later))
    with pytest.raises(ReshapeError, match=r"Invalid value 2 - at `\$\.format`; submit the job"):
        RestartPoint.read(folder)
    first = {name: later[name] for name in ("epoch", "iteration", "size", "signature", "state")}
    (folder / RESTART_FILE).write_bytes(msgspec.msgpack.encode(first))
    with pytest.raises(ReshapeError, match=r"missing required field `loop`; submit the job"):
        RestartPoint.read(folder)


@pytest.mark.parametrize(
    ("contents", "why"),
    [(None, "there is no"), (b"", "truncated"), (b"\xa0", "Expected `object`, got `str`")],
)
def test_a_damaged_restart_point_is_refused(folder: Path, contents: bytes | None, why: str) -> None:
    folder.mkdir(mode=0o700)
    if contents is not None:
        (folder / RESTART_FILE).touch(mode=0o600)
        (folder / RESTART_FILE).write_bytes(contents)
    with pytest.raises(ReshapeError, match=rf"cannot restart.*{why}.*submit the job again"):
        RestartPoint.read(folder)

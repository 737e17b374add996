"""The agreement of real processes on which of them may read shared memory in a move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from local_parts import part
from mpi4py import MPI

from redistribution.layout import MemoryOrder
from reshape.data import segments
from reshape.data.arrays import Array
from reshape.data.declarations import declare
from reshape.data.job_context import JobContext
from reshape.data.segments import RankMemory
from reshape.errors import ReshapeError
from reshape.resizing.move import hosts_of_ranks


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(
    ("case", "hosts"),
    [
        ("one host", (0, 0, 0)),
        ("another folder", (0, 0, 2)),
        ("another kernel", (0, 0, 2)),
        ("no folder", (0, 0, 2)),
        ("private memory", (0, 1, 0)),
    ],
)
def test_all_ranks_agree_which_of_them_share_memory(
    mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, hosts: tuple[int, ...]
) -> None:
    comm, folder = MPI.COMM_WORLD, mpi_tmp_path
    if case == "another folder" and comm.rank == 2:
        folder = folder / "other"
        folder.mkdir(mode=0o700)
    if case == "another kernel" and comm.rank == 2:
        monkeypatch.setattr(segments, "boot_id", lambda: "another")
    if case == "no folder" and comm.rank == 2:
        folder = folder / "missing"
    job = JobContext(comm, 0, folder, (0,) * 3, epoch=5 if comm.rank < 2 else 0)
    if comm.rank < 2:
        array = job.arrays["a"] = Array(declare("a", "rows", (4,), (0,), "f8", "C"), job)
        private = case == "private memory" and comm.rank == 1
        memory = RankMemory(None if private else folder, 5, comm.rank)
        segment = segments.create(memory, *part("a", (2,), "f8"))
        array.place(array.declaration.layout(2), segment)
    found = hosts_of_ranks(job, comm, comm.rank < 2)
    assert comm.allgather(found) == [hosts] * 3


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_view_of_a_segment_is_read_only_and_current(tmp_path: Path, order: MemoryOrder) -> None:
    own = segments.create(RankMemory(tmp_path, 1, 0), *part("a", (3, 4), "f8", order))
    view = segments.view(RankMemory(tmp_path, 1, 0), *part("a", (3, 4), "f8", order))
    own.array[...] = np.arange(12.0).reshape(3, 4)
    assert np.array_equal(view, own.array)
    assert view.flags.f_contiguous == (order == "F")
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    own.discard()
    assert view[2, 3] == 11


def test_a_view_of_a_missing_segment_is_refused(tmp_path: Path) -> None:
    segments.create(RankMemory(tmp_path, 1, 0), *part("a", (4,), "f8"))
    with pytest.raises(ReshapeError, match=r"a\.e1\.r0 has 32 bytes, expected 40"):
        segments.view(RankMemory(tmp_path, 1, 0), *part("a", (5,), "f8"))
    with pytest.raises(ReshapeError, match=r"a\.e2\.r0 is missing"):
        segments.view(RankMemory(tmp_path, 2, 0), *part("a", (4,), "f8"))
    assert segments.view(RankMemory(tmp_path, 9, 9), *part("a", (0, 3), "f8")).shape == (0, 3)

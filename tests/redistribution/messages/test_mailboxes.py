"""Memory that ranks share: meetings, boxes, moves through them, and where there can be none."""

import errno
import mmap
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from mpi4py import MPI
from redistribution_cases import index_valued, local_part

from redistribution import BlockCyclic, Cuts, Plan
from redistribution.copies import kernel
from redistribution.messages import mailboxes as module
from redistribution.messages.mailboxes import CommunicatorUse
from redistribution.tuning import tuning

#: As in some containers: MPI then transfers messages in small portions.
NOT_READABLE = {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}
on_4_ranks = pytest.mark.mpi(min_size=4)
needs_kernel = pytest.mark.skipif(kernel.compiled is None, reason="there was no C compiler")
NAME = "/memfd:redistribution-"


@pytest.fixture
def comm():
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


def used_twice(comm):
    """Use of a communicator in which plans have run."""
    use = CommunicatorUse.of(comm)
    for _ in range(2):
        use.settle(comm)
    return use


def mapped():
    """Number of shared memories of communicators that this process maps."""
    return Path("/proc/self/maps").read_text().count(NAME)


@on_4_ranks
@needs_kernel
def test_ranks_meet_and_find_what_others_have_put_into_their_boxes(comm):
    mailboxes = used_twice(comm).mailboxes
    for turn in range(300):
        half = turn % 2
        box = mailboxes.box(comm.rank, half)
        assert len(box) == tuning.mailbox_bytes
        box[[0, -1]] = turn % 256, comm.rank
        assert mailboxes.meet(1 << comm.rank | 1 << 60 + turn % 4) == 0b1111 | 1 << 60 + turn % 4
        for rank in range(comm.size):
            assert mailboxes.box(rank, half)[[0, -1]].tolist() == [turn % 256, rank]


@on_4_ranks
@needs_kernel
def test_a_communicator_has_mailboxes_from_its_second_use_until_it_is_freed(comm):
    before, descriptors = mapped(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        other = comm.Dup()
        use = CommunicatorUse.of(other)
        use.settle(other)
        assert use.mailboxes is None
        assert CommunicatorUse.of(other) is use
        use.settle(other)
        assert use.mailboxes is not None
        assert mapped() == before + 1
        assert CommunicatorUse.of(comm) is not use
        del use
        other.Free()
        assert mapped() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


def check_moves(comm, times=4):
    """Move a matrix there and back, and compare it."""
    shape = (37, 41)
    rows, columns = Cuts.even(shape, comm.size), BlockCyclic(shape, (3, 4), (1, comm.size))
    there, back = Plan(rows, columns), Plan(columns, rows)
    array = index_valued(shape, np.dtype(float))
    a = local_part(rows, comm.rank, array, "C")
    b = local_part(columns, comm.rank, array * 0, "C")
    for turn in range(times):
        a[...] = local_part(rows, comm.rank, array + turn, "C")
        there.run(comm, a, b)
        np.testing.assert_array_equal(b, local_part(columns, comm.rank, array + turn, "C"))
        a[...] = 0
        back.run(comm, b, a)
        np.testing.assert_array_equal(a, local_part(rows, comm.rank, array + turn, "C"))


def fail(*arguments, **keywords):
    raise OSError(errno.EPERM, "not permitted here")


@on_4_ranks
@needs_kernel
@pytest.mark.parametrize(
    ("holder", "name", "rank"),
    [
        (os, "memfd_create", 0),
        (os, "ftruncate", 0),
        (os, "readlink", 3),
        (os, "open", 2),
        (mmap, "mmap", 0),
        (mmap, "mmap", 1),
        (kernel, "compiled", 2),
    ],
)
def test_without_the_memory_on_one_rank_all_ranks_move_by_messages(
    comm, holder, name, rank, monkeypatch
):
    descriptors = len(os.listdir("/proc/self/fd"))
    if comm.rank == rank:
        monkeypatch.setattr(holder, name, None if holder is kernel else fail)
    use = used_twice(comm)
    assert use.mailboxes is None
    monkeypatch.undo()
    use.settle(comm)
    assert use.mailboxes is None  # it is not tried again
    assert len(os.listdir("/proc/self/fd")) == descriptors
    check_moves(comm)
    assert use.mailboxes is None


@on_4_ranks
@needs_kernel
def test_memory_of_another_name_is_not_mapped(comm, monkeypatch):
    """As if the process of rank 0 were on another host, where another one has its number."""
    if comm.rank == 1:
        monkeypatch.setattr(module, "_name", lambda number: f"other-{number}")
    assert used_twice(comm).mailboxes is None


@on_4_ranks
@needs_kernel
def test_moves_in_many_rounds(comm):
    """A box of 4 KB for rows of 8 KB; every rank has another number of rounds."""
    with patch.multiple(tuning, mailbox_bytes=4096):
        use = used_twice(comm)
    shape = (64, 100)
    source = Cuts(shape, (0, 10, 10, 11, 64))
    target = BlockCyclic(shape, (5, 7), (2, 2))
    plan, array = Plan(source, target), index_valued(shape, np.dtype(float))
    a = local_part(source, comm.rank, array, "C")
    b = local_part(target, comm.rank, array * 0, "C")
    for _ in range(3):
        plan.run(comm, a, b)
        np.testing.assert_array_equal(b, local_part(target, comm.rank, array, "C"))
        b[...] = 0
    assert use.mailboxes.box_bytes == 4096


@on_4_ranks
@needs_kernel
@pytest.mark.parametrize("dtype", ["V0", "V3"])
def test_elements_of_any_size(comm, dtype):
    """Of no bytes, too, and on ranks that have no part."""
    shape = (5, 6)
    source, target = Cuts.even(shape, 3), Cuts.even(shape, 3, axis=1)
    plan = Plan(source, target, [0, 1, 2], [1, 2, 0])
    a, b = (
        np.zeros(layout.local_shape(processes[comm.rank]), dtype) if comm.rank < 3 else None
        for layout, processes in (
            (source, plan.source_process),
            (target, plan.target_process),
        )
    )
    for _ in range(4):
        plan.run(comm, a, b)
    assert CommunicatorUse.of(comm).mailboxes is not None


@pytest.mark.mpi(min_size=2, environment=NOT_READABLE)
@needs_kernel
def test_mpi_finishes_messages_while_a_rank_waits_for_a_meeting(comm):
    """MPI transfers 4 MB in portions, for each of which the sender is needed."""
    use = used_twice(comm)
    assert not use.mailboxes.mpi_reads_memory
    for turn in range(3):
        message = np.full(1 << 19, float(turn))
        if comm.rank == 1:
            request = comm.Isend(message, 0)
            use.mailboxes.meet(0)
            request.Wait()
        else:
            received = np.empty_like(message)
            comm.Recv(received, 1)
            use.mailboxes.meet(0)
            assert (received == turn).all()


@pytest.mark.mpi(min_size=2)
@needs_kernel
def test_large_moves_need_messages_if_mpi_takes_them_out_of_the_array(comm, monkeypatch):
    mailboxes = used_twice(comm).mailboxes
    assert mailboxes.mpi_reads_memory
    meetings = []
    meet = mailboxes.meet
    monkeypatch.setattr(mailboxes, "meet", lambda word: meetings.append(word) or meet(word))
    rows = Plan(Cuts.even((1024, 1024), 1), Cuts.even((1024, 1024), 2))
    blocks = Plan(*(BlockCyclic((1024, 1024), (b, b), (1, 2)) for b in (31, 32)))
    for plan, least in ((rows, 1), (blocks, 2)):
        meetings.clear()
        a, b = (
            np.ones(layout.local_shape(comm.rank)) if comm.rank < layout.nprocs else None
            for layout in (plan.source, plan.target)
        )
        plan.run(comm, a, b)
        assert len(meetings) == least

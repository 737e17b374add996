"""How a group has ended on this host, from what its ranks report and from the end of its mpiexec.

Each rank reports its own end (`launching/rank.py`). So an exit code and a signal of the
same number differ, and the rank that failed first differs from those that were ended because of it.
The exit code of mpiexec counts if no rank has failed by itself. It is then that of MPI_Abort, for
which hydra kills the ranks, or there is a cause outside of the program.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal

import msgspec

from scheduler.node.groups import mpi_memory
from scheduler.node.launching.local import MpiexecStart
from scheduler.node.launching.rank_reports import RankFailure
from scheduler.node.launching.starter import CANNOT_START, NO_ROOM
from scheduler.protocol.agent_messages import Fault


class GroupEnd(msgspec.Struct, frozen=True):
    """How a group has ended on this host; the fields are those of `GroupStatus`."""

    exit_code: int = 0
    signal: int = 0
    why: str = ""
    began: bool = True
    rank: int = -1
    fault: Fault = ""


def failed_start(error: Exception) -> GroupEnd:
    """End of a group for which no process could be started."""
    is_job = isinstance(error, ValueError) or getattr(error, "errno", 0) == errno.E2BIG
    return never_began(f"cannot start: {error}", "job" if is_job else "node")


def never_began(why: str, fault: Fault) -> GroupEnd:
    """End of a group without a program that has begun."""
    return GroupEnd(CANNOT_START, why=why, began=False, fault=fault)


def end_of(start: MpiexecStart, status: int, *, spans: bool, is_proxy: bool) -> GroupEnd:
    """How a group has ended on this host.

    Parameters
    ----------
    status : wait status of mpiexec, or of the proxy of an mpiexec on another host.
    spans : whether mpiexec has processes on other hosts, too.
    """
    fault, why = start.failure
    if fault:
        return never_began(why, "job" if fault == "job" else "node")
    ranks, code = start.ranks, os.waitstatus_to_exitcode(status)
    began = bool(ranks.begun)
    if ranks.failure is not None:
        return _end_by_rank(ranks.failure, began=began)
    if code == 0 or (began and (is_proxy or (ranks.ended_at is not None and not spans))):
        return GroupEnd(began=began)
    # A signal has ended mpiexec, or the parents of the programs.
    is_signal = code < 0 or code == signal.SIGKILL or (code == signal.SIGTERM and not began)
    codes = (0, abs(code)) if is_signal else (code, 0)
    why = "" if began else f"mpiexec ended with {codes[0]}:{codes[1]} before the program began"
    return GroupEnd(*codes, why=why, began=began)


def _end_by_rank(failure: RankFailure, *, began: bool) -> GroupEnd:
    rank = failure.rank
    if failure.refused:
        why = f"cannot start {failure.program}: {os.strerror(failure.refused)}"
        fault: Fault = "node" if failure.refused in NO_ROOM else "job"
        return GroupEnd(CANNOT_START, why=why, began=began, rank=rank, fault=fault)
    code, why = os.waitstatus_to_exitcode(failure.status), ""
    if code in (-signal.SIGBUS, 128 + signal.SIGBUS):  # a shell adds 128
        free = shutil.disk_usage(mpi_memory.FOLDER).free >> 20
        why = f"a bus error: {mpi_memory.FOLDER} may have been full ({free} MiB are free now)"
    return GroupEnd(max(code, 0), max(-code, 0), why, began=began, rank=rank)

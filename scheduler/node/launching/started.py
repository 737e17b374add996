"""A started mpiexec, what the ranks under it report, and how the group has ended on this host.

Each rank reports its own end (`rank.py`), through a pipe to the agent. So an exit code and a signal
of the same number differ, and the rank that failed first differs from those that were ended
because of it. The exit code of mpiexec counts if no rank has failed by itself. It is then that of
MPI_Abort, for which hydra kills the ranks, or there is a cause outside of the program.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time

import msgspec

from scheduler.node.directory import MEMORY
from scheduler.node.launching.starter import CANNOT_START, NO_ROOM
from scheduler.protocol.agent_messages import Fault, GroupEnd


class RankReports:
    """The reports of the ranks of a group, which `rank.py` writes.

    Parameters
    ----------
    size : number of ranks on this host.

    Attributes
    ----------
    begun : process number of the parent of each program that has begun, by rank.
    failure : how the rank that failed first has ended; None: none has failed.
    ended_at : monotonic time at which the end of the last rank of this host was read; None: some
        have not ended.
    writer : file descriptor that the ranks have to inherit; its number is in their variable
        RESHAPE_REPORT.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.begun: dict[int, int] = {}
        self.failure: GroupEnd | None = None
        self.ended_at: float | None = None
        self._ended: set[int] = set()
        self._text = b""
        self._is_open = True

    def running(self) -> list[int]:
        """Return the process numbers of the parents of the programs that have not ended."""
        return [pid for rank, pid in self.begun.items() if rank not in self._ended]

    def was_inherited(self) -> None:
        """Close the end that the ranks write to; they have inherited it."""
        os.close(self.writer)

    def read(self) -> None:
        """Take note of the reports that have come."""
        while self._is_open:
            try:
                part = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                return
            *lines, self._text = (self._text + part).split(b"\n")
            for line in lines:
                self._note(*line.decode(errors="replace").split(" ", 3))
            if not part:
                self.close()

    def close(self) -> None:
        """Read no more reports."""
        if self._is_open:
            self._is_open = False
            os.close(self._reader)

    def note_end(self, status: int) -> None:
        """Note the wait status of a program whose parent is this process, as rank 0."""
        self.read()
        self._note("0", "ended", str(status))

    def _note(self, rank: str, what: str, number: str, program: str = "") -> None:
        if what == "begun":
            self.begun[int(rank)] = int(number)
            return
        self._ended.add(int(rank))
        if len(self._ended) == self._size:
            self.ended_at = time.monotonic()
        if self.failure is not None:
            return
        if what == "refused":
            self.failure = _refused(int(rank), int(number), program)
        elif int(number):
            self.failure = _failed(int(rank), int(number))


class MpiexecStart:
    """An mpiexec that is being started, or runs.

    Parameters
    ----------
    pid : number of the process that becomes mpiexec when its output is open and its working
        directory is entered; a child of this process.
    status, proxies : file descriptors from which the outcome of the start and the commands of
        proxies on other hosts are read; None: there are no other hosts.
    ranks : what its ranks on this host report.
    is_program : whether the process is the program itself, without an mpiexec.

    Attributes
    ----------
    spans : whether it has processes on other hosts, too.
    """

    def __init__(
        self,
        pid: int,
        status: int,
        ranks: RankReports,
        proxies: int | None = None,
        *,
        is_program: bool = False,
    ) -> None:
        self.pid = pid
        self.ranks = ranks
        self.is_program, self.spans = is_program, proxies is not None
        self._status, self._proxies_end = status, proxies
        self._text = b""
        self._is_decided = False
        self._proxies: list[list[str]] = []

    @property
    def is_pending(self) -> bool:
        """Whether it is still unknown if mpiexec could be started."""
        self._read()
        return not self._is_decided

    @property
    def failure(self) -> tuple[str, str]:
        """Whose reason ("job" or "node"), and why mpiexec could not be started; empty if it was."""
        self._read()
        whose, _, why = self._text.decode(errors="replace").partition(": ")
        return whose, why

    @property
    def awaits_proxies(self) -> bool:
        """Whether the commands of the proxies on other hosts are still to be read."""
        return self._proxies_end is not None

    @property
    def proxies(self) -> list[list[str]]:
        """Commands that start the proxies on the other hosts; empty if there are none (yet)."""
        if self._proxies_end is not None:
            try:
                text = os.read(self._proxies_end, 1 << 16)
            except BlockingIOError:
                return self._proxies
            os.close(self._proxies_end)
            self._proxies_end = None
            self._proxies = json.loads(text) if text else []
        return self._proxies

    def _read(self) -> None:
        while not self._is_decided:
            try:
                part = os.read(self._status, 4096)
            except BlockingIOError:
                return
            self._text += part
            if not part:
                self._decide()

    def close(self) -> None:
        """Stop waiting for the outcome of the start, and for reports of ranks."""
        self.ranks.close()
        if self._proxies_end is not None:
            os.close(self._proxies_end)
            self._proxies_end = None
        self._decide()

    def _decide(self) -> None:
        if not self._is_decided:
            self._is_decided = True
            os.close(self._status)


def failed_start(error: Exception) -> GroupEnd:
    """End of a group for which no process could be started."""
    is_job = isinstance(error, ValueError) or getattr(error, "errno", 0) == errno.E2BIG
    return never_began(f"cannot start: {error}", "job" if is_job else "node")


def never_began(why: str, fault: Fault) -> GroupEnd:
    """End of a group without a program that has begun."""
    return GroupEnd(exit_code=CANNOT_START, why=why, began=False, fault=fault)


def end_of(start: MpiexecStart, status: int, *, is_proxy: bool) -> GroupEnd:
    """How a group has ended on this host.

    Parameters
    ----------
    status : wait status of mpiexec, or of the proxy of an mpiexec on another host.
    """
    fault, why = start.failure
    if fault:
        return never_began(why, "job" if fault == "job" else "node")
    ranks, code = start.ranks, os.waitstatus_to_exitcode(status)
    began = bool(ranks.begun)
    if ranks.failure is not None:
        return msgspec.structs.replace(ranks.failure, began=began)
    if code == 0 or (began and (is_proxy or (ranks.ended_at is not None and not start.spans))):
        return GroupEnd(began=began)
    # A signal has ended mpiexec, or the parents of the programs.
    is_signal = code < 0 or code == signal.SIGKILL or (code == signal.SIGTERM and not began)
    code, number = (0, abs(code)) if is_signal else (code, 0)
    why = "" if began else f"mpiexec ended with {code}:{number} before the program began"
    return GroupEnd(exit_code=code, signal=number, why=why, began=began)


def _refused(rank: int, number: int, program: str) -> GroupEnd:
    """End of a group with a rank whose program the system refuses with this error number."""
    shown = program if program.isprintable() else repr(program)
    why = f"cannot start {shown}: {os.strerror(number)}"
    fault: Fault = "node" if number in NO_ROOM else "job"
    return GroupEnd(exit_code=CANNOT_START, why=why, rank=rank, fault=fault)


def _failed(rank: int, status: int) -> GroupEnd:
    """End of a group with a rank whose program has this wait status."""
    code, why = os.waitstatus_to_exitcode(status), ""
    if code in (-signal.SIGBUS, 128 + signal.SIGBUS):  # a shell adds 128
        free = shutil.disk_usage(MEMORY).free >> 20
        why = f"a bus error: {MEMORY} may have been full ({free} MiB are free now)"
    return GroupEnd(exit_code=max(code, 0), signal=max(-code, 0), why=why, rank=rank)

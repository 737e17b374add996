"""A group of a job on a node, from its start to its end, and how the jobs of the node ended.

The ends are kept after the service has recorded them. A service whose journal was damaged, or
replaced by an older copy, may take a job that has ended for one that is to start or runs. Its
agents then report how the job ended.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from reshape.files.job_folder import Position
from scheduler.model.procset import ProcSet
from scheduler.node.launching import job_bounds
from scheduler.node.processes import ProcessTree
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Starts and jobs whose ends an agent keeps, at most; the oldest are dropped first.
MOST_ENDED = 10_000
#: Places of a job in a report, and intervals of ranks at each.
MOST_PLACES, MOST_INTERVALS = 8, 32


class OutputEnd:
    """The end of an output file, read by a process of its own.

    The agent does not read the file itself, because a file system that does not respond would block
    it.

    Parameters
    ----------
    files : the file, and others of the output.
    note : line to append to the file; "": none.
    own_folders : those of the service; a file in one of them is left alone.

    Raises
    ------
    OSError : no process can be started.
    """

    def __init__(self, files: Sequence[str], note: str, own_folders: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", job_bounds.__file__, note, *files],
            # Without a variable that tells to which group a process belongs.
            env={job_bounds.VARIABLE: "\n".join(own_folders)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._files = files
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._until = time.monotonic() + job_bounds.TAIL_S
        self._data = b""

    def text(self) -> str | None:
        """Return the end of the output; None as long as the process runs.

        Its last line says so if more could not be written.
        """
        if not self._pipe.closed and not self._is_over():
            return None
        text = self._data.partition(b"\n")[2].decode(errors="replace")
        return f"{text.rstrip()}\n{self.lack}\n" if self.lack else text

    @property
    def lack(self) -> str:
        """Why the output is incomplete, once it was read; empty if it is not, as far as known."""
        full = self._data.partition(b"\n")[0]
        return f"no room for its output {self._files[int(full)]}" if full else ""

    def _is_over(self) -> bool:
        """Read what the process has written; whether that was all, or the time is over."""
        while part := self._pipe.read(1 << 16):
            self._data += part
        if part is None and time.monotonic() < self._until:
            return False
        self._pipe.close()
        self._process.kill()  # ends it if the time is over
        self._process.returncode = 0  # the agent waits for all its children elsewhere
        return True


@dataclass
class GroupProcesses:
    """The processes of a group that have not all ended.

    Attributes
    ----------
    why : reason of an order to end it; "": there is none.
    kill_at : monotonic time at which SIGKILL follows SIGTERM; None if the group is not to end.
    bounds : where it runs and writes.
    cpus : CPUs to which its ranks on this node were bound, by rank.
    order : the last signal that was ordered; None: there was none.
    signalled : serial of the last signal that it was sent.
    tail : the end of its output, which is read when a failed group has ended; None: it is not.
    """

    job: int
    group: int
    tree: ProcessTree
    bounds: m.JobBounds
    why: str = ""
    kill_at: float | None = None
    cpus: dict[int, list[int]] = field(default_factory=dict)
    order: m.SignalGroup | None = None
    signalled: int = 0
    tail: OutputEnd | None = None

    @property
    def output_end(self) -> str | None:
        """The end of its output, "" if it is not read; None as long as it is being read."""
        return "" if self.tail is None else self.tail.text()

    @property
    def is_pending(self) -> bool:
        """Whether its files are not open, or its mpiexec has not even started a process.

        The dynamic linker may wait for a file system before mpiexec begins.
        """
        tree = self.tree
        is_idle = not (tree.has_begun or tree.seen or tree.is_proxy)
        return is_idle or tree.start.is_pending

    def kill(self, grace_s: float, why: str) -> None:
        """End the group: SIGTERM, and SIGKILL after `grace_s` seconds; 0: at once."""
        kill_at = time.monotonic() + grace_s
        if self.kill_at is not None and self.kill_at <= kill_at:
            return
        is_first, self.kill_at = self.kill_at is None, kill_at
        if not is_first and grace_s:
            return  # only sooner than by an earlier order
        self.tree.look()
        self.why = self.why or why
        log.info("kill job=%d group=%d: %s", self.job, self.group, why)
        self.tree.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)

    def send_signal(self) -> bool:
        """Send the signal that was ordered, once, when the group has begun; whether it was sent."""
        order, tree = self.order, self.tree
        if order is None or tree.status is not None:
            return False
        if order.serial <= self.signalled or not tree.has_begun:
            return False
        log.info("signal %d job=%d group=%d", order.number, self.job, self.group)
        self.signalled = order.serial
        tree.signal_programs(order.number, to_script=order.to_script)
        return True

    def has_read_output(self) -> bool:
        """Whether the end of the output of a failed group is known; begin to read it if it is not.

        A line is appended to the output of a group that was ended, because mpiexec reports the end
        of processes that had to be killed as a fault of the program.
        """
        files = [*filter(None, (self.bounds.error, self.bounds.output))]
        if self.tail is None and files and not any(self.tree.start.failure):
            ended = f"reshape: the processes of group {self.group} were ended: {self.why}"
            note = "" if self.kill_at is None else ended
            try:
                self.tail = OutputEnd(files, note, self.bounds.own_folders)
            except OSError as error:
                log.warning("cannot read %s: %s", files[0], error.strerror)
        return self.output_end is not None

    def status(self, end: m.GroupEnd | None = None) -> m.GroupStatus:
        """Status for the service; `end` is how the group has ended, None as long as it runs."""
        fields = end or m.GroupEnd(why=self.why, began=self.tree.has_begun)
        return m.GroupStatus(
            self.job,
            self.group,
            alive=end is None,
            pid=self.tree.pid,
            proxies=self.tree.start.proxies,
            cpus=self.cpus,
            output_end=self.output_end or "",
            signalled=self.signalled,
            **msgspec.structs.asdict(fields),
        )


def ranks_at(positions: list[Position]) -> list[m.RanksAt]:
    """Return the ranks at each place, a bounded number of both: the places of the fewest ranks."""
    places: dict[tuple[int, int, bool], list[Position]] = {}
    for each in positions:
        places.setdefault((each.loop, each.iteration, each.at_point), []).append(each)
    fewest = sorted(places, key=lambda place: (len(places[place]), place))[:MOST_PLACES]
    return [
        m.RanksAt(
            *place,
            ranks=list(ProcSet.of(each.rank for each in places[place]).intervals[:MOST_INTERVALS]),
            idle_s=min(each.idle_s for each in places[place]),
        )
        for place in sorted(fewest)
    ]


class EndedJobs:
    """The ends of jobs that the service has recorded already.

    The end of a job is known by the order that started its first group, because a job that was
    queued again has one for each of its starts, and the last one by the token of the job.
    """

    def __init__(self) -> None:
        self._starts: dict[int, bytes] = {}  # job -> digest of the order of its first group
        self._tokens: dict[int, str] = {}  # job -> its token
        self._ends: dict[bytes, m.GroupStatus] = {}  # by this digest
        self._jobs: dict[str, list[m.GroupStatus]] = {}  # last groups, by token

    def started(self, order: m.StartGroup) -> None:
        """Note the start of a group."""
        self._tokens[order.job] = order.environment.get("RESHAPE_TOKEN", "")
        if order.environment.get("RESHAPE_ROLE") == "first":
            self._starts[order.job] = _digest(order)

    def ended(self, job: int, groups: Sequence[m.GroupStatus]) -> None:
        """Keep how the last groups of a job ended."""
        start, token = self._starts.pop(job, None), self._tokens.pop(job, "")
        ends = [replace(group, pid=0, proxies=[], cpus={}, output_end="") for group in groups]
        if token and ends:
            self._jobs.pop(token, None)
            self._jobs[token] = ends
            _drop_oldest(self._jobs)
        if start is not None and ends:
            self._ends[start] = _end_of_all(ends)
            _drop_oldest(self._ends)

    def end_of(self, order: m.StartGroup) -> m.GroupStatus | None:
        """Return the first group of a job that this order has started, as the job ended."""
        end = self._ends.get(_digest(order)) if self._ends else None
        return None if end is None else replace(end, group=order.group)

    def end_of_group(
        self, question: m.ReportEnd, present: Sequence[m.GroupStatus]
    ) -> m.GroupStatus | None:
        """Return a group as it ended, or as its job did if it left before.

        Parameters
        ----------
        present : groups of the job that the service has not acknowledged as ended.

        Returns
        -------
        None : the job is not known, or still runs.
        """
        ends = self._jobs.get(question.token)
        if self._tokens.get(question.job) == question.token:
            ends = None if any(group.alive for group in present) else list(present)
        if not ends:
            return None
        own = next((end for end in ends if end.group == question.group), None)
        return replace(own or _end_of_all(ends), group=question.group)


def _end_of_all(groups: Sequence[m.GroupStatus]) -> m.GroupStatus:
    """Return a group that failed, if one did."""
    return max(groups, key=lambda group: group.has_failed)


def _drop_oldest(ends: dict[Any, Any]) -> None:
    while len(ends) > MOST_ENDED:
        del ends[next(iter(ends))]


def _digest(order: m.StartGroup) -> bytes:
    return blake2b(msgspec.msgpack.encode(order), digest_size=16).digest()

"""Processes of a node as its agent handles them: mpiexecs, all their descendants, their memory.

The kernel lists the children of a process (proc(5)). A list may lack a child if the parent waits
for another one while the list is read. That of this process is complete, because no other process
waits for its children. Where the kernel has no such lists, all processes of the machine are
searched, which takes milliseconds.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import psutil

from reshape.files.cgroup import has_process
from scheduler.node.launching.launcher import MpiexecStart
from scheduler.protocol.agent_messages import GroupEnd

_HAS_LISTS = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def children_of(pid: int) -> set[int]:
    """Return the process numbers of the children of a process; none if it has ended."""
    if not _HAS_LISTS:
        try:
            return {child.pid for child in psutil.Process(pid).children()}
        except psutil.Error:
            return set()
    numbers: set[int] = set()
    with suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
                numbers.update(map(int, children.split()))
    return numbers


def descendants_of(pid: int) -> set[int]:
    """Return the process numbers of all descendants of a process."""
    descendants: set[int] = set()
    left = [pid]
    while left:
        children = children_of(left.pop()) - descendants
        descendants |= children
        left += children
    return descendants


#: Names the agent of a process: all that an agent starts has this variable, with no secret in it.
AGENT_VARIABLE = "RESHAPE_AGENT"
_MARK = f"{AGENT_VARIABLE}=".encode()
#: Names the group of a process, as JOB.GROUP.
GROUP_VARIABLE = "RESHAPE_AGENT_GROUP"
#: Programs that start ranks and would end them on a signal.
_STARTERS = frozenset(
    {"mpiexec", "mpiexec.hydra", "mpirun", "hydra_pmi_proxy", "orterun", "prterun", "prted"}
)
#: Seconds between two samples of the memory of jobs.
SAMPLE_S = 1.0
#: A new maximum is reported if it is larger by this factor, so that few reports differ.
GROWTH = 1.1
_MIB = 1 << 20


@dataclass
class ProcessTree:
    """An mpiexec with every process that descended from it.

    Attributes
    ----------
    marker : environment variables that only these processes have.
    start : the mpiexec.
    is_proxy : whether this is the proxy of an mpiexec on another host.
    cgroup : folder of their control group; "": they have none of their own.
    roots : process numbers of all mpiexecs of the agent that have not been reaped.
    started : time of the monotonic clock.
    seen : descendants found so far, by process number.
    looked : monotonic time at which descendants were searched last.
    present : descendants that the last search found.
    status : wait status of mpiexec; None while it has not been reaped.
    end : how the group has ended, from then on.
    largest_process : largest memory of any single process, once mpiexec has been reaped; bytes.
    """

    marker: Mapping[str, str]
    start: MpiexecStart
    started: float = field(default_factory=time.monotonic)
    seen: dict[int, psutil.Process] = field(default_factory=dict)
    looked: float = 0.0
    present: list[psutil.Process] = field(default_factory=list)
    status: int | None = None
    end: GroupEnd = field(default_factory=GroupEnd)
    largest_process: int = 0
    is_proxy: bool = False
    cgroup: str = ""
    roots: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Note the mpiexec for all trees."""
        self.roots.add(self.pid)

    @property
    def pid(self) -> int:
        """Process number of mpiexec."""
        return self.start.pid

    @property
    def has_begun(self) -> bool:
        """Whether the program of a rank has begun."""
        return bool(self.start.begun)

    def look(self) -> None:
        """Search the descendants of mpiexec."""
        self.looked = time.monotonic()
        if self.status is not None:
            return
        descendants = descendants_of(self.pid)
        self.seen |= _processes(descendants - self.seen.keys())
        # The parents of the programs are no part of the job.
        own = descendants - set(self.start.begun.values())
        own = own | {self.pid} if self.start.is_program else own
        self.present = [*_processes(own).values()]

    def resident_bytes(self) -> int:
        """Add up the resident memory of the descendants that the last search found."""
        resident = 0
        for process in self.present:
            with suppress(psutil.Error):
                if process.is_running():  # compares the start time
                    resident += process.memory_info().rss
        return resident

    def reaped(self, status: int, largest_process: int) -> None:
        """Record the end of mpiexec; its process number may be reused from now on.

        Parameters
        ----------
        status : wait status.
        largest_process : largest memory of any of its processes, bytes.
        """
        self.status, self.largest_process = status, largest_process
        self.roots.discard(self.pid)
        self.end = self.start.end(status, is_proxy=self.is_proxy)

    def send_signal(self, number: int) -> None:
        """Send a signal to mpiexec, or to a script and its children, unless it has been reaped."""
        if self.status is None:
            # A child that has not been reaped keeps its process number. It leads a process group.
            with suppress(ProcessLookupError):
                (os.killpg if self.start.is_program else os.kill)(self.pid, number)

    def signal_programs(self, number: int, *, to_script: bool) -> None:
        """Send a signal to the programs of the ranks, and to what these have started.

        mpiexec does not get it, since it would take most signals for an order to end the group. Of
        a script it goes to what that has started, except for an mpiexec among it.

        Parameters
        ----------
        to_script : whether a script gets it alone, without what it has started.
        """
        for process in _processes(self.start.running()).values():
            with suppress(psutil.Error):
                # The first process of a group with a script is the script itself.
                for each in [process] if to_script else process.children(recursive=True):
                    with suppress(psutil.Error):
                        if each.name() not in _STARTERS:
                            each.send_signal(number)  # verifies the start time first

    def kill_descendants(self) -> bool:
        """Kill the descendants of mpiexec that still run; return whether there were any."""
        return self._kill(self._living())

    def kill_strays(self) -> bool:
        """Kill the processes whose parents have ended; return whether there were any.

        hydra does not wait for them, but for what they may still write to the output.
        """
        return self._kill(
            [process for process in self._living() if not _is_below(process.pid, self.pid)]
        )

    def _kill(self, processes: list[psutil.Process]) -> bool:
        for process in processes:
            with suppress(psutil.Error):
                process.kill()  # verifies the start time of the process first
        return bool(processes)

    def has_lost_rank(self) -> bool:
        """Whether the parent of a program was killed; the program itself may still run."""
        running = self.start.running()
        return sum(map(is_alive, _processes(running).values())) < len(running)

    def _living(self) -> list[psutil.Process]:
        """Descendants that still run.

        Those whose parents have died are children of the agent, as each mpiexec is. Their control
        group tells to which tree they belong, or their environment; if a program has cleared that,
        its session does.
        """
        descendants = descendants_of(self.pid) if self.status is None else set()
        for pid in children_of(os.getpid()) - self.roots - descendants:
            if self._owns(pid):
                descendants |= {pid} | descendants_of(pid)
        processes = self.seen | _processes(descendants - self.seen.keys())
        return [process for process in processes.values() if is_alive(process)]

    def _owns(self, pid: int) -> bool:
        if self.cgroup and has_process(self.cgroup, pid):
            return True
        marker = {os.fsencode(f"{name}={value}") for name, value in self.marker.items()}
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if any(variable.startswith(_MARK) for variable in environment):
                return marker.issubset(environment)
            return os.getsid(pid) in {self.pid, *self.seen}
        except OSError:
            return False


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _processes(pids: Iterable[int]) -> dict[int, psutil.Process]:
    """Return the processes of these numbers that exist."""
    processes = {}
    for pid in pids:
        with suppress(psutil.Error):
            processes[pid] = psutil.Process(pid)
    return processes


def _is_below(pid: int, ancestor: int) -> bool:
    """Whether a process descends from another one, or has ended meanwhile.

    Each parent is read from its child: the lists of children may lack one.
    """
    while pid not in (ancestor, os.getpid(), 0):
        try:
            pid = psutil.Process(pid).ppid()
        except psutil.Error:
            return True
    return pid == ancestor


def wake_on_child() -> int:
    """Return a file descriptor that becomes readable when a child ends, for use in a poller."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read


class MemoryUse:
    """The largest memory of each job on this node.

    The resident memory of all processes of a job is added up in each sample, as Slurm does by
    default; memory that processes share counts for each of them. Between two samples, and in groups
    that end before the first one, the kernel still tells the largest memory of any single process.
    """

    def __init__(self) -> None:
        self._sampled = float("-inf")
        self._largest: dict[int, int] = {}  # job -> bytes
        self._reported: dict[int, int] = {}  # job -> bytes

    def sample(self, trees: Iterable[tuple[int, ProcessTree]]) -> None:
        """Add up the memory of each job, if it is time for the next sample.

        Parameters
        ----------
        trees : job and processes of each group.
        """
        now = time.monotonic()
        if now - self._sampled < SAMPLE_S:
            return
        self._sampled = now
        used: dict[int, int] = {}
        for job, tree in trees:
            used[job] = used.get(job, 0) + tree.resident_bytes()
        for job, amount in used.items():
            self._note(job, amount)
            if self._largest.get(job, 0) > GROWTH * self._reported.get(job, 0):
                self._reported[job] = self._largest[job]

    def ended(self, job: int, largest_process: int) -> None:
        """Note the end of a group and the largest memory of any of its processes, bytes.

        The kernel counts the memory of this process for each process that it starts, so only an
        amount beyond that is taken from it.
        """
        if largest_process > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10:
            self._note(job, largest_process)
        if job in self._largest:
            self._reported[job] = self._largest[job]

    def forget(self, job: int) -> None:
        """Drop a job that has ended."""
        self._largest.pop(job, None)
        self._reported.pop(job, None)

    def report(self) -> dict[int, int]:
        """Return the largest memory of each job, MiB."""
        return {job: ceil(amount / _MIB) for job, amount in self._reported.items()}

    def _note(self, job: int, amount: int) -> None:
        if amount > self._largest.get(job, 0):
            self._largest[job] = amount

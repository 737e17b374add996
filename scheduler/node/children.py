"""What an agent starts: the groups of jobs, and errands beside them; and how its jobs ended.

Errands are short processes, each with a time limit.

========  ==========================================================================================
hook      the command that a user lets run at the end of a job, on its first node
probe     a program that does nothing, which shows whether the node can start groups again; the
          service asks for it while the node drains because it failed to start jobs. Room in shared
          memory comes first, so that no process is started as long as it lacks.
stand-in  releases a job from accepting a group that has died
========  ==========================================================================================

The ends of jobs are kept after the service has recorded them. A service whose journal was damaged,
or replaced by an older copy, may take a job that has ended for one that is to start or runs. Its
agents then report how the job ended.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.files.job_folder import Position
from reshape.files.private_folder import make_private, open_file, open_folder, read_file
from scheduler.model.procset import ProcSet
from scheduler.node.directory import JobFolders
from scheduler.node.launching import job_bounds
from scheduler.node.launching.launcher import ProcessLauncher, mpiexec
from scheduler.node.leftovers import check_much_room
from scheduler.node.processes import AGENT_VARIABLE, ProcessTree
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Jobs whose ends an agent keeps, at most; the oldest are dropped first.
MOST_ENDED = 10_000
#: Bytes reserved for the end of a group, and the end of the name of the file that has them.
END_BYTES, ROOM = 4096, ".room"
#: Places of a job in a report, and intervals of ranks at each.
MOST_PLACES, MOST_INTERVALS = 8, 32
#: Time limits of errands, seconds.
HOOK_S, PROBE_S, STAND_IN_S = 60.0, 20.0, 10.0
#: Hooks that run at a time on a node, at most.
MOST_HOOKS = 100
#: Interval in seconds of searching the descendants of an errand.
LOOK_S = 0.1


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


class Errands:
    """The errands of an agent: a hook for each end of a job, a stand-in for each resize, a probe.

    Parameters
    ----------
    folders : the shared-memory folders of jobs on this host.
    mark : name of the agent, which its processes carry in their environment.
    roots : process numbers of all mpiexecs of the agent.

    Attributes
    ----------
    probe : number of the last probe that has ended; 0: none has.
    probe_failure : why it failed; empty if the node can start groups.
    """

    def __init__(
        self, launcher: ProcessLauncher, folders: JobFolders, mark: str, roots: set[int]
    ) -> None:
        self._launcher, self._folders, self._mark = launcher, folders, mark
        self._roots = roots
        # By kind and number: the processes, the time limit in seconds, and what is called when all
        # processes have ended.
        self._running: dict[str, tuple[ProcessTree, float, Callable[[ProcessTree], None]]] = {}
        self.probe, self.probe_failure = 0, ""

    def trees(self) -> Iterable[ProcessTree]:
        """Return the processes of all errands."""
        return [tree for tree, _, _ in self._running.values()]

    def start_hook(self, order: m.RunHook) -> None:
        """Start the hook of a job that has ended; a failure is logged and has no consequence."""
        key, hooks = f"hook {order.job}", self._count("hook")
        if key in self._running or hooks >= MOST_HOOKS:
            log.warning("%s is left out: %d run", key, hooks)
            return
        marker = self._marker(key)
        try:
            start = self._launcher.start(
                ["/bin/sh", "-c", order.command],
                order.environment | marker,
                order.bounds,
                is_program=True,
            )
        except (OSError, ValueError) as error:
            log.warning("%s: cannot start: %s", key, error)
            return

        self._running[key] = (
            ProcessTree(marker, start, roots=self._roots),
            HOOK_S,
            partial(_log_failure, key),
        )
        log.info("%s pid=%d", key, start.pid)

    def start_stand_in(self, order: m.CancelAccept) -> None:
        """Start the stand-in of a resize, unless it runs already."""
        key = f"stand-in {order.job}.{order.serial}"
        if key in self._running:
            return
        marker = self._marker(key)
        program = [sys.executable, "-m", "reshape.resizing.stand_in", order.port]
        start = self._launcher.start(mpiexec(1, program), order.environment | marker)
        self._running[key] = (
            ProcessTree(marker, start, roots=self._roots),
            STAND_IN_S,
            partial(_log_failure, key),
        )
        log.info("%s pid=%d", key, start.pid)

    def start_probe(self, order: m.ProbeNode) -> None:
        """Begin a probe, unless one runs or this one has ended."""
        if self._count("probe") or order.serial == self.probe:
            return
        key = f"probe {order.serial}"
        marker = self._marker(key)
        folder = self._folders.memory / f"probe-{order.serial}"
        try:
            check_much_room(order.processes)
            make_private(self._folders.memory)
            make_private(folder)
            folder.rmdir()
            bounds = m.JobBounds(cwd="/", output=os.devnull)
            start = self._launcher.start(mpiexec(1, ["true"]), os.environ | marker, bounds)
        except (OSError, ValueError, ReshapeError) as error:
            self._end_probe(order.serial, str(error))
            return

        def ended(tree: ProcessTree) -> None:
            end = tree.end
            how = end.why or f"a program that does nothing ended with {end.exit_code}:{end.signal}"
            self._end_probe(order.serial, how if end.has_failed else "")

        self._running[key] = ProcessTree(marker, start, roots=self._roots), PROBE_S, ended

    def examine(self) -> bool:
        """End errands that take too long, and forget those that have ended; whether some have."""
        before = len(self._running)
        for key, (tree, limit_s, ended) in list(self._running.items()):
            now = time.monotonic()
            if tree.status is None:
                tree.start.read_reports()
                is_late = now - tree.started > limit_s
                if is_late or now - tree.looked > LOOK_S:
                    tree.look()
                if is_late:
                    log.warning("%s is ended after %g s", key, limit_s)
                    tree.send_signal(signal.SIGKILL)
            elif not tree.kill_descendants():
                tree.start.close()
                del self._running[key]
                ended(tree)
        return len(self._running) < before

    def _marker(self, key: str) -> dict[str, str]:
        """Variables by which the agent recognises the processes of an errand."""
        return {AGENT_VARIABLE: self._mark, "RESHAPE_ERRAND": key}

    def _count(self, kind: str) -> int:
        return sum(key.startswith(kind) for key in self._running)

    def _end_probe(self, serial: int, why: str) -> None:
        self.probe, self.probe_failure = serial, why
        log.info("probe %d %s", serial, f"failed: {why}" if why else "passed")


def _log_failure(key: str, tree: ProcessTree) -> None:
    end = tree.end
    if end.has_failed:
        how = f"{end.exit_code}:{end.signal}" + (f": {end.why}" if end.why else "")
        log.warning("%s ended with %s", key, how)


class EndFiles:
    """Files with the ends of groups in shared memory, for the next agent of the node.

    They are not in the folders of jobs, which jobs may remove. Room for the file is taken when the
    group starts, because the job may fill the shared memory.

    Parameters
    ----------
    folders : the shared-memory folders of jobs on this host; agents of several nodes may use one.
    node : name of the node.
    """

    def __init__(self, folders: JobFolders, node: str) -> None:
        self._folders, self._node = folders, node

    def reserve(self, job: int, group: int) -> None:
        """Take the room for the end of a group that starts.

        Raises
        ------
        OSError, ReshapeError : there is none.
        """
        with self._room(job, group) as file:
            os.posix_fallocate(file.fileno(), 0, END_BYTES)

    def write(self, status: m.GroupStatus) -> None:
        """Write the end of a group; without its output if there is only the reserved room."""
        job, group, data = status.job, status.group, msgspec.json.encode(status)
        try:
            with self._room(job, group) as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, len(data))
                except OSError:
                    data = msgspec.json.encode(replace(status, output_end=""))
                file.write(data)
                file.truncate()
            self._path(job, group, ROOM).replace(self._path(job, group))
        except (OSError, ReshapeError) as error:
            log.warning("cannot record the end of group %d of job %d: %s", group, job, error)

    def remove(self, job: int, group: int | None = None) -> None:
        """Remove the end of a group, or its room; of all groups of a job if none is named."""
        ends = self._path(job, "*" if group is None else group).name
        for path in self._folders.memory.glob(f"{ends}*"):
            with suppress(OSError):
                path.unlink()

    def read(self) -> Iterator[m.GroupStatus]:
        """Read the ends that earlier agents of the node have written, and remove their rooms."""
        for path in self._folders.memory.glob(f"{self._path('*', '*').name}*"):
            if path.name.endswith(ROOM):
                with suppress(OSError):
                    path.unlink()
                continue
            try:
                end = msgspec.json.decode(read_file(path.parent, path.name), type=m.GroupStatus)
            except (OSError, msgspec.DecodeError, ReshapeError) as error:
                log.warning("cannot read the end of a group, %s: %s", path, error)
                continue
            if path == self._path(end.job, end.group):  # else a job has written it
                yield end

    def _path(self, job: int | str, group: int | str, ending: str = "") -> Path:
        return self._folders.memory / f"end-{job}-{group}-on-{self._node}{ending}"

    @contextmanager
    def _room(self, job: int, group: int) -> Iterator[BinaryIO]:
        """Open the file that becomes that with the end of a group."""
        path = self._path(job, group, ROOM)
        with open_folder(path.parent) as folder:
            descriptor = open_file(folder, path.name, os.O_RDWR | os.O_CREAT)
        with open(descriptor, "r+b") as file:
            yield file


class EndedJobs:
    """The ends of jobs that the service has recorded already.

    A job is known by its token, since the service may give its number again. A job that was queued
    again has an end for each of its starts, which is known by the number of its first group.
    """

    def __init__(self) -> None:
        self._started: dict[int, tuple[str, int]] = {}  # job -> its token, and first group
        # Token -> first group of each start -> last groups of this start.
        self._ends: dict[str, dict[int, list[m.GroupStatus]]] = {}

    def started(self, order: m.StartGroup) -> None:
        """Note the start of a group."""
        _, first = self._started.get(order.job, ("", 0))
        if order.environment.get("RESHAPE_ROLE") == "first":
            first = order.group
        self._started[order.job] = _token(order), first

    def ended(self, job: int, groups: Sequence[m.GroupStatus]) -> None:
        """Keep how the last groups of a job ended."""
        token, first = self._started.pop(job, ("", 0))
        if token and groups:
            ends = [replace(group, pid=0, proxies=[], cpus={}, output_end="") for group in groups]
            self._ends[token] = self._ends.pop(token, {}) | {first: ends}
            while len(self._ends) > MOST_ENDED:
                del self._ends[next(iter(self._ends))]

    def end_of(self, order: m.StartGroup) -> m.GroupStatus | None:
        """Return the first group of a start that has been carried out, as the job ended."""
        ends = self._ends.get(_token(order), {}).get(order.group)
        return None if ends is None else replace(_end_of_all(ends), group=order.group)

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
        ends = [*self._ends.get(question.token, {}).values()][-1:]
        if self._started.get(question.job, ("", 0))[0] == question.token:
            ends = [] if any(group.alive for group in present) else [list(present)]
        if not ends or not ends[0]:
            return None
        own = next((end for end in ends[0] if end.group == question.group), None)
        return replace(own or _end_of_all(ends[0]), group=question.group)


def _token(order: m.StartGroup) -> str:
    return order.environment.get("RESHAPE_TOKEN", "")


def _end_of_all(groups: Sequence[m.GroupStatus]) -> m.GroupStatus:
    """Return a group that failed, if one did."""
    return max(groups, key=lambda group: group.has_failed)

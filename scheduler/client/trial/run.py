"""One run of a program, with resizes or without, in a copy of the working directory.

It is watched: each rank notes its loop and iteration in shared memory (`reshape.files.job_folder`),
and writes its stack when it gets a signal (`reshape.data.trial`).
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from linecache import getline
from math import inf
from pathlib import Path
from typing import NamedTuple

import psutil

import reshape
from reshape.checkpoints.directory import OWNER_FILE
from reshape.data.trial import NOTE, STACK_SIGNAL
from reshape.errors import ReshapeError
from reshape.files.job_folder import place_text, read_positions
from reshape.topology import Topology
from reshape.wire.identity import PATIENCE_VARIABLE, TRIAL_VARIABLE
from scheduler.client.trial.comparison import TrialResults
from scheduler.client.trial.driver import Group, MistakeError, TrialDriver
from scheduler.client.trial.plan import Step
from scheduler.protocol import messages as m

#: Bytes of a working directory that is copied for each run, at most.
MOST_BYTES = 1 << 30
#: How long a job waits while a group starts, seconds; the watch ends a run that hangs before.
_PATIENCE_S = 1e6
#: What mpiexec prints when it is killed.
_KILLED = re.compile(r"\n?=+\n= +BAD TERMINATION.*?FAQ page for debugging suggestions\n", re.DOTALL)
#: Facts of the runtime. With a time between checkpoints they differ in each run.
_FACTS_OF_CHECKPOINTS = ("checkpoint", "checkpoint_iteration", "checkpoint_s", "restarted_from")
_DECLINED = "reshape try chooses the sizes"
_EVERY_S = 0.5
_STACKS_S = 5.0  # for the ranks to write their stacks
_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')
_FATAL = "Fatal Python error: "
_MOST_LINES = 15  # of the output of a group that has failed
_STALE = (
    "Under reshape try no process can access the memory that a resize has replaced: read `local`, "
    "and make views of it, again in each iteration"
)


class Program(NamedTuple):
    """What is tried.

    Attributes
    ----------
    command : the program and its arguments.
    size : number of processes at the start.
    folder : working directory, of which each run gets a copy.
    environment : that of the processes.
    limit_s : a run in which nothing advances for so long hangs, seconds.
    """

    command: Sequence[str]
    size: int
    folder: Path
    environment: Mapping[str, str]
    limit_s: float


class TrialRun:
    """One run of a program.

    Parameters
    ----------
    scratch : folder for everything that the run writes; it must not exist.

    Attributes
    ----------
    points : number of finished iterations at each resize point that the job has come to.
    topology : sizes that the program has declared; None: any.
    done : steps that were carried out.
    notes : what processes have left for the report.
    """

    def __init__(self, program: Program, scratch: Path) -> None:
        self.program, self._scratch = program, scratch
        self.folder, self._stacks = scratch / "files", scratch / "stacks"
        self.points: list[int] = []
        self.topology: Topology | None = None
        self.done: list[Step] = []
        self.notes: set[str] = set()

    def run(self, steps: Sequence[Step] = (), tell: Callable[[Step], None] = print) -> TrialResults:
        """Run the program to its end; return what it has left.

        Parameters
        ----------
        tell : called before each step.

        Raises
        ------
        MistakeError : the program fails or hangs, or a resize is rolled back.
        ReshapeError : the working directory cannot be copied.
        """
        for folder in (self._scratch, self._stacks):
            folder.mkdir()
        _copy(self.program.folder, self.folder, self._scratch.parent)
        before = _written(self.folder)
        with TrialDriver(
            self._scratch,
            self.program.command,
            self.folder,
            {
                **self.program.environment,
                PATIENCE_VARIABLE: str(_PATIENCE_S),
                TRIAL_VARIABLE: str(self._stacks),
            },
        ) as driver:
            watch = RunWatch(driver, self._stacks, self.program.limit_s)
            driver.on_idle, driver.decide = watch.look, self._proceed
            driver.limit_s = inf  # the watch ends a run that hangs
            self._job = [driver.start(self.program.size, "first")]
            try:
                self._follow(driver, steps, tell)
                watch.look()
            except MistakeError as mistake:
                why = watch.failure() or str(mistake)
                raise MistakeError(self._with_names(why)) from None
            self.topology = next((hello.topology for hello in driver.hellos), None)
            self.notes = set(map(self._with_names, watch.notes()))
            texts = [_KILLED.sub("", group.text) for group in driver.groups.values()]
            lines = [line for text in texts for line in text.splitlines()]
            after = _written(self.folder)
            files = frozenset(path for path, state in after.items() if before.get(path) != state)
            facts = {k: v for k, v in driver.facts.items() if k not in _FACTS_OF_CHECKPOINTS}
            return TrialResults(lines, facts, self.folder, files)

    def _follow(
        self, driver: TrialDriver, steps: Sequence[Step], tell: Callable[[Step], None]
    ) -> None:
        """Let the job run to its end, with these steps."""
        for step in steps:
            driver.serve(partial(_is_at, driver, step.at))
            if driver.has_ended:
                break
            tell(step)
            self._carry_out(driver, step)
            self.done.append(step)
        driver.serve(lambda: driver.has_ended)

    def _with_names(self, text: str) -> str:
        """Name files of the copy as those of the working directory."""
        return text.replace(f"{self.folder}{os.sep}", "")

    @property
    def has_checkpoints(self) -> bool:
        """Whether the program has written checkpoints in its working directory."""
        return any(OWNER_FILE in files for _, _, files in os.walk(self.folder))

    def _proceed(self, point: m.AtResizePoint) -> m.Message:
        self.points.append(point.iteration)
        asks = point.requests is not None
        return m.Proceed(answers=asks, declined=_DECLINED if asks else "")

    # ------------------------------------------------------------ the steps of a plan

    def _carry_out(self, driver: TrialDriver, step: Step) -> None:
        if step.kill == "job":
            driver.kill_job(self._job)
            self._job = [driver.start(step.size, "first")]
            return
        if step.kill is not None:
            self._kill_in_resize(driver, step)
            return
        if step.leave:
            leaving = [self._job[place] for place in step.leave]
            report = driver.contract(*(group.number for group in leaving))
            self._job = [group for group in self._job if group not in leaving]
        else:
            joining = driver.ready(step.size - sum(group.size for group in self._job))
            report = driver.join(joining)
            self._job.append(joining)
        if not report.ok:
            raise MistakeError(f"the resize to {step.size} processes is rolled back: {report.why}")

    def _kill_in_resize(self, driver: TrialDriver, step: Step) -> None:
        """Kill the group that joins, or all groups, when the job accepts the one that joins."""
        joining = driver.ready(step.size - sum(group.size for group in self._job))
        serial = driver.order_join(joining)
        if not any(port.serial == serial for port in driver.ports):
            raise MistakeError(f"the resize is rolled back: {driver.await_report(serial).why}")
        if step.kill == "joining group":
            driver.kill(joining)
            driver.cancel(driver.ports[-1].port)
            driver.await_report(serial)
        else:
            driver.kill_job([*self._job, joining])
            self._job = driver.restart(self._job)


def _is_at(driver: TrialDriver, iteration: int) -> bool:
    """Whether the job waits at the resize point after so many iterations, or has ended."""
    at = driver.waits_at
    return driver.has_ended or (at is not None and at.iteration >= iteration)


# ---------------------------------------------------------------- how it is watched


class RunWatch:
    """Raises a `MistakeError` when a group has failed, or nothing advances.

    Parameters
    ----------
    stacks : the folder in which processes write their stacks.
    limit_s : a run in which nothing has advanced for so long hangs, seconds.
    """

    def __init__(self, driver: TrialDriver, stacks: Path, limit_s: float) -> None:
        self._driver, self._stacks, self._limit_s = driver, stacks, limit_s
        self._looked_at, self._advanced_at = 0.0, time.monotonic()
        self._seen: object = None
        self._ranks: dict[int, int] = {}  # rank of each process when it was seen last

    def look(self) -> None:
        """Look whether all is well; call it often.

        Raises
        ------
        MistakeError : it is not.
        """
        if why := self.failure():
            raise MistakeError(why)
        now = time.monotonic()
        if now - self._looked_at < _EVERY_S:
            return
        self._looked_at = now
        seen = self._state()
        if seen != self._seen:
            self._seen, self._advanced_at = seen, now
        elif now - self._advanced_at > self._limit_s:
            raise MistakeError(self._hanging())

    def _state(self) -> object:
        """Something that changes when anything advances."""
        groups = self._driver.groups.values()
        output = [(group.number, group.out.stat().st_size) for group in groups]
        positions = read_positions(self._driver.shm)
        self._ranks |= {position.pid: position.rank for position in positions}
        places = [position[:-1] for position in positions]
        ended = [group.process.poll() for group in groups]
        return output, places, ended, self._driver.points, len(self._driver.reports)

    # ------------------------------------------------------------ a group that has failed

    def failure(self) -> str:
        """Why a group has failed; empty if none has.

        It is its signal, the error that it has reported, or its output.
        """
        groups = self._driver.groups.values()
        failed = [g for g in groups if not g.was_killed and g.process.poll() not in (None, 0)]
        if not failed:
            return ""
        crashes = []
        for pid, text in self._texts().items():
            if _FATAL in text:
                what = text.partition(_FATAL)[2].partition("\n")[0]
                crashes.append(f"{self._who(pid)}: {what}, at {_place(_calls(text))}")
        if crashes:
            return "\n".join([*crashes, _STALE])
        exits = f"a process ends with exit code {failed[0].process.returncode}"
        faults = list(dict.fromkeys(fault.why for fault in self._driver.faults))
        return "\n".join([*(faults or [exits]), *self._tail(failed[0])])

    def _tail(self, group: Group) -> list[str]:
        lines = [line for line in group.text.splitlines() if line.strip()]
        return [f"  | {line}" for line in lines[-_MOST_LINES:]]

    # ------------------------------------------------------------ a run that hangs

    def _hanging(self) -> str:
        """Where each rank is, with the calls of its stack that are in the program."""
        before = {pid: len(text) for pid, text in self._texts().items() if psutil.pid_exists(pid)}
        for pid in before:
            os.kill(pid, STACK_SIGNAL)
        end = time.monotonic() + _STACKS_S
        while any(len(self._texts()[pid]) == length for pid, length in before.items()):
            if time.monotonic() > end:  # one that ends writes none
                break
            time.sleep(_EVERY_S / 10)
        places = {p.pid: p for p in read_positions(self._driver.shm)}
        several = any(p.loop for p in places.values())
        messages = list[str]()
        for pid, length in before.items():
            at, where = places.get(pid), "has not begun a loop"
            if at is not None:
                where = f"is {place_text(at.loop, at.iteration, at.at_point, several)}"
            stack = _calls(self._texts()[pid][length:])
            calls = [f"      {place}" for place, is_of_program in stack if is_of_program]
            messages.append("\n".join([f"  {self._who(pid)} {where}", *calls]))
        begin = f"nothing has advanced for {self._limit_s:.3g} s: the ranks are apart, or wait"
        return "\n".join([begin, *sorted(messages)])

    # ------------------------------------------------------------ helpers

    def _texts(self) -> dict[int, str]:
        """What each process has written: stacks, and lines for the report."""
        files = sorted(self._stacks.iterdir())
        return {int(path.name): path.read_text(errors="replace") for path in files}

    def _who(self, pid: int) -> str:
        """Name a process by its rank, if it was seen in a loop."""
        return f"rank {self._ranks[pid]}" if pid in self._ranks else f"process {pid}"

    def notes(self) -> set[str]:
        """What processes have left for the report."""
        lines = (line for text in self._texts().values() for line in text.splitlines())
        return {line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)}


#: Files that are not of the program: of Python, this package and others.
_LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
    str(Path(reshape.__file__).parent),
    "<",
)


def _calls(text: str) -> list[tuple[str, bool]]:
    """The calls of the thread that a dump of faulthandler calls the current one.

    Each has its place, with the line there, and whether that is in the program.
    """
    calls = []
    block = text.rpartition("Current thread")[2].partition("\n\n")[0]
    for file, number, name in _FRAME.findall(block):
        line = getline(file, int(number)).strip()
        place = f"{file}:{number} in {name}" + (f": {line}" if line else "")
        calls.append((place, not file.startswith(_LIBRARIES)))
    return calls


def _place(calls: Sequence[tuple[str, bool]]) -> str:
    own = (place for place, is_of_program in calls if is_of_program)
    return next(own, calls[0][0] if calls else "no line")


# ---------------------------------------------------------------- the copy of the directory


def _copy(source: Path, target: Path, scratch: Path) -> None:
    """Copy the files and links of a directory, without hidden files and the scratch folder."""
    nbytes = 0
    for name, folders, files in os.walk(source):
        folders[:] = [
            each
            for each in folders
            if not _is_left_out(each) and not Path(name, each).samefile(scratch)
        ]
        origin, destination = Path(name), target / Path(name).relative_to(source)
        destination.mkdir()
        for path in [origin / each for each in [*folders, *files] if not _is_left_out(each)]:
            if path.is_symlink():
                (destination / path.name).symlink_to(_target(path, source))
            elif path.is_file():
                nbytes += path.stat().st_size
                if nbytes > MOST_BYTES:
                    raise ReshapeError(
                        f"{source} has more than {MOST_BYTES >> 30} GiB, and each run gets a copy: "
                        "try the program in a directory of its own, with links to large files"
                    )
                shutil.copy2(path, destination / path.name)


def _target(link: Path, source: Path) -> str:
    """Target of the copy of a link; one that leads out of the directory is absolute."""
    to = os.readlink(link)
    leads_out = not link.resolve().is_relative_to(source.resolve())
    return str(link.resolve()) if leads_out else to


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _written(folder: Path) -> dict[Path, tuple[int, ...]]:
    """State of each file in a folder; checkpoints, which belong to one size, are left out."""
    versions = dict[Path, tuple[int, ...]]()
    for name, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _is_left_out(each)]
        if OWNER_FILE in files:
            folders.clear()
            continue
        for file in files:
            path = Path(name, file)
            status = path.lstat()
            versions[path.relative_to(folder)] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return versions

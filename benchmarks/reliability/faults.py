"""The faults of a round, drawn from its seed, and the processes that they hit.

A fault happens at a moment (`at` seconds after the submissions) or at a `point`, which is reached
in a rank of a job (`RANK_POINTS`) or in the service (`SERVICE_POINTS`). The process that reaches
the point carries out the fault there and then; a file in the folder of the round ensures that it
happens once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import psutil

from reshape.wire.identity import STEP_VARIABLE

#: Variable with the folder of the round, for the service and the jobs.
FOLDER_VARIABLE = "CAMPAIGN_FOLDER"
#: Point in a rank -> phase of the resize. The side is the running job or the joining group.
RANK_POINTS = {
    "start joining": "starting",
    "await_port joining": "ready",
    "accept job": "joining, before the accept",
    "connect joining": "joining, before the connect",
    "admit job": "joining, after the accept",
    "introduce joining": "joining, after the connect",
    "relay job": "moving",
    "relay joining": "moving",
    "adopt job": "committed",
    "adopt joining": "committed",
    "contract job": "leaving",
    "disconnect job": "left",
}
#: Steps of the service.
STEPS = ("before journal", "after journal", "before sending", "after sending")
#: Phases as the service notes them in its journal.
PHASES = ("starting", "ready", "joining", "accepting", "committed", "leaving")
TARGETS = (
    "service",
    "agent",
    "mpiexec",
    "joining mpiexec",
    "rank",
    "joining rank",
    "joining group",
)
#: Faults that neither end nor stop a process of a job or an agent.
HARMLESS = frozenset(
    ("clock", "disk full", "slow journal", "messages", "second service", "damage", "slow state")
) | {"update task", "hold task"}
#: Tasks of the array of a round, two of them at a time.
TASKS = 4
#: Variables with the size in MiB of a value of `app.state`, and the seconds that restoring it takes
#: where a group joins.
STATE_VARIABLE, SLOW_VARIABLE = "CAMPAIGN_STATE_MIB", "CAMPAIGN_SLOW_S"


class Fault(msgspec.Struct, omit_defaults=True):
    """One fault of a round.

    Attributes
    ----------
    kind : "kill", "stop", "term", "cancel", "clock", "disk full", "memory full", "slow journal",
        "messages", "second service", "damage", "update task", "hold task", "cancel task" or
        "slow state".
    target : process that is hit, one of `TARGETS`.
    at : seconds after the submissions; the beginning of a fault that lasts.
    lasts : duration in seconds of a stop or of a state such as a full disk.
    point : point at which the fault happens instead.
    count : number of times that the point is reached before; index of a task.
    amount : seconds of a jump of the clock; probability that a message is affected; MiB of a state.
    """

    kind: str
    target: str = ""
    at: float = 0.0
    lasts: float = 0.0
    point: str = ""
    count: int = 0
    amount: float = 0.0

    @property
    def phase(self) -> str:
        """Where or when the fault happens, in words."""
        return RANK_POINTS.get(self.point, self.point) or f"after {self.at:.1f} s"

    @property
    def ends_jobs(self) -> bool:
        """Whether a job may fail because of this fault."""
        return self.kind not in HARMLESS and self.target not in ("service", "reader")

    def __str__(self) -> str:
        """Return the kind of the fault and what it hits."""
        return f"{self.kind} {self.target}".strip()


def draw(seed: int) -> list[Fault]:
    """Return the faults of the round with this seed: one or two, and rarely others beside them.

    Those of each kind have numbers of their own, so that a seed keeps its faults when others come.
    """
    numbers, others = random.Random(seed), random.Random(f"reader {seed}")
    tasks, states = random.Random(f"task {seed}"), random.Random(f"state {seed}")
    faults = [_draw(numbers) for _ in range(numbers.choice((1, 1, 2)))]
    if others.random() < 0.05:
        kind, at = others.choice(("kill", "stop")), round(others.uniform(0.2, 7.0), 2)
        faults.append(Fault(kind, "reader", at=at, lasts=2.0))
    if tasks.random() < 0.2:
        kind, at = tasks.choice(("update task", "hold task", "cancel task")), tasks.uniform(0, 4)
        faults.append(Fault(kind, at=round(at, 2), lasts=2.0, count=tasks.randrange(TASKS)))
    if states.random() < 0.1:
        mib, slow_s = states.choice((1.0, 32.0)), states.choice((0.0, 10.0))
        faults.append(Fault("slow state", amount=mib, lasts=slow_s))
    return faults


def _draw(numbers: random.Random) -> Fault:
    where = numbers.choices(("rank", "phase", "step", "time", "state"), (35, 15, 15, 20, 15))[0]
    at = round(numbers.uniform(0.2, 7.0), 2)
    if where == "state":
        return _state(numbers, at)
    kind = numbers.choices(("kill", "stop", "term"), (6, 2, 1))[0]
    fault = Fault(kind, numbers.choice(TARGETS), lasts=round(numbers.uniform(0.5, 5.0), 2))
    if where == "time":
        fault.at = at
        if numbers.random() < 0.2:
            return Fault("cancel", at=at)
        return fault
    if where == "rank":
        fault.point, fault.count = numbers.choice(sorted(RANK_POINTS)), numbers.randrange(3)
        fault.target = numbers.choice((*TARGETS, "self", "self", "self"))
    elif where == "phase":
        fault.point, fault.count = f"phase {numbers.choice(PHASES)}", numbers.randrange(3)
    else:
        fault.point, fault.count = f"step {numbers.choice(STEPS)}", numbers.randrange(80)
        fault.target = numbers.choice(("service", "service", "agent"))
    return fault


def _state(numbers: random.Random, at: float) -> Fault:
    kinds = ("clock", "disk full", "memory full", "slow journal", "messages", "messages")
    kind = numbers.choice((*kinds, "second service", "damage"))
    fault = Fault(kind, at=at, lasts=round(numbers.uniform(1.0, 5.0), 2))
    if kind == "clock":
        fault.amount = numbers.choice((-7200.0, -30.0, 30.0, 7200.0))
    if kind == "messages":
        fault.amount = numbers.choice((0.1, 0.3, 0.6))
    if kind == "slow journal":
        fault.amount = numbers.choice((0.05, 0.3, 1.0))
    if kind == "damage":
        fault.amount = numbers.choice((0.0, 1.0, 8.0))  # truncated, or number of flipped bits
    return fault


class Round:
    """What the processes of a round share: a folder with its faults and what has happened.

    Parameters
    ----------
    folder : `faults.json`, `begin` (monotonic seconds) and one file for each fault that happened.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults = msgspec.json.decode((folder / "faults.json").read_bytes(), type=list[Fault])
        self._reached: dict[str, int] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the submissions; -1 before them."""
        try:
            return time.monotonic() - float((self.folder / "begin").read_text())
        except (OSError, ValueError):
            return -1.0

    def present(self, kind: str) -> Iterator[Fault]:
        """Yield the faults of a kind whose time is now."""
        if not any(fault.kind == kind for fault in self.faults):
            return
        elapsed = self.elapsed
        for fault in self.faults:
            if fault.kind == kind and fault.at <= elapsed < fault.at + fault.lasts:
                yield fault

    def reach(self, point: str, server: str, job: int = 0, before: int | None = None) -> None:
        """Carry out the faults of a point that this process has reached after the submissions.

        Parameters
        ----------
        server, job : see `strike`.
        before : how often the point was reached before; None: as often as in this process.
        """
        for number, fault in enumerate(self.faults):
            if fault.point != point or self.elapsed < 0:
                continue
            key = f"{number} {job}"
            count = self._reached.get(key, 0) if before is None else before
            self._reached[key] = count + 1
            if count >= fault.count and self.claim(number):
                strike(self, number, server, job)

    def claim(self, number: int) -> bool:
        """Return whether this process is the first to carry out a fault."""
        try:
            (self.folder / f"fault-{number}").open("x").close()
        except FileExistsError:
            return False
        return True

    def has_happened(self, number: int) -> bool:
        """Whether a fault was carried out."""
        return (self.folder / f"fault-{number}").exists()


def strike(around: Round, number: int, server: str, job: int = 0) -> None:
    """Send the signal of a fault to the processes that it targets, to this process last.

    Parameters
    ----------
    server : endpoint of the service.
    job : hit processes of this job; 0: of any job.
    """
    fault = around.faults[number]
    signals = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
    pids = [os.getpid()] if fault.target == "self" else _targets(fault.target, server, job, number)
    until = time.monotonic() + fault.lasts
    record = {"until": until, "pids": pids if fault.kind == "stop" else [], "hit": len(pids)}
    (around.folder / f"fault-{number}").write_bytes(msgspec.json.encode(record))
    for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signals[fault.kind])


def own_number(environment: Mapping[str, str]) -> int:
    """Number of the job of a process, also if it is a step; 0 if it has none."""
    return int(environment.get(STEP_VARIABLE) or environment.get("RESHAPE_JOB", 0))


def _targets(target: str, server: str, job: int, seed: int) -> list[int]:
    """Process numbers of what a fault hits; empty if there is no such process at the moment."""
    folder = os.environ[FOLDER_VARIABLE]
    ranks: list[tuple[int, int, str]] = []  # process, group, role
    launchers: list[tuple[int, str]] = []
    for process in psutil.process_iter():
        try:
            line, environment = process.cmdline(), process.environ()
        except (psutil.Error, OSError):
            continue
        if target == "service" and "serve" in line and folder in " ".join(line):
            return [process.pid]
        is_reader = "scheduler.service.reader_process" in line
        if target == "reader" and is_reader and folder in " ".join(line):
            return [process.pid]
        if target == "agent" and "agent" in line and folder in " ".join(line):
            return [process.pid]
        if environment.get("RESHAPE_SERVER") != server:
            continue
        if job and own_number(environment) != job:
            continue
        role = environment.get("RESHAPE_ROLE", "")
        if "job.py" in " ".join(line) and "python" in process.name():
            ranks.append((process.pid, int(environment.get("RESHAPE_GROUP", 0)), role))
        elif "mpiexec" in process.name():
            launchers.append((process.pid, role))
    if target in ("service", "reader", "agent"):
        return []  # there is none at this moment
    numbers = random.Random(seed)
    if target in ("mpiexec", "joining mpiexec"):
        found = [pid for pid, role in launchers if (role == "join") == target.startswith("joining")]
        return [numbers.choice(found)] if found else []
    latest = max((group for _, group, role in ranks if role == "join"), default=-1)
    joining = [pid for pid, group, _ in ranks if group == latest]
    if target == "joining group":
        return joining
    found = joining if target == "joining rank" else [pid for pid, *_ in ranks]
    return [numbers.choice(found)] if found else []

"""Faults of a round that have a time: full disks, damaged journals, stopped processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from faults import Fault, Round, strike
from round_service import AWAY, FINAL, Service

from scheduler.protocol import messages as m

#: Seconds after which a job that has not ended counts as hung.
PATIENCE_S = 180.0


def follow(service: Service, jobs: dict[int, str]) -> set[int]:
    """Carry out the faults that have a time until all jobs have ended; return those cancelled."""
    around, cancelled = service.around, set[int]()
    end = time.monotonic() + PATIENCE_S
    states: list[State] = []
    while time.monotonic() < end:
        for number, fault in enumerate(around.faults):
            if not fault.point and around.elapsed >= fault.at and not around.has_happened(number):
                begin(service, number, fault, states, jobs, cancelled)
        states = [each for each in states if not each.is_over(around) or not each.end()]
        continue_stopped(around)
        service.keep_up()
        found = service.jobs()
        pending = any(
            not fault.point
            and (not around.has_happened(number) or around.elapsed < fault.at + fault.lasts)
            for number, fault in enumerate(around.faults)
        )
        # A job comes to be known as the service starts again, unless damage has removed its record.
        unknown = found is None or (jobs.keys() - found.keys() and not is_damaged(around))
        under_way = states or pending or stopped(around) or unknown
        if not under_way and all(job.state in FINAL for job in (found or {}).values()):
            return cancelled
        time.sleep(0.1)
    service.outcome.hung += [f"{each.fault} did not end" for each in states if not each.end()]
    continue_stopped(around, all_of_them=True)
    return cancelled


class State:
    """A fault that lasts, such as a full disk, and how it ends.

    Parameters
    ----------
    end : ends it if that can be done now, without waiting for the end of another fault, which comes
        in the same loop; returns whether it has ended.
    """

    def __init__(self, fault: Fault, end: Callable[[], bool]) -> None:
        self.fault, self.end = fault, end

    def is_over(self, around: Round) -> bool:
        """Whether the fault has lasted long enough."""
        return around.elapsed >= self.fault.at + self.fault.lasts


def begin(
    service: Service,
    number: int,
    fault: Fault,
    states: list[State],
    jobs: dict[int, str],
    cancelled: set[int],
) -> None:
    """Carry out a fault whose time has come."""
    around = service.around
    if not around.claim(number):
        return
    match fault.kind:
        case "kill" | "stop" | "term":
            strike(around, number, service.endpoint)
        case "cancel":
            job = random.Random(number + service.outcome.seed).choice(sorted(jobs))
            cancelled.add(job)
            service.ask(m.ChangeJobs.one(job, m.CancelJob()), 5.0)
        case "disk full":
            states.append(State(fault, fill(service.place.path)))
        case "memory full":
            states.append(State(fault, fill(Path("/dev/shm"))))
        case "second service":
            first, other = service.process, service.another()
            states.append(State(fault, lambda: check_second(service, first, other)))
        case "damage":
            damage(service, fault)
        case "update task" | "hold task" | "cancel task":
            for array in [number for number, kind in jobs.items() if kind == "array"]:
                if (state := change_task(service, fault, array, cancelled)) is not None:
                    states.append(state)


def change_task(service: Service, fault: Fault, array: int, cancelled: set[int]) -> State | None:
    """Update, hold or cancel a task of an array, which may not have come to the queue yet.

    A command may fail, as the task may have ended, or the service be away.

    Returns
    -------
    what releases the task; None if nothing does.
    """
    task, number = f"{array}_{fault.count}", array + 1 + fault.count
    if fault.kind == "cancel task":
        cancelled.add(number)
        service.command("cancel", task)
    elif fault.kind == "update task":
        name = f"renamed-{task}"
        if not service.command("update", task, "--name", name):
            service.renamed[number] = name
    else:
        service.command("hold", task)
        return State(fault, lambda: release(service, task))
    return None


def release(service: Service, task: str) -> bool:
    """Release a task; return whether the service has answered.

    A refusal means that it does not wait any more, or was never held.
    """
    error = service.command("release", task)
    return not any(words in error for words in AWAY)


def fill(folder: Path) -> Callable[[], bool]:
    """Fill the file system of a folder; return what removes the file that does so."""
    path = folder / "filler"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)

    def end() -> bool:
        path.unlink(missing_ok=True)
        return True

    return end


def check_second(
    service: Service, first: subprocess.Popen[bytes] | None, other: subprocess.Popen[bytes]
) -> bool:
    """Check that the second service of a directory ends with an error; return whether it has ended.

    If another fault ended the first one meanwhile, the second one may take its place; it is killed
    then, as the round starts another one itself.
    """
    code = other.poll()
    if service.process is first and first is not None and first.poll() is None:
        if code == 0:
            service.outcome.wrong.append("a second service ran in the same directory")
    elif not code:
        other.kill()
        other.wait()
        service.outcome.notes.append("the second service could take the place of the first one")
        return True
    return code is not None


def damage(service: Service, fault: Fault) -> None:
    """Kill the service, damage its journal, and start it.

    If the journal is refused, the loss is accepted in every other round. If that is refused, too,
    and in the other rounds, the journal is restored.
    """
    assert service.process is not None
    service.process.kill()
    service.process.wait()
    journal = service.place.journal
    files = [path for path in journal.parent.glob("journal.db*") if path.suffix != ".db-shm"]
    saved = service.around.folder / "saved"
    saved.mkdir(exist_ok=True)
    for path in files:
        shutil.copy(path, saved)
    numbers = random.Random(service.outcome.seed)
    for path in files:
        if path.stat().st_size:
            with path.open("r+b") as file:
                _damage(file, path.stat().st_size, int(fault.amount), numbers)
    if _is_up(service):
        return
    if service.outcome.seed % 2 == 0:
        service.outcome.notes.append("the damaged journal is refused; its loss is accepted")
        if _is_up(service, "--accept-loss"):
            return
    service.outcome.notes.append("the damaged journal is refused; it is restored")
    for path in journal.parent.glob("journal.db*"):
        path.unlink()
    for path in saved.iterdir():
        shutil.copy(path, journal.parent)
    service.start()


def is_damaged(around: Round) -> bool:
    """Whether a fault has damaged the journal, so that jobs may be forgotten."""
    damages = (n for n, fault in enumerate(around.faults) if fault.kind == "damage")
    return any(around.has_happened(number) for number in damages)


def _is_up(service: Service, *options: str) -> bool:
    """Start the service; return whether it answers, and not has refused its journal and ended.

    Only its own end is a refusal: one that is slow may have written to the journal already.
    """
    service.start(*options)
    assert service.process is not None
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and service.process.poll() is None:
        info = service.ask(m.ServerInfo())
        if isinstance(info, m.Info) and service.jobs() is not None:
            if info.unreadable:
                service.outcome.notes.append(f"{len(info.unreadable)} records are unreadable")
            return True
        time.sleep(0.1)
    if service.process.poll() is None:
        service.outcome.hung.append("the service neither refuses a damaged journal nor answers")
        service.process.kill()
        service.process.wait()
    return False


def _damage(file: Any, size: int, bits: int, numbers: random.Random) -> None:
    if not bits:
        file.truncate(numbers.randrange(size))
    for _ in range(bits):
        at = numbers.randrange(size)
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << numbers.randrange(8)]))


def stopped(around: Round) -> list[tuple[float, list[int]]]:
    """Processes that faults have stopped, each with the time at which they continue."""
    found = []
    for number in range(len(around.faults)):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            record = msgspec.json.decode((around.folder / f"fault-{number}").read_bytes())
            if record["pids"]:
                found.append((record["until"], record["pids"]))
    return found


def hits(around: Round) -> list[int]:
    """Number of processes that each fault has hit; 1 for other faults that have happened."""
    counts = []
    for number in range(len(around.faults)):
        path, count = around.folder / f"fault-{number}", 0
        if path.exists():
            with contextlib.suppress(msgspec.DecodeError):
                count = msgspec.json.decode(path.read_bytes() or b'{"hit":1}')["hit"]
        counts.append(count)
    return counts


def continue_stopped(around: Round, *, all_of_them: bool = False) -> None:
    """Let processes that a fault has stopped continue when it is over."""
    for number in range(len(around.faults)):
        path = around.folder / f"fault-{number}"
        with contextlib.suppress(OSError, msgspec.DecodeError):
            record = msgspec.json.decode(path.read_bytes())
            if record["pids"] and (all_of_them or time.monotonic() > record["until"]):
                for pid in record["pids"]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                path.write_bytes(msgspec.json.encode(record | {"pids": []}))

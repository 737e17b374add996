"""What must hold at the end of a round: true ends of all jobs, and nothing left of them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec
import psutil
from faults import FOLDER_VARIABLE, TASKS
from isolation import is_isolated
from round_service import FINAL, PROCESSORS, Service, submit

from reshape.errors import ReshapeError
from scheduler.client import background
from scheduler.partition.job_events import HOLD_S
from scheduler.protocol import messages as m

#: Seconds for processes and shared memory to be removed after the last job.
CLEAN_S = 45.0
#: Seconds within which a further submission ends.
NEXT_S = 45.0
#: Descriptors that a service or an agent may have more than when it was idle at first.
MORE_DESCRIPTORS = 6


def check_jobs(
    service: Service, acknowledged: dict[int, str], cancelled: set[int], work: Path
) -> None:
    """Every acknowledged job has exactly one end, which is true."""
    outcome = service.outcome
    service.wait_up(30.0)
    end = time.monotonic() + 30.0
    while (found := service.jobs()) is None and time.monotonic() < end:
        service.keep_up()
    if found is None:
        outcome.hung.append("the service does not answer")
        return
    faults = [f for n, f in enumerate(service.around.faults) if service.around.has_happened(n)]
    excused = any(fault.ends_jobs for fault in faults)
    is_damaged = any(fault.kind == "damage" for fault in faults)
    only_kills = all(fault.kind == "kill" for fault in faults)
    kinds = dict(acknowledged)
    for number in [number for number, kind in acknowledged.items() if kind == "array"]:
        kinds |= dict.fromkeys(range(number + 1, number + 1 + TASKS), "task")
    ended_early = {n for n in cancelled if kinds.get(n) == "array"}
    for number in kinds.keys() - found.keys():
        is_task = kinds[number] == "task"
        if not is_damaged and not (is_task and (ended_early or number in cancelled)):
            outcome.lost.append(f"job {number} is not known any more")
    for number, name in service.renamed.items():
        if number in found and found[number].name != name and not is_damaged:
            outcome.lost.append(f"the update of job {number}, whose name is {found[number].name}")
    for number, job in found.items():
        outcome.resizes += len(job.resizes)
        outcome.restarts += job.restarts + job.requeues
        is_requeued = kinds.get(number) == "requeued"
        outcome.states.append(f"{number} {job.state}")
        result = work / f"result-{number}"
        lines = result.read_text().split("\n")[:-1] if result.exists() else []
        text = f"job {number} is {job.state} {job.exit_code}:{job.signal} ({job.reason}): {lines}"
        # A job that is queued again may die after its result, and verify it once more.
        most = 1 + job.requeues
        if any(line != "verified True" for line in lines) or len(lines) > most:
            outcome.wrong.append(text)
        if job.state not in FINAL or job.state == "TIMEOUT":
            outcome.hung.append(text)
        elif job.state == "COMPLETED":
            if (not lines and kinds.get(number) != "array") or job.exit_code or job.signal:
                outcome.wrong.append(text)
        elif job.state == "CANCELLED":
            # A step ends with its job, and a task is cancelled with its array.
            parent = found.get(job.step_of)
            is_ended = parent is not None and (parent.state != "COMPLETED" or parent.requeues)
            was_its_array = bool(ended_early) and kinds.get(number) == "task"
            if number not in cancelled and not is_ended and not was_its_array:
                outcome.wrong.append(text)
        elif not is_damaged and (not excused or (is_requeued and only_kills)):
            outcome.lost.append(text)
        elif not excused and "its agent" in job.reason:  # no fault has hit an agent
            outcome.wrong.append(text)


def check_left(service: Service, idle: dict[str, int], work: Path) -> None:
    """Nothing is left of the jobs, the next submission works, and the service ends at once."""
    outcome = service.outcome
    within_s = NEXT_S
    if any(fault.kind == "memory full" for fault in service.around.faults):
        # A start may have failed for lack of it, so that nothing starts for a while on the
        # processors that were free. If several have, the node drains until a probe passes.
        within_s += HOLD_S
    end = time.monotonic() + CLEAN_S
    while (left := remains(service)) and time.monotonic() < end:
        service.keep_up()
        time.sleep(0.1)
    outcome.leaked += left
    time.sleep(0.5)  # the service notices an agent that a fault has just ended
    service.wait_up(30.0)
    number = submit(service, work, ["true"], PROCESSORS)
    outcome.jobs += 1
    end = time.monotonic() + within_s
    state = ""
    while state not in FINAL and time.monotonic() < end and number is not None:
        service.keep_up()
        state = (service.jobs() or {}).get(number, _NONE).state
        time.sleep(0.05)
    if state != "COMPLETED":
        outcome.hung.append(f"the next submission is {state or 'not acknowledged'}")
    for name, count in descriptors(service.around.folder).items():
        if count > idle.get(name, 0) + MORE_DESCRIPTORS:
            outcome.leaked.append(f"{name} has {count} descriptors, {idle.get(name)} at first")
    try:
        background.stop(service.place.path, kill=bool(outcome.hung))
    except ReshapeError as error:
        outcome.hung.append(f"stop: {error}")
    end = time.monotonic() + 5
    while (left := processes(service) + memory()) and time.monotonic() < end:
        time.sleep(0.1)
    outcome.leaked += [f"after the end of the service: {each}" for each in left]


_NONE = msgspec.defstruct("_NONE", [("state", str, "")])()


def remains(service: Service) -> list[str]:
    """Processes, processors and shared memory that are in use without a job."""
    found = processes(service, of_jobs=True)
    found += [each for each in memory() if not each.startswith("reshape-")]
    with contextlib.suppress(OSError):
        found += [f"folder {path.name}" for path in service.place.memory.glob("job-*")]
    info = service.ask(m.ServerInfo())
    if not isinstance(info, m.Info):
        found.append("the service does not answer")
    elif info.free != PROCESSORS:
        found.append(f"{info.free} processors of {PROCESSORS} are free")
    return found


def processes(service: Service, *, of_jobs: bool = False) -> list[str]:
    """Processes of the jobs, and of the service and its agents."""
    found, folder = [], str(service.around.folder)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            line = " ".join(process.cmdline())
            environment = process.environ()
            belongs = environment.get("RESHAPE_SERVER") == service.endpoint
            belongs |= "RESHAPE_AGENT" in environment and FOLDER_VARIABLE in environment
            if belongs or (not of_jobs and folder in line and "one_round" not in line):
                found.append(f"process {process.pid} {line[:100]}")
    return found


def memory() -> list[str]:
    """Entries of /dev/shm; without isolation only those of the service's own folder are counted."""
    return sorted(os.listdir("/dev/shm")) if is_isolated() else []


def descriptors(folder: Path) -> dict[str, int]:
    """Number of open descriptors of the service and of the agent."""
    counts = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            line = process.cmdline()
            if str(folder) in " ".join(line):
                for name in {"serve", "agent"} & set(line):
                    counts[name] = process.num_fds()
    return counts

"""One round: a service, its jobs, the faults of a seed, and what must hold afterwards.

    python one_round.py SEED FOLDER [--faults JSON]

prints one JSON object. As root it runs in namespaces of its own (`isolated`): it sees no other
process, has a /dev/shm of its own, and the service directory is on a small file system of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
from faults import FOLDER_VARIABLE, Fault, Round, draw, strike

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire import messages as m
from scheduler.client import background
from scheduler.client.asking import ask
from scheduler.node.directory import ServiceDirectory

HERE = Path(__file__).resolve().parent
PROCESSORS = 8
SERVICE = f"""
processors: {PROCESSORS}
scenario: restless:Restless
verify: true
deadlines: {{start_s: 8, ready_s: 8, join_s: 6, exit_s: 4, node_lost_s: 6}}
"""
#: Seconds after which a job that has not ended counts as hung.
PATIENCE_S = 60.0
#: Seconds for processes and shared memory to be removed after the last job.
CLEAN_S = 15.0
#: Descriptors that a service or an agent may have more than when it was idle at first.
MORE_DESCRIPTORS = 6
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


class Outcome(msgspec.Struct):
    """What a round has shown; the last four lists are empty if everything holds."""

    seed: int
    faults: list[str]
    phases: list[str]
    jobs: int = 0
    resizes: int = 0
    restarts: int = 0
    seconds: float = 0.0
    states: list[str] = []
    notes: list[str] = []
    hit: list[int] = []
    lost: list[str] = []
    wrong: list[str] = []
    hung: list[str] = []
    leaked: list[str] = []


class Service:
    """The service of a round; it is started again whenever it has ended.

    Parameters
    ----------
    around : the round; its folder becomes that of the service, too.
    """

    def __init__(self, around: Round, outcome: Outcome) -> None:
        self.around, self.outcome = around, outcome
        self.place = ServiceDirectory(around.folder / "service")
        self.config = around.folder / "service.yaml"
        self.config.write_text(SERVICE)
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        """Start a process of the service."""
        self.process = self.another()
        self.starts += 1

    def another(self) -> subprocess.Popen[bytes]:
        """Start a process that serves the directory."""
        command = [sys.executable, str(HERE / "served.py"), "serve", "--dir", str(self.place.path)]
        with (self.around.folder / "serve.log").open("ab") as log:
            command += ["--config", str(self.config), "--set", f"resizing.seed={self.outcome.seed}"]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def keep_up(self) -> None:
        """Start the service again if it has ended."""
        if self.process is not None and self.process.poll() is not None:
            self.outcome.notes.append(f"service ended with {self.process.returncode}")
            time.sleep(0.2 if self.starts < 20 else 2.0)
            self.start()

    def ask(self, message: m.Message, timeout: float = 1.0) -> m.Message | None:
        """Return the answer of the service, None if there is none in time or it refuses."""
        try:
            return ask(self.place.path, message, timeout)
        except (ReshapeError, OSError) as error:
            if not isinstance(error, ServiceUnavailable) and str(error) not in self.outcome.notes:
                self.outcome.notes.append(str(error))
            return None

    def wait_up(self, within: float, *, first: bool = False) -> m.Info | None:
        """Wait until the service answers and its node is up."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if first and self.process is not None and self.process.poll() is not None:
                return None
            self.keep_up()
            info = self.ask(m.ServerInfo())
            if isinstance(info, m.Info) and all(state == "up" for *_, state in info.nodes):
                return info
            time.sleep(0.05)
        return None

    def jobs(self) -> dict[int, m.JobInfo] | None:
        """Return all jobs of the service, None if it does not answer."""
        answer = self.ask(m.ListJobs(ended=True), 2.0)
        return {job.job: job for job in answer.jobs} if isinstance(answer, m.Jobs) else None


def run(seed: int, folder: Path, faults: list[Fault]) -> Outcome:
    """Run the round of a seed in a folder that is new."""
    began = time.monotonic()
    (folder / "faults.json").write_bytes(msgspec.json.encode(faults))
    outcome = Outcome(seed, [str(fault) for fault in faults], [fault.phase for fault in faults])
    work = folder / "work"
    work.mkdir()
    (folder / "service").mkdir()
    around = Round(folder)
    if os.getuid() == 0:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder / "service"], check=True
        )
    service = Service(around, outcome)
    service.start()
    if service.wait_up(30.0, first=True) is None:
        outcome.hung.append("the service does not start")
        return outcome
    idle = descriptors(folder)
    acknowledged = submit_all(service, work, seed)
    (folder / "begin").write_text(repr(time.monotonic()))
    cancelled = follow(service, acknowledged)
    check_jobs(service, acknowledged, cancelled, work)
    check_left(service, idle, work)
    outcome.jobs += len(acknowledged)
    outcome.hit = hits(around)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def submit_all(service: Service, work: Path, seed: int) -> dict[int, str]:
    """Submit the jobs of a round; return the kinds of the acknowledged ones by number."""
    numbers = random.Random(seed)
    iterations = str(numbers.randint(40, 60))
    program = [sys.executable, str(HERE / "job.py"), iterations, "0.07"]
    plain = "sleep 4; echo verified True >> result-$RESHAPE_JOB"
    submissions = [
        ("resizes", program, 2, 6),
        ("requeued", program, numbers.choice((1, 2)), 4),
        ("plain", ["sh", "-c", plain], 1, None),
    ]
    done: dict[int, str] = {}
    for kind, argv, processors, most in submissions:
        number = submit(service, work, argv, processors, most, requeue=kind == "requeued")
        if number is not None:
            done[number] = kind
    return done


def submit(
    service: Service,
    work: Path,
    argv: list[str],
    processors: int,
    most: int | None = None,
    *,
    requeue: bool = False,
) -> int | None:
    """Submit a job; return its number, None if the submission is not acknowledged.

    One that is to be queued again after a death writes checkpoints.
    """
    checkpoints = {"CAMPAIGN_CHECKPOINT_EVERY": "7"} if requeue else {}
    submission = m.Submission(
        argv=argv,
        processors=processors,
        max_processors=most,
        walltime_s=120.0,
        cwd=str(work),
        environment=dict(os.environ) | checkpoints,
        requeue=requeue,
    )
    answer = service.ask(m.Submit(submission=submission), 10.0)
    return answer.job if isinstance(answer, m.Submitted) else None


# ---------------------------------------------------------------- while the jobs run


def follow(service: Service, jobs: dict[int, str]) -> set[int]:
    """Carry out the faults that have a time until all jobs have ended; return those cancelled."""
    around, cancelled = service.around, set[int]()
    end = time.monotonic() + PATIENCE_S
    states: list[State] = []
    while time.monotonic() < end:
        for number, fault in enumerate(around.faults):
            if not fault.point and around.elapsed >= fault.at and not around.has_happened(number):
                begin(service, number, fault, states, jobs, cancelled)
        for state in list(states):
            if state.is_over(around):
                states.remove(state)
                state.end()
        continue_stopped(around)
        service.keep_up()
        found = service.jobs()
        pending = any(
            not fault.point
            and (not around.has_happened(number) or around.elapsed < fault.at + fault.lasts)
            for number, fault in enumerate(around.faults)
        )
        under_way = (
            states or pending or stopped(around) or found is None or jobs.keys() - found.keys()
        )
        if not under_way and all(job.state in FINAL for job in (found or {}).values()):
            return cancelled
        time.sleep(0.1)
    for state in states:
        state.end()
    continue_stopped(around, all_of_them=True)
    return cancelled


class State:
    """A fault that lasts, such as a full disk, and how it ends."""

    def __init__(self, fault: Fault, end: Callable[[], Any]) -> None:
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
            strike(around, number, service.place.endpoint)
        case "cancel":
            job = random.Random(number + service.outcome.seed).choice(sorted(jobs))
            cancelled.add(job)
            service.ask(m.Cancel(job=job), 5.0)
        case "disk full":
            states.append(State(fault, fill(service.place.path)))
        case "memory full":
            states.append(State(fault, fill(Path("/dev/shm"))))
        case "second service":
            other = service.another()
            states.append(State(fault, lambda: check_second(service, other)))
        case "damage":
            damage(service, fault)


def fill(folder: Path) -> Callable[[], Any]:
    """Fill the file system of a folder; return what removes the file that does so."""
    path = folder / "filler"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
    return lambda: path.unlink(missing_ok=True)


def check_second(service: Service, other: subprocess.Popen[bytes]) -> None:
    """The second service of a directory must have ended, with an error."""
    try:
        code = other.wait(10)
    except subprocess.TimeoutExpired:
        other.kill()
        code = 0
    if code == 0:
        service.outcome.wrong.append("a second service ran in the same directory")


def damage(service: Service, fault: Fault) -> None:
    """Kill the service, damage its journal, and start it; restore a journal that is refused."""
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
    service.start()
    assert service.process is not None
    end = time.monotonic() + 8
    while time.monotonic() < end and service.process.poll() is None:
        info = service.ask(m.ServerInfo())
        if isinstance(info, m.Info) and service.jobs() is not None:
            if info.unreadable:
                service.outcome.notes.append(f"{len(info.unreadable)} records are unreadable")
            return
        time.sleep(0.1)
    service.outcome.notes.append("the damaged journal is refused; it is restored")
    service.process.kill()
    service.process.wait()
    for path in journal.parent.glob("journal.db*"):
        path.unlink()
    for path in saved.iterdir():
        shutil.copy(path, journal.parent)
    service.start()


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


# ---------------------------------------------------------------- what must hold


def check_jobs(
    service: Service, acknowledged: dict[int, str], cancelled: set[int], work: Path
) -> None:
    """Every acknowledged job has exactly one end, which is true."""
    outcome = service.outcome
    service.wait_up(10.0)
    found = service.jobs()
    if found is None:
        outcome.hung.append("the service does not answer")
        return
    faults = [f for n, f in enumerate(service.around.faults) if service.around.has_happened(n)]
    excused = any(fault.ends_jobs for fault in faults)
    is_damaged = any(fault.kind == "damage" for fault in faults)
    only_kills = all(fault.kind == "kill" for fault in faults)
    for number in acknowledged.keys() - found.keys():
        if not is_damaged:
            outcome.lost.append(f"job {number} is not known any more")
    for number, job in found.items():
        outcome.resizes += len(job.resizes)
        outcome.restarts += job.restarts + job.requeues
        is_requeued = acknowledged.get(number) == "requeued"
        outcome.states.append(f"{number} {job.state}")
        result = work / f"result-{number}"
        lines = result.read_text().split("\n")[:-1] if result.exists() else []
        text = f"job {number} is {job.state} {job.exit_code}:{job.signal} ({job.reason}): {lines}"
        # A job that is queued again may die after its result, and verify it once more.
        most = 1 + job.requeues if is_requeued else 1
        if any(line != "verified True" for line in lines) or len(lines) > most:
            outcome.wrong.append(text)
        if job.state not in FINAL or job.state == "TIMEOUT":
            outcome.hung.append(text)
        elif job.state == "COMPLETED":
            if not lines or job.exit_code or job.signal:
                outcome.wrong.append(text)
        elif job.state == "CANCELLED":
            if number not in cancelled:
                outcome.wrong.append(text)
        elif not is_damaged and (not excused or (is_requeued and only_kills)):
            outcome.lost.append(text)


def check_left(service: Service, idle: dict[str, int], work: Path) -> None:
    """Nothing is left of the jobs, the next submission works, and the service ends at once."""
    outcome = service.outcome
    end = time.monotonic() + CLEAN_S
    while (left := remains(service)) and time.monotonic() < end:
        service.keep_up()
        time.sleep(0.1)
    outcome.leaked += left
    time.sleep(0.5)  # the service notices an agent that a fault has just ended
    service.wait_up(10.0)
    number = submit(service, work, ["true"], PROCESSORS)
    outcome.jobs += 1
    end = time.monotonic() + 15
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
            belongs = environment.get("RESHAPE_SERVER") == service.place.endpoint
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


# ---------------------------------------------------------------- isolation


def is_isolated() -> bool:
    """Whether this process runs in namespaces of its own."""
    return os.environ.get("CAMPAIGN_ISOLATED") == "1"


def isolated(command: list[str]) -> list[str]:
    """Return the command, run in namespaces of its own if the system allows it."""
    space = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.getuid() or shutil.which("unshare") is None:
        return command
    if subprocess.run([*space, "true"], capture_output=True, check=False).returncode:
        return command
    script = 'mount -t tmpfs -o size=256m tmpfs /dev/shm && CAMPAIGN_ISOLATED=1 "$@"; exit $?'
    return [*space, "sh", "-c", script, "sh", *command]


def main() -> None:
    """Run one round and print its outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--faults", help="JSON list of faults in place of those of the seed")
    options = parser.parse_args()
    faults = draw(options.seed)
    if options.faults:
        faults = msgspec.json.decode(options.faults, type=list[Fault])
    folder = options.folder.resolve()
    folder.mkdir(parents=True)
    os.environ[FOLDER_VARIABLE] = str(folder)
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    outcome = run(options.seed, folder, faults)
    if is_isolated():
        collect_journal(folder)
    sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")


def collect_journal(folder: Path) -> None:
    """Copy the service directory out of the file system that ends with this process."""
    with contextlib.suppress(OSError, sqlite3.Error):
        shutil.copytree(folder / "service", folder / "service-end", ignore=_sockets)


def _sockets(where: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(where) / name).is_socket() or name == "filler"}


if __name__ == "__main__":
    main()

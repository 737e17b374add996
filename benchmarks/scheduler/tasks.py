"""Many small tasks on one machine: tasks per second from the submission to the end of the last one.

    python benchmarks/scheduler/tasks.py [--tasks 2000] [--hyperqueue PYTHON] [--json]

starts a real service with its agent (`reshape serve`) for each row in a directory of its own. The
rows, of which `--rows` names some:

    alone      the same shell commands, started by this program alone, as many at a time as there
               are processors: what the processes themselves take on this machine
    array      `reshape batch --array 0-(N-1) --wrap true`
    scripts    N submissions of `reshape batch --wrap true`, over 20 connections
    mpiexec    `reshape submit --array 0-(N/10-1) -n 1 true`; each task runs under an mpiexec
    hyperqueue N tasks `true` of HyperQueue, if `--hyperqueue` names an interpreter that has it

`accepted_s` is the time until all submissions were acknowledged, which is after they were synced to
the disk. `per_s` is the number of tasks divided by the time from the first submission until the
journal has the end of the last one. The processor times are milliseconds per task: of the service,
of the agent with its starter, and of all processes of the tasks. `peak_mib` is the largest memory
of the service. Each row checks that the journal has as many completed tasks as were submitted.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from service import submit

from scheduler.client import background
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import connect

SHELL = ["/bin/sh", "-c", "true"]
LIMIT_S = 3600.0
#: The arguments are the folder of the server, the cores and the number of tasks.
HYPERQUEUE = """
import json, os, sys, time
import hyperqueue
from hyperqueue.cluster import LocalCluster, WorkerConfig
folder, cores, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chdir(folder)
with LocalCluster(folder, WorkerConfig(cores=cores)) as cluster:
    client = cluster.client()
    job = hyperqueue.Job()
    for number in range(count):
        job.program(["/bin/sh", "-c", "true"], stdout=f"{number}.out", stderr=f"{number}.err")
    before, began = os.times(), time.perf_counter()
    submitted = client.submit(job)
    accepted = time.perf_counter() - began
    assert client.wait_for_jobs([submitted])
    seconds, after = time.perf_counter() - began, os.times()
assert len(os.listdir(folder)) > 2 * count
own = after.user + after.system - before.user - before.system
below = after.children_user + after.children_system
below -= before.children_user + before.children_system
print(json.dumps({"seconds": seconds, "accepted_s": accepted, "own": own, "below": below}))
"""


def _row(what: str, count: int, seconds: float, **more: float) -> dict[str, Any]:
    row = {"what": what, "tasks": count, "per_s": round(count / seconds, 1)}
    return row | {name: round(value, 3) for name, value in more.items()}


def alone(count: int, processors: int) -> dict[str, Any]:
    """Start the commands without a scheduler."""
    running: list[subprocess.Popen[bytes]] = []
    before, began = os.times(), time.perf_counter()
    for _ in range(count):
        if len(running) == processors:
            running.pop(0).wait()
        running.append(subprocess.Popen(SHELL))
    for process in running:
        process.wait()
    seconds, after = time.perf_counter() - began, os.times()
    below = after.children_user + after.children_system
    below -= before.children_user + before.children_system
    return _row("alone", count, seconds, task_ms=1e3 * below / count)


def hyperqueue(python: Path, count: int, processors: int) -> dict[str, Any]:
    """Run the tasks by a server and a worker of HyperQueue in one process, each with its output."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(python), "-c", HYPERQUEUE, folder, str(processors), str(count)]
        run = subprocess.run(words, check=True, capture_output=True, text=True)
    found = json.loads(run.stdout.splitlines()[-1])
    own, below = 1e3 * found["own"] / count, 1e3 * found["below"] / count
    times = {"accepted_s": found["accepted_s"], "service_ms": own, "task_ms": below}
    return _row("hyperqueue", count, found["seconds"], **times)


@contextmanager
def service(processors: int) -> Iterator[tuple[ServiceDirectory, psutil.Process, psutil.Process]]:
    """Run a service; the values are its directory, its process and that of its agent."""
    with tempfile.TemporaryDirectory() as folder:
        place = ServiceDirectory(Path(folder) / "service")
        process = background.start(place.path, ["--processors", str(processors)])
        try:
            children = psutil.Process(process.pid).children()
            [agent] = [child for child in children if "agent" in child.cmdline()]
            yield place, psutil.Process(process.pid), agent
        finally:
            try:
                background.stop(place.path, kill=True)
            finally:
                process.kill()
                process.wait()


def ended(journal: Path, *, tasks_only: bool) -> dict[str, int]:
    """Count the ended jobs in a journal by state."""
    of_array = " AND job > 1" if tasks_only else ""  # job 1 is the array itself
    question = f"SELECT state, count(*) FROM records WHERE ended_at IS NOT NULL{of_array}"
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=60.0) as database:
        return dict(database.execute(f"{question} GROUP BY state"))


def _submission(folder: Path, array: str, *, script: bool) -> m.Submission:
    return m.Submission(
        argv=SHELL if script else ["true"],
        processors=1,
        walltime_s=3600.0,
        environment=dict(os.environ),
        cwd=str(folder),
        script=script,
        array=array,
    )


def run(what: str, count: int, processors: int) -> dict[str, Any]:
    """Submit the tasks to a service of their own, and wait for the end of the last one."""
    with service(processors) as (place, server, agent), tempfile.TemporaryDirectory() as folder:
        is_array = what != "scripts"
        array = f"0-{count - 1}" if is_array else ""
        job = _submission(Path(folder), array, script=what != "mpiexec")
        used = _used_s(server, agent)
        began = time.perf_counter()
        _latencies, accepted_s = submit(place.endpoint, 1 if is_array else count, job)
        _await_end(place, 1 if is_array else count)
        seconds = time.perf_counter() - began
        now = _used_s(server, agent)
        found = ended(place.journal, tasks_only=is_array)
        assert found == {"COMPLETED": count}, found
        assert len(list(Path(folder).iterdir())) == count, "a task has no output file"
        service_ms, agent_ms, task_ms = (
            1e3 * (after - before) / count for after, before in zip(now, used, strict=True)
        )
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak_kib = next(line.split()[1] for line in status.splitlines() if "VmHWM" in line)
        return _row(
            what,
            count,
            seconds,
            accepted_s=accepted_s,
            service_ms=service_ms,
            agent_ms=agent_ms,
            task_ms=task_ms,
            peak_mib=float(peak_kib) / 1024,
        )


def _used_s(server: psutil.Process, agent: psutil.Process) -> tuple[float, float, float]:
    """Processor time so far of the service, the agent with its starter, and the ended tasks, s."""
    beside = [child.cpu_times() for child in agent.children()]  # no task runs
    own = sum(agent.cpu_times()[:2]) + sum(sum(times[:4]) for times in beside)
    return sum(server.cpu_times()[:2]), own, sum(agent.cpu_times()[2:4])


def _await_end(place: ServiceDirectory, jobs: int) -> None:
    """Wait for the end of the jobs 1 to `jobs`."""
    with connect(place.path) as client:
        for number in range(1, jobs + 1):
            client.request(m.Wait(job=number), LIMIT_S)


def main() -> None:
    """Print the table, or the same as JSON."""
    names = ["alone", "array", "scripts", "mpiexec", "hyperqueue"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000, help="tasks of each row (2000)")
    parser.add_argument("--processors", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rows", nargs="+", choices=names, default=names)
    parser.add_argument("--hyperqueue", type=Path, metavar="PYTHON", help="interpreter that has it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.rows:
        if name == "alone":
            rows.append(alone(options.tasks, options.processors))
        elif name != "hyperqueue":
            count = max(1, options.tasks // 10) if name == "mpiexec" else options.tasks
            rows.append(run(name, count, options.processors))
        elif options.hyperqueue:
            rows.append(hyperqueue(options.hyperqueue, options.tasks, options.processors))
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    columns = ["what", "tasks", "per_s", "accepted_s"]
    columns += ["service_ms", "agent_ms", "task_ms", "peak_mib"]
    print("".join(f"{name:>12}" for name in columns))
    for row in rows:
        print("".join(f"{row.get(name, ''):>12}" for name in columns))


if __name__ == "__main__":
    sys.exit(main())

"""A service after a year: a journal of many ended jobs, measured at the socket.

    python benchmarks/scheduler/year.py [--jobs 2000] [--dir DIR] [--json]
    python benchmarks/scheduler/year.py --jobs 1000000

writes a journal as a service leaves it that has run `--jobs` jobs and removed their resize points.
Then it starts a real service in that directory and measures

- the time from the start of `serve` to its first answer, and the memory of its two processes;
- the latency of `history` (pages, filters) and of `explain`, until the answer has arrived; decoding
  1000 descriptions takes the client longer than the service needs for them;
- the latency of requests of another connection (the state of the service) meanwhile.

The first jobs are made by a real decision core, whose events and orders are written by the journal
itself; the further ones repeat them with other numbers and times.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import zmq

from reshape.errors import ServiceUnavailable
from reshape.wire.codec import MAX_ANSWER_BYTES, encode
from reshape.wire.messages import ResizeTimes
from scheduler import Client
from scheduler.client import background
from scheduler.config.settings import JournalConfig, NodeConfig, ServeConfig
from scheduler.core.core import Core
from scheduler.journal.descriptions import describe, encode_summary
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import RECORD, SUBMISSION, SUMMARY, seal, unseal
from scheduler.journal.replay import settings_of
from scheduler.journal.retention import Retention
from scheduler.model.events import (
    Event,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    ResizeDone,
    ResizePoint,
)
from scheduler.model.orders import Expand
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection
from scheduler.protocol.messages import decode
from scheduler.service.components.admission import Admission

CONFIG = ServeConfig(nodes=(NodeConfig("local", 8),), scenario="fcfs-pr")
USERS, NAMES = 20, 50
#: Jobs that a core decides on, and resize points of each; the others repeat them.
MADE, POINTS = 1000, 5
#: Every so many of these copies one has failed.
FAILING = 37
SIZE, MOST = 2, 4
#: What each resize point reports, and each resize.
DATA_BYTES, TIMES, PORT = 1 << 20, ResizeTimes(join_s=0.3, move_s=0.01), "port"
#: Seconds between two resize points of a job.
POINT_S = 0.1
#: Seconds between two jobs: a million of them in a year.
EVERY_S = 30.0


ADMISSION = Admission(CONFIG)


def iteration_s(size: int) -> float:
    """Return the time of an iteration on a number of processors, seconds."""
    return 1.0 / size


def submission_of(number: int) -> m.Submission:
    """Return the submission of a job."""
    return m.Submission(
        ["python", "-m", "apps.lu"],
        SIZE,
        600.0,
        max_processors=MOST,
        user=f"user{number % USERS}",
        name=f"name{number % NAMES}",
    )


def write(path: Path, jobs: int) -> None:
    """Write a compacted journal of ended jobs."""
    began = time.time() - jobs * EVERY_S - 60.0
    made = min(jobs, MADE)
    journal = Journal(path)
    core = Core(CONFIG.composed(), CONFIG.machine())
    journal.add_settings(settings_of(core))

    def decide(*events: Event) -> list[Any]:
        orders = core.handle(events)
        journal.record(list(events), orders)
        return orders

    decide(NodeJoined(began, "local", 8))
    for number in range(1, made + 1):
        at = began + number * EVERY_S
        _one_job(journal, core, decide, number, at)
        if number % 100 == 0:
            journal.commit()
    Retention(journal, JournalConfig(keep_resize_points=0)).finish()
    journal.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        _repeat(db, jobs, made)


def _one_job(
    journal: Journal,
    core: Core,
    decide: Callable[..., list[Any]],
    number: int,
    at: float,
) -> None:
    """Run one job that expands as often as it may."""
    submission = submission_of(number)
    spec = ADMISSION.admit(submission)
    journal.add_job(number, "0" * 32, submission)
    decide(JobSubmitted(at, number, spec))
    decide(JobStarted(at + 1, number))
    job = core.jobs[number]
    resize: Expand | None = None
    for k in range(POINTS):
        now = at + 2 + k * POINT_S
        orders = decide(
            ResizePoint(now, number, k + 1, iteration_s(job.size), data_bytes=DATA_BYTES)
        )
        if resize is not None:  # the new group joins at this resize point
            for phase, detail in (("joining", ""), ("accepting", PORT), ("committed", "")):
                journal.add_phase(number, resize.serial, now, phase, detail)
            decide(ResizeDone(now + POINT_S / 2, number, resize.serial, TIMES))
        resize = next((order for order in orders if isinstance(order, Expand)), None)
        if resize is not None:
            for phase in ("starting", "ready"):
                journal.add_phase(number, resize.serial, now, phase)
    decide(JobEnded(at + 20, number))
    journal.note_job(job)
    point = m.AtResizePoint(
        job=number,
        token="",
        epoch=0,
        size=job.size,
        registered_bytes=DATA_BYTES,
        iteration=POINTS,
        iteration_s=iteration_s(job.size),
    )
    info = describe(
        job,
        journal,
        submission,
        at + 20,
        reason=job.why,
        point=point,
        nodes_of=core.machine.by_node,
    )
    journal.note_summary(number, encode_summary(info))
    core.forget(number)
    journal.note_core(core.record())


def _repeat(db: sqlite3.Connection, jobs: int, made: int) -> None:
    """Copy the rows of the first jobs for all others, with their numbers and times."""
    columns = {
        "jobs": "job+:n, token, moved_submission(submission, token, job, job+:n)",
        "records": f"job+:n, CASE WHEN (job+:k)%{FAILING}=0 THEN 'FAILED' ELSE state END, user,"
        " name, submitted_at+:t, ended_at+:t, batch, moved_record(record, job, job+:n)",
        "summaries": "job+:n, summary",
        "events": "NULL, batch, job+:n, kind, event",
        "orders": 'NULL, batch, job+:n, kind, at+:t, "order"',
        "phases": "NULL, job+:n, serial, at+:t, phase, detail",
    }
    db.create_function("moved_submission", 4, _moved_submission)
    db.create_function("moved_record", 3, _moved_record)
    db.execute("PRAGMA synchronous=OFF")
    for k in range(1, -(-jobs // made)):
        db.execute("BEGIN")
        values = {"n": k * made, "t": k * made * EVERY_S, "k": k, "made": made, "jobs": jobs}
        for table, chosen in columns.items():
            db.execute(
                f"INSERT INTO {table} SELECT {chosen} FROM {table}"
                " WHERE job BETWEEN 1 AND :made AND job+:n<=:jobs",
                values,
            )
        db.execute("COMMIT")
    _renumber(db, made)


def _moved_submission(blob: bytes, token: str, job: int, to: int) -> bytes:
    """Seal the submission of a job for another number."""
    return seal(SUBMISSION.format(to, token), unseal(SUBMISSION.format(job, token), blob))


def _moved_record(blob: bytes, job: int, to: int) -> bytes:
    """Seal the record of a job for another number."""
    return seal(RECORD.format(to), unseal(RECORD.format(job), blob))


def _renumber(db: sqlite3.Connection, made: int) -> None:
    """Give the descriptions and records of the copies their numbers and times."""
    decoder, encoder = msgspec.msgpack.Decoder(m.JobInfo), msgspec.msgpack.Encoder()
    templates: dict[int, m.JobInfo] = {}
    for number, summary in db.execute("SELECT job, summary FROM summaries WHERE job<=?", (made,)):
        templates[number] = decoder.decode(unseal(SUMMARY.format(number), summary))

    def copies() -> Iterator[tuple[bytes, int]]:
        rows = db.execute(
            "SELECT job, state, user, name, ended_at FROM records WHERE job>?", (made,)
        )
        for number, state, user, name, ended_at in rows:
            info = templates[(number - 1) % made + 1]
            shift = ended_at - (info.ended_at or 0.0)
            info = msgspec.structs.replace(
                info,
                job=number,
                state=state,
                user=user,
                name=name,
                submitted_at=info.submitted_at + shift,
                started_at=(info.started_at or 0.0) + shift,
                ended_at=ended_at,
            )
            yield seal(SUMMARY.format(number), encoder.encode(info)), number

    update = "UPDATE summaries SET summary=? WHERE job=?"
    rows = copies()
    while batch := [row for _, row in zip(range(20_000), rows, strict=False)]:
        db.execute("BEGIN")
        db.executemany(update, batch)
        db.execute("COMMIT")


def first_answer(place: ServiceDirectory) -> tuple[subprocess.Popen[bytes], float]:
    """Start a service; return its process and the time to its first answer, seconds."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "reshape", "serve", "--dir", str(place.path)),
            *("--processors", "8", "--scenario", CONFIG.scenario),
        ],
        stdout=subprocess.DEVNULL,
        stderr=place.log("serve").open("ab"),
    )
    while process.poll() is None:
        try:
            with Client(place.path) as client:
                is_up = client.info(1.0).pid == process.pid
            if is_up:
                return process, time.perf_counter() - began
        except ServiceUnavailable:
            time.sleep(0.005)
    raise SystemExit(f"the service ended: see {place.log('serve')}")


class Others:
    """Another process, which asks for the state of the service all the time."""

    def __init__(self, endpoint: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_ask_always, args=(endpoint, theirs), daemon=True)
        self._process.start()
        self._pipe.recv()

    def stop(self) -> list[float]:
        """Stop; return the latencies in seconds."""
        self._pipe.send(None)
        latencies: list[float] = self._pipe.recv()
        self._process.join()
        return latencies


def _ask_always(endpoint: str, pipe: Connection) -> None:
    latencies = []
    with ServiceConnection(endpoint) as client:
        client.request(m.ServerInfo(), 30.0)
        pipe.send(None)
        while not pipe.poll(0.002):
            began = time.perf_counter()
            client.request(m.ServerInfo(), 30.0)
            latencies.append(time.perf_counter() - began)
    pipe.send(latencies)


def measure(place: ServiceDirectory, jobs: int, repeat: int) -> list[dict[str, Any]]:
    """Start the service and run all measurements."""
    rows: list[dict[str, Any]] = []
    process, seconds = first_answer(place)
    try:
        rows.append({"what": "start to first answer", "p50_ms": round(1e3 * seconds, 1)})
        middle = time.time() - jobs * EVERY_S / 2
        questions: dict[str, Callable[[int], m.Message]] = {
            "history, 20 jobs": lambda _: m.ListJobs(ended=True, live=False, limit=20),
            "history, 1000 jobs": lambda _: m.ListJobs(ended=True, live=False),
            "history, a user": lambda k: _listing(user=f"user{k % USERS}"),
            "history, a user's failed": lambda k: _listing(user=f"user{k % USERS}", state="FAILED"),
            "history, failed": lambda _: _listing(state="FAILED"),
            "history, a name": lambda k: _listing(name=f"name{k % NAMES}"),
            "history, until": lambda _: _listing(until=middle),
            "history, a name, since": lambda k: _listing(name=f"name{k % NAMES}", since=middle),
            "history, none": lambda _: _listing(user="user1", name="name2", state="FAILED"),
            "history, before": lambda k: _listing(before=1 + (k * 7919) % jobs),
            "explain": lambda k: m.Explain(job=1 + (k * 7919) % jobs),
            "info of a job": lambda k: m.ListJobs(job=1 + (k * 7919) % jobs),
        }
        with ServiceConnection(place.endpoint) as client:
            client.request(m.ListJobs(ended=True, live=False, limit=1), 30.0)  # the reader is up
            others = Others(place.endpoint)
            for what, question in questions.items():
                rows.append({"what": what, **_times(client, question, repeat)})
            whole = questions["history, 1000 jobs"]
            figures = _times(client, whole, repeat, decoded=True)
            rows.append({"what": "the same, decoded", **figures})
            rows.append({"what": "other requests", **_figures(others.stop())})
        for what, each in zip(("service", "reader"), _processes(process.pid), strict=True):
            rows.append({"what": f"memory of the {what}", "mib": round(each / 2**20, 1)})
        size = sum(part.stat().st_size for part in place.path.glob("journal.db*"))
        rows.append({"what": "journal", "mib": round(size / 2**20, 1)})
    finally:
        background.stop(place.path, kill=True)
        process.wait()
    return rows


def _listing(**fields: Any) -> m.ListJobs:
    return m.ListJobs(ended=True, live=False, limit=100, **fields)


def _times(
    client: ServiceConnection,
    question: Callable[[int], m.Message],
    repeat: int,
    *,
    decoded: bool = False,
) -> dict[str, float]:
    """Measure the time until the frames of an answer have arrived or, with `decoded`, are read."""
    latencies = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(client.endpoint)
        for k in range(repeat):
            began = time.perf_counter()
            if decoded:
                client.request(question(k), 30.0)
                latencies.append(time.perf_counter() - began)
            else:
                peer.send_multipart(encode(question(k)))
                frames = peer.recv_multipart()
                latencies.append(time.perf_counter() - began)
                assert not isinstance(decode(frames, MAX_ANSWER_BYTES), m.Failure)
    return _figures(latencies)


def _figures(latencies: list[float]) -> dict[str, float]:
    p50, p99, most = (1e3 * np.quantile(latencies, (0.5, 0.99, 1))).round(2).tolist()
    return {"p50_ms": p50, "p99_ms": p99, "max_ms": most}


def _processes(pid: int) -> list[int]:
    """Return the resident memory of the service and of its reader, bytes."""
    service = psutil.Process(pid)
    readers = [
        child
        for child in service.children()
        if "scheduler.service.reader_process" in child.cmdline()
    ]
    return [service.memory_info().rss, *(reader.memory_info().rss for reader in readers)]


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000, help="ended jobs (2000)")
    parser.add_argument("--repeat", type=int, default=100, help="questions of each kind (100)")
    parser.add_argument("--dir", type=Path, help="where the journal is written, and kept")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = ServiceDirectory((options.dir or Path(folder)) / "service")
        place.create()
        if not place.journal.exists():
            began = time.perf_counter()
            write(place.journal, options.jobs)
            seconds = time.perf_counter() - began
            print(f"wrote {options.jobs} jobs in {seconds:.0f} s", file=sys.stderr)
        rows = measure(place, options.jobs, options.repeat)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("p50_ms", "p99_ms", "max_ms", "mib")
    print(f"{'':>26}" + "".join(f"{name:>10}" for name in columns))
    for row in rows:
        print(f"{row['what']:>26}" + "".join(f"{row.get(name, ''):>10}" for name in columns))


if __name__ == "__main__":
    main()

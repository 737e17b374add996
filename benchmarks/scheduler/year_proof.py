"""The journal that `year.py` writes, compared with that of a real service.

    python benchmarks/scheduler/year_proof.py [--jobs 100] [--points 100] [--json]

A real service runs the jobs one after the other. This program replaces the agent and the processes
of the jobs: it sends the messages of each first rank and of each joining group. Then the journal is
compacted as the service compacts it, and its tables are compared with those that `year.write` makes
for the same jobs, row by row. Half of the latter are made by a core and half are copies.

What differs between any two runs is left out of the comparison: times and what is computed from
them, batch numbers, numbers of jobs within records (copies have those of their originals), job
tokens, paths, and the user, who follows from the connection. Rows that belong to no job (nodes,
settings) are not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import zmq
from year import (
    DATA_BYTES,
    PORT,
    TIMES,
    first_answer,
    iteration_s,
    submission_of,
    write,
)

from reshape.wire.codec import encode
from scheduler.config.settings import JournalConfig
from scheduler.journal.journal import Journal
from scheduler.journal.retention import Retention
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection
from scheduler.protocol.messages import decode

NODE, WAIT_S = "local", 30.0
#: Rows that are compared, by table; the columns that are left out differ between any two runs.
TABLES = {
    "jobs": "submission",
    "records": "state, name, record",
    "summaries": "summary",
    "events": "kind, event",
    "orders": 'kind, "order"',
    "phases": "serial, phase, detail",
    "facts": "facts",
    "memory": "mib",
    "sums": "size, points, iteration_s",
}
#: The expected pause, which the reason for the first expansion of all does not have.
_PAUSE = re.compile(r", the pause [^ ]+ s")
#: Fields that hold times, paths, or what follows from them.
_VARYING = re.compile(r"(.*_)?at|processor_seconds.*|start_s|estimate_s|cwd|output|id|job|user")


class ScriptedAgent:
    """Plays the agent and the processes of the jobs, which run one after the other.

    Parameters
    ----------
    place : directory of the service.
    """

    def __init__(self, place: ServiceDirectory) -> None:
        self._place, self._secret = place, place.read_secret()
        self._context = zmq.Context()
        self._agent = self._context.socket(zmq.DEALER)
        self._agent.setsockopt(zmq.LINGER, 0)
        self._agent.connect(place.endpoint)
        self._groups: dict[tuple[int, int], m.GroupStatus] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        self._token = ""

    def close(self) -> None:
        """Close the connection."""
        self._context.destroy(linger=0)

    def report(self) -> None:
        """Report all groups until the service has nothing to change any more."""
        changed = True
        while changed:
            hello = m.AgentHello(
                node=NODE,
                pid=os.getpid(),
                secret=self._secret,
                groups=list(self._groups.values()),
                restart_points=[],
            )
            self._agent.send_multipart(encode(hello))
            changed = False
            while True:
                if not self._agent.poll(1000 * WAIT_S):
                    raise TimeoutError("the service does not answer its agent")
                message = decode(self._agent.recv_multipart())
                if isinstance(message, m.Done):
                    break
                changed |= self._obey(message)

    def _obey(self, message: m.Message) -> bool:
        match message:
            case m.StartGroup():
                key = message.job, message.group
                self._groups[key] = m.GroupStatus(*key, alive=True, pid=os.getpid())
                self._sizes[key] = message.size
                self._token = message.environment["RESHAPE_TOKEN"]
            case m.SweepJob():
                self._groups = {k: v for k, v in self._groups.items() if k[0] != message.job}
            case _:
                return False
        return True

    def run(self, submission: m.Submission, points: int) -> None:
        """Run one job from its submission to its end, with this many resize points."""
        with (
            ServiceConnection(self._place.endpoint) as rank,
            ServiceConnection(self._place.endpoint) as joiner,
        ):
            submitted = rank.request(m.Submit(submission=submission), WAIT_S)
            assert isinstance(submitted, m.Submitted), submitted
            job, size, epoch = submitted.job, submission.processors, 0
            while (job, 1) not in self._groups:
                self.report()
            who = {"job": job, "token": self._token}
            rank.request(m.Hello(**who, group=1, size=size, pid=os.getpid()), WAIT_S)
            for k in range(points):
                point = m.AtResizePoint(
                    **who,
                    epoch=epoch,
                    size=size,
                    registered_bytes=DATA_BYTES,
                    iteration=k + 1,
                    iteration_s=iteration_s(size),
                )
                answer = rank.request(point, WAIT_S)
                if isinstance(answer, m.Join):
                    serial = answer.serial
                    rank.request(m.JoinPort(**who, serial=serial, port=PORT), WAIT_S)
                    report = m.ResizeReport(**who, serial=serial, ok=True, times=TIMES)
                    rank.request(report, WAIT_S)
                    size, epoch = size + answer.size, serial
                elif size < (submission.max_processors or 0):
                    self._bring_up(who, joiner)
            for key in self._groups:
                self._groups[key] = m.GroupStatus(*key, alive=False)
            while self._groups:
                self.report()

    def _bring_up(self, who: dict[str, Any], joiner: ServiceConnection) -> None:
        """Start the group that the service has just ordered, if any, until it is ready."""
        known = set(self._groups)
        self.report()
        for key in self._groups.keys() - known:
            ready = m.GroupReady(**who, group=key[1], size=self._sizes[key], pid=os.getpid())
            joiner.send(ready, WAIT_S)
            joiner.request(m.ServerInfo(), WAIT_S)  # answered after the other message was read


def run(folder: Path, jobs: int, made: int, points: int) -> Path:
    """Run jobs under a real service; return its compacted journal.

    Parameters
    ----------
    made : number of jobs; the others repeat their submissions.
    """
    place = ServiceDirectory(folder / "service")
    place.create()
    with place.agent_lock(NODE) as free:
        assert free
        process, _ = first_answer(place)
        agent = ScriptedAgent(place)
        try:
            agent.report()
            for number in range(1, jobs + 1):
                agent.run(submission_of((number - 1) % made + 1), points)
                if sys.stderr.isatty() and number % 10 == 0:
                    print(f"\r{number} of {jobs} jobs", end="", file=sys.stderr)
        finally:
            agent.close()
            process.kill()  # every answer was sent after its turn was written
            process.wait(WAIT_S)
    journal = Journal(place.journal)
    Retention(journal, JournalConfig(keep_resize_points=0)).finish()
    journal.close()
    return place.journal


def compare(real: Path, written: Path) -> list[dict[str, Any]]:
    """Compare two journals table by table.

    Returns
    -------
    for each table its rows in both journals, those that differ, and some of these.
    """
    found = []
    with closing(sqlite3.connect(real)) as one, closing(sqlite3.connect(written)) as other:
        for table, columns in TABLES.items():
            theirs, ours = _rows(one, table, columns), _rows(other, table, columns)
            differing = sum(((theirs - ours) + (ours - theirs)).values())
            found.append(
                {
                    "table": table,
                    "real": theirs.total(),
                    "written": ours.total(),
                    "differing": differing,
                    "examples": [*(theirs - ours)][:2] + [*(ours - theirs)][:2],
                }
            )
    return found


def _rows(db: sqlite3.Connection, table: str, columns: str) -> Counter[str]:
    rows = db.execute(f"SELECT job, {columns} FROM {table} WHERE job IS NOT NULL")
    return Counter(f"{job}: {[_plain(value) for value in values]}" for job, *values in rows)


def _plain(value: Any) -> Any:
    """Decode a blob, and replace what differs between any two runs."""
    if isinstance(value, bytes):
        value = value.partition(b"\nseal:")[0]
        decoder = msgspec.json if value.startswith(b"{") else msgspec.msgpack
        return _normal(decoder.decode(value))
    return _PAUSE.sub("", value) if isinstance(value, str) else value


def _normal(value: Any, name: str = "") -> Any:
    if _VARYING.fullmatch(name):
        return None if not isinstance(value, list) else len(value)
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key != "pause_s"}
        return {key: _normal(each, str(key)) for key, each in kept.items()}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], float):  # (time, what was so from then on)
            return [None, _normal(value[1])]
        return [_normal(each) for each in value]
    return _PAUSE.sub("", value) if isinstance(value, str) else value


def prove(jobs: int, points: int) -> tuple[list[dict[str, Any]], float]:
    """Make both journals and compare them.

    Returns
    -------
    what `compare` returns, and the time in which the real service ran the jobs, seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        made = -(-jobs // 2)
        real = run(Path(folder), jobs, made, points)
        seconds = time.perf_counter() - began
        written = Path(folder) / "written.db"
        write(written, jobs, points, made=made, made_points=points, failing=0)
        return compare(real, written), seconds


def main() -> None:
    """Print how many rows of each table differ; exit with 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100, help="jobs of the real service (100)")
    parser.add_argument("--points", type=int, default=100, help="resize points of each (100)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables, seconds = prove(options.jobs, options.points)
    if options.json:
        print(json.dumps({"seconds": round(seconds, 1), "tables": tables}, indent=2))
    else:
        print(f"{options.jobs} jobs with {options.points} resize points each in {seconds:.0f} s")
        print("".join(f"{name:>12}" for name in ("table", "real", "written", "differing")))
        for row in tables:
            print("".join(f"{each:>12}" for each in [*row.values()][:4]))
            for line in row["examples"]:
                print("   ", line[:300])
    raise SystemExit(any(row["differing"] for row in tables))


if __name__ == "__main__":
    main()

"""The service under load: resize points of many jobs, and durable submissions.

    python benchmarks/scheduler/service.py [--jobs 1000] [--rate 2500] [--seconds 8] [--json]

starts a real service (`reshape serve`) in a directory of its own. This program replaces the node
agent and the processes of the jobs: it reports every group that the service starts as running, and
sends the messages of each job's first rank over a connection of its own.

- resize points, open loop: the jobs reach their resize points at a steady rate, `--rate` a second
  in all; the latency is the time from the moment a request was due to its answer.
- resize points, closed loop: every job sends its next request as soon as it has an answer, which
  gives the highest rate.
- submissions: `--submissions` jobs from 20 connections, ten under way on each; a job is counted
  when it is acknowledged, which is after it was synced to the disk.

`cpu_us` is the processor time of the service for each request, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zmq

from reshape.topology import Topology
from reshape.wire.access import AccessFile, read_access
from reshape.wire.codec import encode
from reshape.wire.connection import use_keys
from scheduler.client import background
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode

SIZE, MOST = 2, 4
#: Seconds after which a question without an answer is asked again.
REPEAT_S = 10.0
NODE = "local"


class Peers:
    """Separate connections to the service, polled together.

    The file descriptor of a ZeroMQ socket signals new messages only once (edge-triggered), so a
    connection is also read after sending on it.
    """

    def __init__(self, endpoint: str, count: int, access: AccessFile | None = None) -> None:
        self.context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, count + 16)
        self.sockets = [self.context.socket(zmq.DEALER) for _ in range(count)]
        self._epoll = select.epoll()
        self._numbers: dict[int, int] = {}
        self._readable: deque[int] = deque()
        for number, socket in enumerate(self.sockets):
            socket.setsockopt(zmq.LINGER, 0)
            if access is not None:
                use_keys(socket, access)
            socket.connect(endpoint)
            handle = socket.getsockopt(zmq.FD)
            assert isinstance(handle, int)
            self._numbers[handle] = number
            self._epoll.register(handle, select.EPOLLIN | select.EPOLLET)

    def send(self, number: int, message: m.Message) -> None:
        """Send on one connection."""
        self.sockets[number].send_multipart(encode(message), zmq.NOBLOCK)
        self._readable.append(number)

    def received(self, timeout: float) -> Iterator[tuple[int, m.Message]]:
        """Yield the messages that have arrived: (connection, message)."""
        if self._readable:
            timeout = 0.0
        self._readable.extend(self._numbers[handle] for handle, _ in self._epoll.poll(timeout))
        while self._readable:
            number = self._readable.popleft()
            while self.sockets[number].getsockopt(zmq.EVENTS) & zmq.POLLIN:  # type: ignore[operator]
                yield number, decode(self.sockets[number].recv_multipart(zmq.NOBLOCK))

    def close(self, linger_ms: int = 0) -> None:
        """Close them all."""
        self._epoll.close()
        self.context.destroy(linger_ms)


class StandIn(threading.Thread):
    """Agents that start nothing and report every group as running.

    Parameters
    ----------
    names : nodes of agents on other hosts; none: there is one agent, on the host of the service.

    Attributes
    ----------
    tokens : job tokens by job number.
    answered : when the service answered the first report of each agent, `time.perf_counter`.
    job_access : keys with which the processes of jobs connect to a service on another host.
    stopping : set it to end; an agent on the host of the service ends with that, too.
    """

    def __init__(self, place: ServiceDirectory, names: Sequence[str] = ()) -> None:
        super().__init__(daemon=True)
        self.place, self.names, self.is_local = place, [*names] or [NODE], not names
        self.tokens: dict[int, str] = {}
        self.answered: dict[int, float] = {}
        self.job_access: AccessFile | None = None
        self.stopping = threading.Event()
        self._secret = place.read_secret() if self.is_local else ""
        self._groups: list[dict[tuple[int, int], m.GroupStatus]] = [{} for _ in self.names]

    def run(self) -> None:
        """Connect, and report once a second and at each change, until `stopping`.

        An agent on another host has a second connection, over which it asks how to serve its node.
        """
        count, access, endpoint = len(self.names), None, self.place.endpoint
        with ExitStack() as stack:
            if self.is_local:
                assert stack.enter_context(self.place.agent_lock(NODE))
            else:
                access = read_access(self.place.path / "access" / "agent.json")
                endpoint = access.endpoint
            waiting = 0 if self.is_local else count
            arrivals = Peers(endpoint, waiting, access)
            for number, name in enumerate(self.names[:waiting]):
                arrival = m.AgentArrival(node=name, host=name, release=version("reshape-mpi"))
                arrivals.send(number, arrival)
            reports = Peers(endpoint, count, access)
            due = [0.0 if self.is_local else inf] * count
            while not self.stopping.is_set():
                for number, message in arrivals.received(0.0) if waiting else ():
                    assert isinstance(message, m.AgentSettings), message
                    self.job_access = message.job_access
                    due[number], waiting = 0.0, waiting - 1
                for number, message in reports.received(0.01):
                    if self._obey(number, message):
                        due[number] = 0.0
                now = time.monotonic()
                for number in range(count):
                    if now > due[number]:
                        due[number] = now + 1.0 + number / count
                        self._report(reports, number)
            arrivals.close()
            self._report(reports, 0)
            reports.close(linger_ms=200)

    def _report(self, peers: Peers, number: int) -> None:
        name, groups = self.names[number], list(self._groups[number].values())
        hello = m.AgentHello(
            node=name,
            pid=os.getpid(),
            secret=self._secret,
            groups=groups,
            restart_points=[],
            folders=[] if self.is_local else [status.job for status in groups],
            host="" if self.is_local else name,
            incarnation=f"{number}-{id(self)}",
            address="" if self.is_local else "127.0.0.1",
        )
        peers.send(number, hello)

    def _obey(self, number: int, message: m.Message) -> bool:
        """Carry out a message; return whether the state of the agent has changed."""
        groups = self._groups[number]
        match message:
            case m.StartGroup(job=job, group=group):
                groups[job, group] = m.GroupStatus(job, group, True, pid=os.getpid())
                self.tokens[job] = message.environment["RESHAPE_TOKEN"]
            case m.KillGroup(job=job, group=group):
                groups[job, group] = m.GroupStatus(job, group, False, signal=15)
            case m.AgentStop():
                for job, group in groups:
                    groups[job, group] = m.GroupStatus(job, group, False, signal=15)
                self.stopping.set()
            case m.Done():
                self.answered.setdefault(number, time.perf_counter())
                return False
            case _:
                return False
        return True


@contextmanager
def service(
    processors: int, scenario: str, *more: str
) -> Iterator[tuple[ServiceDirectory, StandIn, int]]:
    """Run a service with a stand-in for its agent; `more` are options of `reshape serve`."""
    with tempfile.TemporaryDirectory() as folder:
        place = ServiceDirectory(Path(folder) / "service")
        place.create()
        agent = StandIn(place)
        agent.start()
        options = ["--processors", str(processors), "--scenario", scenario, *more]
        process = background.start(place.path, options)
        try:
            yield place, agent, process.pid
        finally:
            try:
                background.stop(place.path, kill=True)
            finally:
                process.kill()
                process.wait()


def submission(processors: int, maximum: int | None = None) -> m.Submission:
    """Build a job as `reshape submit` would, with this environment."""
    return m.Submission(
        argv=["python", "-m", "apps.synthetic"],
        processors=processors,
        walltime_s=86400.0,
        max_processors=maximum,
        topology=Topology("arbitrary", step=SIZE),
        environment=dict(os.environ),
        cwd="/tmp",
    )


def submit(
    endpoint: str, count: int, job: m.Submission, window: int = 10
) -> tuple[list[float], float]:
    """Submit jobs over 20 connections; return the time to each acknowledgement, and in all (s)."""
    peers = Peers(endpoint, min(20, count))
    left, under_way = count, 0
    sent: dict[int, deque[float]] = defaultdict(deque)
    latencies: list[float] = []
    began = time.perf_counter()

    def send(number: int) -> None:
        sent[number].append(time.perf_counter())
        peers.send(number, m.Submit(submission=job))

    for number in range(len(peers.sockets)):
        for _ in range(min(window, left)):
            send(number)
            left, under_way = left - 1, under_way + 1
    while under_way:
        for number, message in peers.received(1.0):
            assert isinstance(message, m.Submitted), message
            latencies.append(time.perf_counter() - sent[number].popleft())
            under_way -= 1
            if left:
                send(number)
                left, under_way = left - 1, under_way + 1
    seconds = time.perf_counter() - began
    assert len(latencies) == count
    peers.close()
    return latencies, seconds


class FirstRanks:
    """The first ranks of all jobs, each with a connection of its own.

    Parameters
    ----------
    tokens : job tokens by job number.
    access : keys for an endpoint on TCP.
    """

    def __init__(
        self, endpoint: str, tokens: dict[int, str], access: AccessFile | None = None
    ) -> None:
        self.jobs = sorted(tokens)
        self.tokens = tokens
        self.peers = Peers(endpoint, len(self.jobs), access)
        self.asked = [0.0] * len(self.jobs)
        self.iteration = [0] * len(self.jobs)

    def ask(self, place: int, due: float) -> None:
        """Send the resize point of a job."""
        job = self.jobs[place]
        self.asked[place] = due
        self.iteration[place] += 1
        point = m.AtResizePoint(
            job=job,
            token=self.tokens[job],
            epoch=0,
            size=SIZE,
            registered_bytes=1 << 20,
            iteration=self.iteration[place],
            iteration_s=0.4,
        )
        self.peers.send(place, point)

    def steadily(self, rate: float, seconds: float) -> tuple[list[float], float]:
        """Let all jobs ask in turn at a rate (1/s); return latencies and duration in seconds.

        A question whose answer was lost is asked again, as an application does, or replaced by the
        next one of the same job.
        """
        waiting: dict[int, float] = {}
        latencies: list[float] = []
        began = time.perf_counter()
        asked, total = 0, int(rate * seconds)
        while asked < total or waiting:
            now = time.perf_counter()
            while asked < total and began + asked / rate <= now:
                place = asked % len(self.jobs)
                waiting[place] = now
                self.ask(place, began + asked / rate)
                asked += 1
            for place in [place for place, at in waiting.items() if now - at > REPEAT_S]:
                waiting[place] = now
                self.ask(place, self.asked[place])
            wait = began + asked / rate - now if asked < total else 1.0
            for place, message in self.peers.received(max(0.0, wait)):
                assert isinstance(message, m.Proceed), message
                waiting.pop(place, None)
                latencies.append(time.perf_counter() - self.asked[place])
        return latencies, time.perf_counter() - began

    def eagerly(self, seconds: float) -> tuple[list[float], float]:
        """Let every job ask again after each answer; return latencies and duration in seconds."""
        latencies: list[float] = []
        began = time.perf_counter()
        waiting = len(self.jobs)
        for place in range(waiting):
            self.ask(place, time.perf_counter())
        while waiting:
            for place, message in self.peers.received(1.0):
                assert isinstance(message, m.Proceed), message
                now = time.perf_counter()
                latencies.append(now - self.asked[place])
                if now - began < seconds:
                    self.ask(place, now)
                else:
                    waiting -= 1
        return latencies, time.perf_counter() - began


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all measurements."""
    rows: list[dict[str, Any]] = []
    with service(SIZE * options.jobs, options.scenario) as (place, agent, pid):
        process = psutil.Process(pid)

        def cpu_s() -> float:
            times = process.cpu_times()
            return times.user + times.system

        def add(what: str, run: Callable[[], tuple[list[float], float]]) -> None:
            before = cpu_s()
            latencies, seconds = run()
            used, count = cpu_s() - before, len(latencies)
            p50, p99, most = (1e3 * np.quantile(latencies, (0.5, 0.99, 1))).round(2).tolist()
            row = {"what": what, "count": count, "per_s": round(count / seconds, 1)}
            row |= {"p50_ms": p50, "p99_ms": p99, "max_ms": most}
            rows.append(row | {"cpu_us": round(1e6 * used / count, 1)})

        submit(place.endpoint, options.jobs, submission(SIZE, MOST))
        while len(agent.tokens) < options.jobs:
            time.sleep(0.1)
        jobs = FirstRanks(place.endpoint, agent.tokens)
        jobs.steadily(min(1000.0, options.rate), 1.5)  # every job connects
        add("points, steady", lambda: jobs.steadily(options.rate, options.seconds))
        add("points, eager", lambda: jobs.eagerly(options.seconds / 2))
        large = submission(SIZE * options.jobs)
        add("submissions", lambda: submit(place.endpoint, options.submissions, large))
        label = f"points, {options.submissions} queued"
        add(label, lambda: jobs.steadily(options.rate, options.seconds / 2))
        jobs.peers.close()
    return rows


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000, help="running jobs (1000)")
    parser.add_argument("--rate", type=float, default=2500, help="resize points a second (2500)")
    parser.add_argument("--seconds", type=float, default=8, help="length of the steady part (8)")
    parser.add_argument("--submissions", type=int, default=5000)
    parser.add_argument("--scenario", default="fcfs-pr")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = measure(options)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(" ".join(f"{name:>20}" for name in [*rows[0]][:1]), end="")
    print("".join(f"{name:>10}" for name in [*rows[0]][1:]))
    for row in rows:
        what, *figures = row.values()
        print(f"{what:>20}" + "".join(f"{figure:>10}" for figure in figures))


if __name__ == "__main__":
    main()

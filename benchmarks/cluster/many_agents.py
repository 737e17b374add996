"""A service with many agents on other hosts: how fast they connect, and resize points beside them.

    python benchmarks/cluster/many_agents.py [--agents 1000] [--nodes 64] [--jobs 1000] [--json]

starts real services (`reshape serve`) that listen on TCP with CURVE. This program replaces the
agents and the processes of the jobs, each with connections of its own.

- connect: this many agents start at the same moment. Each opens two connections, as a real agent
  does: one to ask how to serve its node, one to report. Measured until the service has answered the
  first report of each, and until it lists all nodes as up.
- points: resize points of running jobs over TCP, at a steady rate, beside the reports of the agents
  once a second. The latency is the time from the moment a request was due to its answer.

`cpu` is the processor time of the service: for all of the connecting (s), or for each resize point
(us). An agent and a job have one open file each in the service and one or two here; the limit of
open files is raised to the hard limit.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "scheduler"))

from service import MOST, SIZE, FirstRanks, StandIn, submission, submit

from scheduler import Client
from scheduler.client import background
from scheduler.node.directory import ServiceDirectory

#: Goals: seconds in which 1000 agents connect; milliseconds of the p99 of 2000 points per second.
CONNECT_GOAL_S, POINT_GOAL_MS = 10.0, 20.0
GIVE_UP_S = 120.0


@contextmanager
def service(nodes: int, processors: int) -> Iterator[tuple[ServiceDirectory, list[str], int]]:
    """Run a service with nodes on other hosts; the values are its directory, nodes and process."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        lines = [f"  - {{name: {n}, processors: {processors}, launcher: none}}" for n in names]
        config.write_text(
            "\n".join([f"listen: 127.0.0.1:{port}", "allow_root: true", "nodes:", *lines]) + "\n"
        )
        place = ServiceDirectory(Path(folder) / "service")
        options = ["--config", str(config), "--scenario", "fcfs-pr"]
        process = background.start(place.path, options)
        try:
            yield place, names, process.pid
        finally:
            process.kill()  # there are no real jobs that it would have to end
            process.wait()


def nodes_up(place: ServiceDirectory) -> int:
    """Return the number of nodes that are up."""
    with Client(place.path) as client:
        return sum(state == "up" for _, _, state in client.info(60.0).nodes)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def connect(place: ServiceDirectory, names: list[str]) -> tuple[StandIn, float, float]:
    """Connect agents; return them, and the seconds until they were answered and listed as up."""
    began = time.perf_counter()
    agents = StandIn(place, names)
    agents.start()
    while len(agents.answered) < len(names):
        if time.perf_counter() - began > GIVE_UP_S:
            raise SystemExit(f"{len(agents.answered)} of {len(names)} agents in {GIVE_UP_S} s")
        time.sleep(0.02)
    answered = max(agents.answered.values()) - began
    while nodes_up(place) < len(names):
        time.sleep(0.02)
    return agents, answered, time.perf_counter() - began


def measure_connect(count: int) -> dict[str, Any]:
    """Connect many agents to an idle service."""
    with service(count, 4) as (place, names, pid):
        before = cpu_s(pid)
        agents, answered, up = connect(place, names)
        used = cpu_s(pid) - before
        agents.stopping.set()
        agents.join()
    return {
        "what": "connect",
        "agents": count,
        "answered_s": round(answered, 2),
        "up_s": round(up, 2),
        "service_cpu_s": round(used, 2),
        "goal_s": CONNECT_GOAL_S,
    }


def measure_points(nodes: int, jobs: int, rate: float, seconds: float) -> dict[str, Any]:
    """Resize points of running jobs on many nodes."""
    with service(nodes, -(-SIZE * jobs // nodes)) as (place, names, pid):
        agents, _, _ = connect(place, names)
        submit(place.endpoint, jobs, submission(SIZE, MOST))
        while len(agents.tokens) < jobs:
            time.sleep(0.05)
        assert agents.job_access is not None
        first_ranks = FirstRanks(agents.job_access.endpoint, dict(agents.tokens), agents.job_access)
        first_ranks.steadily(min(500.0, rate), jobs / min(500.0, rate))  # every job connects
        first_ranks.steadily(rate, 1.0)
        before = cpu_s(pid)
        latencies, took = first_ranks.steadily(rate, seconds)
        used = cpu_s(pid) - before
        first_ranks.peers.close()
        agents.stopping.set()
        agents.join()
    p50, p99, most = (1e3 * np.quantile(latencies, (0.5, 0.99, 1))).round(2).tolist()
    return {
        "what": "points",
        "agents": nodes,
        "jobs": jobs,
        "per_s": round(len(latencies) / took),
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": most,
        "service_cpu_us": round(1e6 * used / len(latencies), 1),
        "goal_ms": POINT_GOAL_MS,
    }


def main() -> None:
    """Print both rows, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=1000, help="agents that connect (1000)")
    parser.add_argument("--nodes", type=int, default=64, help="agents beside resize points (64)")
    parser.add_argument("--jobs", type=int, default=1000, help="running jobs (1000)")
    parser.add_argument("--rate", type=float, default=2000, help="resize points a second (2000)")
    parser.add_argument("--seconds", type=float, default=8, help="length of the measurement (8)")
    parser.add_argument("--repeats", type=int, default=1, help="repeats of both (1)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = []
    for _ in range(options.repeats):
        rows.append(measure_connect(options.agents))
        rows.append(measure_points(options.nodes, options.jobs, options.rate, options.seconds))
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("  ".join(f"{name}={value}" for name, value in row.items()))


if __name__ == "__main__":
    main()

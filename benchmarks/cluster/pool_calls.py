"""Counts the commands of Slurm that a pool of many allocations needs.

    python benchmarks/cluster/pool_calls.py [--allocations 200] [--seconds 60] [--json]

A real service gets a pool that keeps so many allocations of one node. The programs sbatch, squeue
and sacct are shell scripts here, which note the time of each call; every allocation stays queued.
After all are submitted, look-ups are counted for so many seconds. Meanwhile a client asks the
service for its state, to see whether calls of Slurm delay its loop. The exit code is 1 if two calls
were less than a second apart.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from scheduler import Client
from scheduler.client import background
from scheduler.protocol import messages as m

_PROGRAMS = {
    "sbatch": """case "$*" in *--test-only*) echo "sbatch: Job 1 to start" >&2; exit;; esac
cat > /dev/null
number=$(( $(cat {state}/last 2>/dev/null || echo 0) + 1 ))
echo $number > {state}/last
echo $number""",
    "squeue": """for word; do case "$word" in --jobs=*) jobs=${{word#--jobs=}};; esac; done
echo "$jobs" | tr , '\\n' | sed 's/$/|PENDING|N\\/A|N\\/A||Resources/'""",
    "sacct": ":",
    "scancel": ":",
}


def write_programs(folder: Path) -> Path:
    """Write the programs; return the file that gets a line for each call."""
    calls = folder / "calls"
    calls.touch()
    for name, body in _PROGRAMS.items():
        path = folder / name
        note = f'echo "$(date +%s.%N) {name}" >> {calls}'
        path.write_text(f"#!/bin/sh\n{note}\n{body.format(state=folder)}\n")
        path.chmod(0o755)
    return calls


def read_calls(calls: Path) -> list[tuple[float, str]]:
    """Time and program of each call."""
    lines = [line.split() for line in calls.read_text().splitlines()]
    return [(float(at), name) for at, name in lines]


def queued(directory: Path) -> int:
    """Allocations whose batch jobs are queued."""
    with Client(directory) as client:
        answer = client.ask(m.ListMachine(part="pools"), m.PoolList)
    return sum(each.state == "queued" for each in answer.pools[0].allocations)


def measure(folder: Path, allocations: int, seconds: float) -> dict[str, float]:
    """Run the service; return the numbers."""
    calls, directory = write_programs(folder), folder / "service"
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    background.start(directory, ["--processors", "1", "--listen", listen, "--allow-root"])
    try:
        options = {
            "nodes": f"{allocations}-{allocations}",
            "time_limit": "1-0",
            "backlog": str(allocations),
        }
        with Client(directory) as client:
            added = m.ChangeMachine(change=m.AddPool("slurm", options))
            client.ask(added, m.PoolAdded, 60.0)
        begun, answered_s = time.monotonic(), []
        while queued(directory) < allocations:
            time.sleep(0.5)
            if time.monotonic() - begun > 3 * allocations + 60:
                raise TimeoutError(f"{queued(directory)} of {allocations} allocations are queued")
        submitted_s = time.monotonic() - begun
        steady = time.time()
        while time.time() - steady < seconds:
            at = time.perf_counter()
            with Client(directory) as client:
                client.info()
            answered_s.append(time.perf_counter() - at)
            time.sleep(0.02)
        noted = read_calls(calls)
    finally:
        background.stop(directory, kill=True)
    answered_s.sort()
    times = [at for at, _ in noted]
    later = [at for at in times if at > steady]
    return {
        "allocations": allocations,
        "submitted_in_s": round(submitted_s, 1),
        "calls": len(times),
        "calls_per_s": round(len(times) / (times[-1] - times[0]), 3),
        "shortest_interval_s": round(min(b - a for a, b in pairwise(times)), 3),
        "calls_per_s_when_all_are_queued": round(len(later) / seconds, 3),
        "answer_p50_ms": round(1000 * answered_s[len(answered_s) // 2], 2),
        "answer_p99_ms": round(1000 * answered_s[int(0.99 * len(answered_s))], 2),
    }


def main() -> int:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocations", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reshape-pool-") as folder:
        found = measure(Path(folder), options.allocations, options.seconds)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:34} {value:g}")
    return 0 if found["shortest_interval_s"] >= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())

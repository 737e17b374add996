"""Real jobs on three hosts of four processors, one of which is killed: ``make demo-cluster``.

The hosts are namespaces of this machine (`hosts`): nothing passes between them but a network and
this file system. A job grows from the host that it began on onto another one, and leaves the first
one, which drains. A rigid MPI program runs on several hosts. Then one host is killed while each
host runs a job; the job that is lost is submitted again and runs on what is left. Every program
verifies its own result.

The last line of the output is JSON: jobs, verified, hosts_used, moved_between_hosts, restarted,
lost. The exit code is 0 if all jobs are verified, 1 if not, 77 if such hosts cannot be made here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from cluster import Cluster
from hosts import NoHosts

from reshape.topology import Topology
from reshape.wire import messages as m
from scheduler.client.tables import sizes_text
from scheduler.model.procset import ProcSet
from scheduler.text.tables import Table, render

CANNOT_RUN = 77
HOSTS, PROCESSORS = 3, 4
CONFIG = "deadlines: {node_lost_s: 4, heartbeat_s: 0.5}"


def synthetic(iterations: int) -> list[str]:
    """Return a program whose iterations sleep, and whose data is real and verified."""
    argv = [sys.executable, "-m", "apps.synthetic", "--iterations", str(iterations)]
    return [*argv, "--seconds", "0.2", "--speedup", "amdahl:serial=0.05", "--mib", "32"]


def program(name: str, *options: str) -> list[str]:
    """Return one of the applications that verify themselves."""
    return [sys.executable, "-m", f"apps.{name}", *options]


class Demo:
    """The steps of the demonstration.

    Parameters
    ----------
    length : factor of the number of iterations.
    """

    def __init__(self, cluster: Cluster, length: float) -> None:
        self.cluster, self.length = cluster, length
        self.began = time.monotonic()
        self.jobs: list[int] = []
        self.again: dict[int, int] = {}  # lost job -> the job that replaces it

    def say(self, text: str) -> None:
        """Print what happens, with the time since the beginning."""
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def submit(self, argv: list[str], processors: int, sizes: str = "") -> int:
        """Submit a job; with `sizes` it is resizable."""
        more: dict[str, object] = {}
        if sizes:
            most = int(sizes.rpartition(",")[2])
            more = {"max_processors": most, "topology": Topology.parse(f"list:{sizes}")}
        job = self.cluster.submit(argv, processors, name=argv[2].removeprefix("apps."), **more)
        self.jobs.append(job)
        return job

    def until(self, job: int, size: int, nodes: str) -> None:
        """Wait until a job has a size and is on these nodes."""

        def is_there() -> bool:
            info = self.cluster.job(job)
            return info.size == size and info.nodes == nodes

        self.cluster.until(is_there, timeout=60.0)
        self.say(f"job {job} has {size} processors on {nodes}")

    def run(self) -> None:
        """Run all steps."""
        self.move()
        self.lose()

    def move(self) -> None:
        """Let a job grow onto another host and leave the one that it began on."""
        job = self.submit(synthetic(round(60 * self.length)), 4, "4,8")
        self.until(job, 4, "n1")
        self.until(job, 8, "n1,n2")
        self.cluster.ask(m.ChangeNode(node="n1", drains=True, why="demonstration"))
        self.say("node n1 drains")
        self.until(job, 4, "n2")
        self.cluster.ask(m.ChangeNode(node="n1", drains=False))
        self.say("node n1 is resumed")
        sweeps = str(round(20 * self.length))
        rigid = self.submit(program("jacobi", "--n", "256", "--sweeps", sweeps), 6)
        small = self.submit(program("lu", "--n", "256", "--block", "32"), 2)
        for each in (job, rigid, small):
            self.wait(each)

    def lose(self) -> None:
        """Kill a host while each host runs a job, and run the lost job again on what is left."""
        started = [self.submit(synthetic(round(60 * self.length)), 4) for _ in range(HOSTS)]
        for number, job in enumerate(started, start=1):
            self.until(job, 4, f"n{number}")
        time.sleep(1.0)
        self.cluster.hosts["n3"].kill()
        self.say("host n3 is killed")
        lost = self.wait(started[-1])
        if lost.state == "NODE_FAIL":
            self.again[lost.job] = self.submit(synthetic(round(60 * self.length)), 4)
            self.say(f"job {self.again[lost.job]} replaces job {lost.job}")
        for each in [*started[:-1], *self.again.values()]:
            self.wait(each)

    def wait(self, job: int) -> m.JobInfo:
        """Wait for the end of a job."""
        info = self.cluster.wait(job, timeout=240.0)
        self.say(f"job {job}: {info.state} {info.reason}".rstrip())
        return info


def hosts_of(job: m.JobInfo) -> list[frozenset[str]]:
    """Return the hosts of a job over time; equal ones in succession count once."""
    found: list[frozenset[str]] = []
    for _, text in job.allocation:
        hosts = frozenset(f"n{1 + number // PROCESSORS}" for number in ProcSet.parse(text))
        if hosts and (not found or found[-1] != hosts):
            found.append(hosts)
    return found


def summary(jobs: list[m.JobInfo], replaced: dict[int, int]) -> dict[str, int]:
    """Count what the demonstration is to show.

    `moved_between_hosts` counts verified jobs that ended on none of the hosts that they began on;
    `restarted` lost jobs that were run again and verified, `lost` all others that did not end well.
    """
    verified = {job.job for job in jobs if job.facts.get("verified") is True}
    hosts = {job.job: hosts_of(job) for job in jobs}
    restarted = {lost for lost, job in replaced.items() if job in verified}
    moved = [job for job in verified if not hosts[job][0] & hosts[job][-1]]
    return {
        "jobs": len(jobs) - len(replaced),
        "verified": len(verified),
        "hosts_used": len(frozenset().union(*(each for found in hosts.values() for each in found))),
        "moved_between_hosts": len(moved),
        "restarted": len(restarted),
        "lost": len({job.job for job in jobs} - verified - restarted),
    }


def table(jobs: list[m.JobInfo], replaced: dict[int, int]) -> str:
    """Show the jobs with their sizes and hosts."""
    heads = ("JOB", "NAME", "STATE", "SIZES", "HOSTS", "MIB MOVED", "VERIFIED", "NOTE")
    rows = [
        (
            str(job.job),
            job.name,
            job.state,
            sizes_text(job),
            " > ".join("+".join(sorted(hosts)) for hosts in hosts_of(job)),
            f"{sum(resize.moved_bytes for resize in job.resizes) / 2**20:.1f}",
            "yes" if job.facts.get("verified") is True else "no",
            f"{job.reason}; again as job {replaced[job.job]}" if job.job in replaced else "",
        )
        for job in jobs
    ]
    return render(Table(heads, rows, left=frozenset({"NAME", "STATE", "HOSTS", "NOTE"})), False)


def main(words: list[str] | None = None) -> int:
    """Run the demonstration; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--length", type=float, default=1.0, help="factor of iterations (1)")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="reshape-cluster-") as folder:
        try:
            with Cluster(Path(folder), HOSTS, PROCESSORS, CONFIG, ["--verify"]) as cluster:
                demo = Demo(cluster, options.length)
                demo.run()
                jobs = [cluster.job(job) for job in demo.jobs]
        except NoHosts as reason:
            print(f"the demonstration cannot run here: {reason}", file=sys.stderr)
            return CANNOT_RUN
    found = summary(jobs, demo.again)
    print(f"\n{table(jobs, demo.again)}\n\n{json.dumps(found)}")
    return 0 if found["verified"] == found["jobs"] and not found["lost"] else 1


if __name__ == "__main__":
    sys.exit(main())

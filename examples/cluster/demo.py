"""Real jobs on three hosts of four processors, one of which is killed: ``make demo-cluster``.

The hosts are namespaces of this machine (`hosts`): nothing passes between them but a network and
this file system. A job grows from the host that it began on onto another one, and leaves the first
one, which drains. A rigid MPI program runs on several hosts. Then one host is killed while each
host runs a job; the job of that host goes back to the queue and restarts from its last checkpoint
on what is left. Every program verifies its own result.

With --report a page shows the jobs on the processors of each host.

The last line of the output is JSON: jobs, verified, hosts_used, moved_between_hosts, restarted,
lost. The exit code is 0 if all jobs are verified, 1 if not, 77 if such hosts cannot be made here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cluster import Cluster
from hosts import NoHosts

from reshape.topology import Topology
from scheduler.client.columns import sizes_text
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.text.tables import Table, render

CANNOT_RUN = 77
HOSTS, PROCESSORS = 3, 4
NAMES = tuple(f"n{number}" for number in range(1, HOSTS + 1))
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

    Attributes
    ----------
    hosts : host of each node, in the order in which the nodes have joined.
    """

    def __init__(self, cluster: Cluster, length: float) -> None:
        self.cluster, self.length = cluster, length
        self.began = time.monotonic()
        self.jobs: list[int] = []
        self.hosts: Sequence[str] = NAMES

    def say(self, text: str) -> None:
        """Print what happens, with the time since the beginning."""
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def submit(self, argv: list[str], processors: int, sizes: str = "", **more: object) -> int:
        """Submit a job; with `sizes` it is resizable."""
        if sizes:
            most = int(sizes.rpartition(",")[2])
            more |= {"max_processors": most, "topology": Topology.parse(f"list:{sizes}")}
        job = self.cluster.submit(argv, processors, name=argv[2].removeprefix("apps."), **more)
        self.jobs.append(job)
        return job

    def until(self, job: int, *hosts: str) -> None:
        """Wait until a job was on these hosts and no others."""
        self.cluster.until(
            lambda: frozenset(hosts) in hosts_of(self.cluster.job(job), self.hosts), timeout=60.0
        )
        self.say(f"job {job} is on {' and '.join(hosts)}")

    def run(self) -> None:
        """Run all steps."""
        self.move()
        self.lose()

    def move(self) -> None:
        """Let a job grow onto another host and leave the one that it began on."""
        job = self.submit(synthetic(round(60 * self.length)), 4, "4,8")
        self.until(job, "n1")
        self.until(job, "n1", "n2")
        self.cluster.ask(m.ChangeMachine(change=m.DrainNode("n1", "demonstration")))
        self.say("node n1 drains")
        self.until(job, "n2")
        self.cluster.ask(m.ChangeMachine(change=m.ResumeNode("n1")))
        self.say("node n1 is resumed")
        sweeps = str(round(20 * self.length))
        rigid = self.submit(program("jacobi", "--n", "256", "--sweeps", sweeps), 6)
        small = self.submit(program("lu", "--n", "256", "--block", "32"), 2)
        for each in (job, rigid, small):
            self.wait(each)

    def lose(self) -> None:
        """Kill a host while each host runs a job; the job of that host restarts elsewhere."""
        started = [self.submit(synthetic(round(60 * self.length)), 4) for _ in range(HOSTS - 1)]
        size = ["--n", "512", "--sweeps", "10", "--iterations", str(round(150 * self.length))]
        argv = program("jacobi", *size, "--checkpoint", "20")
        started.append(self.submit(argv, 4, requeue=True))
        for number, job in enumerate(started, start=1):
            self.until(job, f"n{number}")
        self.cluster.until(lambda: self.cluster.job(started[-1]).iteration >= 25, timeout=60.0)
        self.cluster.hosts["n3"].kill()
        self.say(f"host n3 is killed; job {started[-1]} has done more than 25 iterations there")
        for job in started:
            self.wait(job)

    def wait(self, job: int) -> m.JobInfo:
        """Wait for the end of a job."""
        info = self.cluster.wait(job, timeout=240.0)
        self.say(f"job {job}: {info.state} {info.reason}".rstrip())
        return info


def hosts_of(job: m.JobInfo, names: Sequence[str] = NAMES) -> list[frozenset[str]]:
    """Return the hosts of a job over time; equal ones in succession count once.

    Parameters
    ----------
    names : host of each node, in the order in which the nodes have joined.
    """
    found: list[frozenset[str]] = []
    for _, text in job.allocation:
        hosts = frozenset(names[number // PROCESSORS] for number in ProcSet.parse(text))
        if hosts and (not found or found[-1] != hosts):
            found.append(hosts)
    return found


def summary(jobs: list[m.JobInfo], names: Sequence[str] = NAMES) -> dict[str, int]:
    """Count what the demonstration is to show.

    `moved_between_hosts` counts verified jobs that resizes have brought to other hosts alone than
    those on which they began; `restarted` those that went back to the queue and were verified;
    `lost` those that did not end well.
    """
    verified = [job for job in jobs if job.facts.get("verified") is True]
    hosts = {job.job: hosts_of(job, names) for job in jobs}
    moved = [
        job
        for job in verified
        if not job.requeues and any(not hosts[job.job][0] & later for later in hosts[job.job])
    ]
    return {
        "jobs": len(jobs),
        "verified": len(verified),
        "hosts_used": len(frozenset().union(*(each for found in hosts.values() for each in found))),
        "moved_between_hosts": len(moved),
        "restarted": sum(job.requeues > 0 for job in verified),
        "lost": sum(job.state != "COMPLETED" for job in jobs),
    }


def table(jobs: list[m.JobInfo], names: Sequence[str] = NAMES) -> str:
    """Show the jobs with their sizes and hosts."""
    heads = ("JOB", "NAME", "STATE", "SIZES", "HOSTS", "MIB MOVED", "RESTARTS", "VERIFIED")
    rows = [
        (
            str(job.job),
            job.name,
            job.state,
            sizes_text(job),
            " > ".join("+".join(sorted(hosts)) for hosts in hosts_of(job, names)),
            f"{sum(resize.moved_bytes for resize in job.resizes) / 2**20:.1f}",
            str(job.requeues),
            "yes" if job.facts.get("verified") is True else "no",
        )
        for job in jobs
    ]
    return render(Table(heads, rows, left=frozenset({"NAME", "STATE", "HOSTS"})))


def main(words: list[str] | None = None) -> int:
    """Run the demonstration; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--length", type=float, default=1.0, help="factor of iterations (1)")
    parser.add_argument("--report", type=Path, help="write a page that shows the jobs to this file")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="reshape-cluster-") as folder:
        try:
            with Cluster(Path(folder), HOSTS, PROCESSORS, CONFIG, ["--verify"]) as cluster:
                demo = Demo(cluster, options.length)
                demo.run()
                jobs = [cluster.job(job) for job in demo.jobs]
                if options.report is not None:
                    cluster.write_report(options.report, "Jobs on three hosts")
        except NoHosts as reason:
            print(f"the demonstration cannot run here: {reason}", file=sys.stderr)
            return CANNOT_RUN
    found = summary(jobs)
    if options.report is not None:
        print(f"Open in a browser: {options.report}")
    print(f"\n{table(jobs)}\n\n{json.dumps(found)}")
    return 0 if found["verified"] == found["jobs"] and not found["lost"] else 1


if __name__ == "__main__":
    sys.exit(main())

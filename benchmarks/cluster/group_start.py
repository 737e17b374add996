"""Start of a group on several hosts: by the service, by plain mpiexec, and as groups that join.

    python benchmarks/cluster/group_start.py [--hosts 1 2 4 8] [--ranks 2] [--repeats 5] [--json]
    python benchmarks/cluster/group_start.py --groups 1 2 4 6 [--repeats 5] [--json]

Hosts are namespaces of this machine (`examples/cluster/hosts.py`; needs root), each with an agent
started by hand. In turn, on the same hosts, with `--ranks` processes on each of them:

    service   the time from sending a submission to the first barrier of the group: decision,
              journal, agents, `mpiexec -launcher manual` and a proxy that each agent starts
    mpiexec   one plain `mpiexec -launcher ssh` whose launcher program only enters the other host,
              the time from its start to the first barrier
    joined    one plain mpiexec on each host, all started at once, that join by accept, connect and
              merge in turn, to a barrier of all

The ratio is that of the medians of service and mpiexec; goal: at most 1.3.

With `--groups 1 2 4 6` instead, a job of six processes starts on one host as so many groups, as a
job with a minimum does, and the time is from sending the submission to the first barrier of the
job. The ratio is that of the medians, against one group.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "cluster"))

from cluster import Cluster
from hosts import HEAD, Host

from reshape.mpi import clean_environment, mpiexec_path
from reshape.topology import Topology

GOAL = 1.3
LIMIT_S = 120.0
#: The argument is the file for the time of the barrier.
BARRIER = """
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
assert world.size == int(sys.argv[2]), world.size
world.Barrier()
if world.rank == 0:
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(repr(time.time()))
    os.replace(sys.argv[1] + ".new", sys.argv[1])
"""
#: The arguments are the file for the time, the number of this group and of all groups.
JOINED = """
import os, sys, time
from mpi4py import MPI
path, group, groups = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
comm, ties = MPI.COMM_WORLD, []

def port_file(number):
    return f"{path}.port-{number}"

for number in range(1, groups):
    if number == group:
        while comm.rank == 0 and not os.path.exists(port_file(number)):
            time.sleep(0.002)
        port = open(port_file(number)).read() if comm.rank == 0 else ""
        ties.append(comm.Connect(port))
        comm = ties[-1].Merge(high=True)
    elif number > group:
        port = ""
        if comm.rank == 0:
            port = MPI.Open_port()
            with open(port_file(number) + ".new", "w") as file:
                file.write(port)
            os.replace(port_file(number) + ".new", port_file(number))
        ties.append(comm.Accept(port))
        comm = ties[-1].Merge(high=False)
assert comm.size == MPI.COMM_WORLD.size * groups, comm.size
comm.Barrier()
if comm.rank == 0:
    with open(path + ".new", "w") as file:
        file.write(repr(time.time()))
    os.replace(path + ".new", path)
for tie in ties:
    tie.Disconnect()
"""


#: The argument is the file for the time of the barrier of a job, whatever its groups.
IN_BLOCK = """
import os, sys, time
import reshape
with reshape.application() as app:
    assert app.comm.size == int(sys.argv[2]), app.comm.size
    app.comm.Barrier()
    if app.comm.rank == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(repr(time.time()))
        os.replace(sys.argv[1] + ".new", sys.argv[1])
"""
#: Processes of a job that starts as several groups, and its valid sizes: a group ends at each.
PROCESSES = 6
SIZES = {1: "6,12", 2: "3,6,12", 3: "2,4,6,12", 4: "1,2,4,6,12", 5: "1,2,3,4,6,12"}
SIZES[6] = "1,2,3,4,5,6,12"


class Starts:
    """The three ways to start a group on the hosts of a cluster."""

    def __init__(self, cluster: Cluster, ranks: int) -> None:
        self.cluster, self.ranks, self._count = cluster, ranks, 0
        self.launcher = cluster.folder / "launcher.sh"
        table = "\n".join(f"{h.name}) pid={h.init};;" for h in cluster.hosts.hosts.values())
        # hydra quotes the path of its proxy for the shell of the other host.
        self.launcher.write_text(
            "#!/bin/sh\n"
            'while [ "${1#-}" != "$1" ]; do shift; done\n'
            f"case $1 in\n{table}\nesac\nshift\n"
            'proxy=${1#\\"}; proxy=${proxy%\\"}; shift\n'
            'exec nsenter -t $pid -n -u -i -m -p -- $proxy "$@"\n'
        )
        self.launcher.chmod(0o755)

    def service(self, hosts: list[Host]) -> float:
        """Start the group by a submission; return seconds."""
        return self._submit(BARRIER, self.ranks * len(hosts))

    def groups(self, count: int) -> float:
        """Start a job as so many groups by a submission; return seconds."""
        topology = Topology.parse(f"list:{SIZES[count]}")
        return self._submit(IN_BLOCK, PROCESSES, max_processors=12, topology=topology)

    def _submit(self, program: str, size: int, **more: Any) -> float:
        out = self._file()
        began = time.time()
        command = [sys.executable, "-c", program, str(out), str(size)]
        job = self.cluster.submit(command, size, **more)
        ended = self._await(out)
        info = self.cluster.wait(job)
        assert info.state == "COMPLETED", (info, self.cluster.output(job))
        return ended - began

    def mpiexec(self, hosts: list[Host]) -> float:
        """Start the group by one mpiexec; return seconds."""
        out = self._file()
        size = self.ranks * len(hosts)
        places = ",".join(f"{host.name}:{self.ranks}" for host in hosts)
        launcher = ["-launcher", "ssh", "-launcher-exec", str(self.launcher)]
        command = [str(mpiexec_path()), *launcher, "-localhost", HEAD, "-hosts", places]
        command += ["-n", str(size), sys.executable, "-c", BARRIER, str(out), str(size)]
        return self._run([self.cluster.hosts.on_head(*command)], out)

    def joined(self, hosts: list[Host]) -> float:
        """Start one group on each host and join them; return seconds."""
        out = self._file()
        fork = [str(mpiexec_path()), "-launcher", "fork", "-n", str(self.ranks)]
        program = [*fork, sys.executable, "-c", JOINED, str(out)]
        commands = [
            host.command([*program, str(number), str(len(hosts))])
            for number, host in enumerate(hosts)
        ]
        return self._run(commands, out)

    def _run(self, commands: list[list[str]], out: Path) -> float:
        environment = clean_environment(os.environ) | {"UCX_LOG_LEVEL": "error"}
        began = time.time()
        running = [
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
            for command in commands
        ]
        ended = self._await(out)
        for process in running:
            assert process.wait(LIMIT_S) == 0, process.args
        return ended - began

    def _file(self) -> Path:
        self._count += 1
        return self.cluster.folder / f"barrier-{self._count}"

    def _await(self, out: Path) -> float:
        until = time.monotonic() + LIMIT_S
        while not out.exists():
            if time.monotonic() > until:
                raise SystemExit(f"no barrier within {LIMIT_S:g} s")
            time.sleep(0.01)
        return float(out.read_text())


def measure(counts: list[int], ranks: int, repeats: int) -> list[dict[str, Any]]:
    """Return one row for each number of hosts."""
    rows = []
    for count in counts:
        with (
            tempfile.TemporaryDirectory() as folder,
            Cluster(Path(folder), hosts=count, processors=ranks) as cluster,
        ):
            starts = Starts(cluster, ranks)
            hosts = list(cluster.hosts.hosts.values())
            ways: dict[str, Callable[[list[Host]], float]] = {
                "service": starts.service,
                "mpiexec": starts.mpiexec,
                "joined": starts.joined,
            }
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(repeats):
                for name, start in ways.items():
                    times[name].append(start(hosts))
        found = {name: median(each) for name, each in times.items()}
        row: dict[str, Any] = {"hosts": count, "ranks": ranks * count}
        row |= {f"{name}_s": round(each, 3) for name, each in found.items()}
        row["ratio"] = round(found["service"] / found["mpiexec"], 2)
        row["least_ratio"] = round(min(times["service"]) / min(times["mpiexec"]), 2)
        row["joined_ratio"] = round(found["joined"] / found["mpiexec"], 2)
        rows.append(row | {"goal": GOAL})
    return rows


def measure_groups(counts: list[int], repeats: int) -> list[dict[str, Any]]:
    """Return one row for each number of groups on one host."""
    # The smallest valid size is the minimum.
    options = ["--scenario", "steady", "--set", "backfill.adaptive_start=0.1"]
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder), hosts=1, processors=12, options=options) as cluster,
    ):
        starts = Starts(cluster, PROCESSES)
        times: dict[int, list[float]] = {count: [] for count in dict.fromkeys([1, *counts])}
        for _ in range(repeats):
            for count, each in times.items():
                each.append(starts.groups(count))
    one = median(times[1])
    return [
        {
            "groups": count,
            "ranks": PROCESSES,
            "start_s": round(median(times[count]), 3),
            "least_s": round(min(times[count]), 3),
            "ratio": round(median(times[count]) / one, 2),
        }
        for count in counts
    ]


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--ranks", type=int, default=2, help="processes on each host (2)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--groups", type=int, nargs="+", choices=[*SIZES], help="on one host")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.groups:
        rows = measure_groups(options.groups, options.repeats)
    else:
        rows = measure(options.hosts, options.ranks, options.repeats)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print("".join(f"{name:>13}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value:>13}" for value in row.values()))


if __name__ == "__main__":
    main()

"""Resizes across hosts: the join of a group on another host, and the pause against the network.

    python benchmarks/cluster/resize_across_hosts.py [--mib 256] [--gbit 1] [--resizes 10] [--json]

Two hosts are namespaces of this machine (`examples/cluster/hosts.py`; needs root). A job of two
processes on the first host expands onto the second one and contracts off it again, by turns.

- join: with little data. `join` is the time from the stop of the job to the merged communicator:
  restart point, port, accept, merge, introduction of the new group.
- pause: with `--mib` of data, half of which crosses the network in each resize; once with both
  hosts limited to `--gbit` Gbit/s by `tc ... tbf`, once without a limit. `crossed_mib` is what the
  network interfaces have counted. `link_s` is the time that a plain TCP connection takes for as
  many bytes between the same hosts, measured after the resizes.

All values are medians; goal: with the limit a pause of at most 1.5 times the time of the link.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "cluster"))

from cluster import Cluster

from reshape.topology import Topology
from scheduler.protocol import messages as m

GOAL = 1.5
PHASES = ("join", "plan", "move", "resume")
POLICIES = Path(__file__).parents[1] / "reliability"
OPTIONS = ["--scenario", "restless:Restless", "--set", "resizing.hold=2"]
LIMIT_S = 240.0
PORT = 7078
RECEIVER = """
import socket, sys
buffer, left = bytearray(1 << 20), int(sys.argv[2])
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    peer = server.accept()[0]
    while left:
        left -= peer.recv_into(buffer)
    peer.sendall(b"!")
"""
SENDER = """
import socket, sys, time
data, left = bytes(1 << 20), int(sys.argv[3])
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    began = time.perf_counter()
    while left:
        count = min(left, len(data))
        peer.sendall(memoryview(data)[:count])
        left -= count
    peer.recv(1)
    print(time.perf_counter() - began)
"""


def limit(cluster: Cluster, gbit: float) -> None:
    """Limit what each host sends to the network."""
    shape = ["rate", f"{gbit}gbit", "burst", "256kb", "latency", "50ms"]
    for host in cluster.hosts.hosts.values():
        command = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *shape]
        subprocess.run(host.command(command), check=True)


def sent_bytes(cluster: Cluster) -> int:
    """Bytes that the hosts have sent to each other so far, and to the service."""
    command = cluster.hosts.on_head("ip", "-s", "-j", "link", "show")
    links = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return sum(link["stats64"]["rx"]["bytes"] for link in links if link["ifname"] in ("vn1", "vn2"))


def link_s(cluster: Cluster, nbytes: int) -> float:
    """Seconds in which a TCP connection carries this many bytes from one host to the other."""
    n1, n2 = cluster.hosts["n1"], cluster.hosts["n2"]
    receive = [sys.executable, "-c", RECEIVER, str(PORT), str(nbytes)]
    with subprocess.Popen(n2.command(receive), stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == b"ready\n"
        send = [sys.executable, "-c", SENDER, n2.address, str(PORT), str(nbytes)]
        done = subprocess.run(n1.command(send), capture_output=True, text=True, check=True)
    return float(done.stdout)


def resize(cluster: Cluster, mib: int, count: int) -> tuple[list[m.ResizeInfo], int]:
    """Resize a job this many times; return the resizes and the bytes that crossed the network."""
    program = [sys.executable, "-m", "apps.synthetic", "--mib", str(mib), "--seconds", "0.2"]
    job = cluster.submit(
        [*program, "--iterations", "100000", "--speedup", "amdahl:serial=1"],
        2,
        max_processors=4,
        topology=Topology.parse("list:2,4"),
    )
    cluster.until(lambda: cluster.job(job).state == "RUNNING", LIMIT_S)
    before = sent_bytes(cluster)
    cluster.until(lambda: len(done_of(cluster.job(job))) >= count, LIMIT_S)
    crossed = sent_bytes(cluster) - before
    resizes = done_of(cluster.job(job))
    info = cluster.job(job)
    assert all(each.outcome in ("done", "under way") for each in info.resizes), info.resizes
    cluster.ask(m.ChangeJobs.one(job, m.CancelJob()))
    cluster.wait(job, LIMIT_S)
    return resizes, crossed // len(resizes)


def done_of(job: m.JobInfo) -> list[m.ResizeInfo]:
    """Return the committed resizes of a job."""
    return [each for each in job.resizes if each.outcome == "done"]


def row_of(what: str, resizes: list[m.ResizeInfo], crossed: int) -> dict[str, Any]:
    """Medians of resizes in one direction."""
    phases = {name: median(getattr(each, f"{name}_s") for each in resizes) for name in PHASES}
    pauses = [sum(getattr(each, f"{name}_s") for name in PHASES) for each in resizes]
    row: dict[str, Any] = {"what": what, "resize": f"{resizes[0].old}->{resizes[0].new}"}
    row |= {"count": len(resizes), "crossed_mib": round(crossed / 2**20, 1)}
    row |= {f"{name}_ms": round(1000 * each, 1) for name, each in phases.items()}
    return row | {"pause_ms": round(1000 * median(pauses), 1)}


def both_directions(what: str, resizes: list[m.ResizeInfo], crossed: int) -> list[dict[str, Any]]:
    """Rows of the expansions and the contractions."""
    expansions = [each for each in resizes if each.new > each.old]
    contractions = [each for each in resizes if each.new < each.old]
    return [row_of(what, each, crossed) for each in (expansions, contractions)]


def measure(mib: int, gbit: float, count: int) -> list[dict[str, Any]]:
    """Run all measurements."""
    rows = []
    for what, limited, size, resizes in (
        ("join", False, 1, 2 * count),
        (f"{mib} MiB, {gbit:g} Gbit/s", True, mib, count),
        (f"{mib} MiB, no limit", False, mib, count),
    ):
        with (
            tempfile.TemporaryDirectory() as folder,
            Cluster(
                Path(folder), hosts=2, processors=2, options=OPTIONS, policies=POLICIES
            ) as cluster,
        ):
            if limited:
                limit(cluster, gbit)
            done, crossed = resize(cluster, size, resizes)
            found = both_directions(what, done, crossed)
            if size > 1:
                link = median(link_s(cluster, crossed) for _ in range(5))
                for row in found:
                    row["link_ms"] = round(1000 * link, 1)
                    row["ratio"] = round(row["pause_ms"] / row["link_ms"], 2)
                    row["goal"] = GOAL if limited else None
        rows += found
    return rows


def main() -> None:
    """Print the table, or the same as JSON."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the service ends, too
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--gbit", type=float, default=1.0)
    parser.add_argument("--resizes", type=int, default=10, help="resizes with --mib of data (10)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.mib, options.gbit, options.resizes)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("  ".join(f"{name}={value}" for name, value in row.items() if value is not None))


if __name__ == "__main__":
    main()

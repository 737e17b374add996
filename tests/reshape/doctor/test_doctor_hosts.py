"""`reshape doctor --hosts` on hosts made of namespaces, and on hosts that lack something."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import pytest
from command_line import reshape
from hosts import NETWORK, Hosts, NoHosts

from reshape.doctor.hosts import HostEntry, check_host, read_hosts
from reshape.errors import ReshapeError

CPUS = len(os.sched_getaffinity(0))
pytestmark = [pytest.mark.hosts, pytest.mark.timeout(180)]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    try:
        with Hosts(3) as made:
            yield made
    except NoHosts as reason:
        pytest.skip(str(reason))


def machine_file(folder: Path, hosts: Hosts, processors: int = 1) -> Path:
    nodes = "".join(
        f"  - {{name: {name}, processors: {processors}, host: {NETWORK}.{name[1:]}}}\n"
        for name in hosts.hosts
    )
    path = folder / "cluster.yaml"
    path.write_text(f"launcher: none\nssh: {hosts.ssh()}\nnodes:\n{nodes}")
    return path


def doctor(*arguments: object, code: int) -> dict[str, dict[str, Any]]:
    done = reshape("doctor", "--json", "--limit", 30, *arguments, code=code)
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_hosts_that_are_fit_for_jobs(hosts: Hosts, tmp_path: Path) -> None:
    file = machine_file(tmp_path, hosts, processors=CPUS)
    checks = doctor("--hosts", file, "--shared", tmp_path, code=0)
    assert {check["status"] for name, check in checks.items()} <= {"ok", "note"}
    of_host = ("reached", "releases", "clock", "CPUs", "/dev/shm", "shared folder")
    names = [f"{name} {what}" for name in hosts.hosts for what in of_host]
    assert list(checks) == [*names, "n1-n2", "n1-n3", "n2-n3", "joins and leaves"]
    assert checks["n2 reached"]["result"] == f"n2 at {NETWORK}.2"
    assert version("reshape-mpi") in checks["n3 releases"]["result"]
    assert checks["n1 CPUs"]["meaning"] == "ranks are bound"
    assert "MB/s" in checks["n1-n3"]["result"]
    assert checks["joins and leaves"]["result"].startswith("3 groups joined in turn")
    assert not list(tmp_path.glob("reshape-doctor-*"))


def test_what_hosts_lack_is_named(hosts: Hosts, tmp_path: Path) -> None:
    file = machine_file(tmp_path, hosts, processors=CPUS + 1)
    hosts["n3"].kill()
    cover = ["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    subprocess.run(hosts["n2"].command(cover), check=True)
    checks = doctor("--hosts", file, "--shared", tmp_path, code=1)
    assert checks["n3 reached"]["status"] == "fault"
    assert "n1-n3" not in checks
    assert checks["n2 shared folder"]["status"] == "fault"
    assert "No such file or directory" in checks["n2 shared folder"]["result"]
    assert checks["joins and leaves"]["status"] == "skipped"
    assert checks["n1-n2"]["status"] in ("ok", "note")
    assert checks["n1 CPUs"]["mend"] == f"give n1 at most {CPUS} processors"


def test_a_pair_of_hosts_without_a_network_is_named(hosts: Hosts, tmp_path: Path) -> None:
    file = machine_file(tmp_path, hosts)
    hosts["n3"].kill()
    hosts.cut("n2")
    done = reshape("doctor", "--json", "--limit", 5, "--hosts", file, "--shared", tmp_path, code=1)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["n2 reached"]["status"] == "ok"  # by nsenter, which needs no network
    assert checks["n1-n2"]["status"] == "fault"
    assert checks["n1-n2"]["meaning"] == "no group can span these hosts"
    assert checks["joins and leaves"]["status"] == "fault"


FACTS = {
    "host": "n1",
    "python": "2.7.18",
    "releases": {"reshape-mpi": "0.0.1", "mpi4py": "1", "mpich": ""},
    "cpus": 4,
    "shm_free": 1 << 20,
    "shared": "",
    "clock_s": -90.0,
    "clock_error_s": 0.001,
}


def test_every_line_has_a_verdict_and_a_fix(tmp_path: Path) -> None:
    host = HostEntry("n1", 4, "user@n1.example")
    found = check_host(host, FACTS, "", tmp_path)
    checks = {check.name.partition(" ")[2]: check for check in found}
    assert host.address == "n1.example"
    assert checks["releases"].status == "fault"
    assert "install reshape-mpi" in checks["releases"].fix
    assert (checks["clock"].status, checks["clock"].result) == ("note", "-90000.0 ms (+-1.0 ms)")
    for unknown in ({"clock_s": inf}, {"clock_error_s": 2.0}):  # an earlier release, a slow answer
        (clock,) = (c for c in check_host(host, FACTS | unknown, "", tmp_path) if "clock" in c.name)
        assert clock.status == "skipped"
        assert clock.result.startswith("not known")
    assert (checks["/dev/shm"].status, checks["shared folder"].status) == ("note", "fault")
    assert all(check.fix for check in checks.values() if check.status != "ok")
    (check,) = check_host(host, None, "exit code 255: no route", tmp_path)
    assert (check.name, check.status, check.result) == (
        "n1 reached",
        "fault",
        "exit code 255: no route",
    )


def test_files_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: [a, b]\nprocessors_per_node: 4\nlauncher: ssh\n")
    assert read_hosts(path) == ([HostEntry("a", 4), HostEntry("b", 4)], "ssh")
    path.write_text("nodes:\n  - {name: a}\n  - {name: b, launcher: ssh, host: u@b}\nssh: ssh -v\n")
    assert read_hosts(path) == ([HostEntry("b", 0, "u@b", "ssh")], "ssh -v")
    for text, error in (
        ("nodes: 32\n", "lists no hosts"),
        ("nodes: [a]\n", "has no node on another host: give its nodes the launcher"),
        ("nodes: [", "lists no hosts"),
    ):
        path.write_text(text)
        with pytest.raises(ReshapeError, match=error):
            read_hosts(path)
    with pytest.raises(ReshapeError, match="cannot read"):
        read_hosts(tmp_path / "none.yaml")

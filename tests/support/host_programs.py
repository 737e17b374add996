"""What tests on several hosts share: a check whether hosts can be made, and a program."""

from __future__ import annotations

import sys

import pytest
from cluster import Cluster
from hosts import Hosts, NoHosts
from paths import SUPPORT
from told import end_file

from scheduler.protocol import messages as m


def skip_without_hosts() -> None:
    """Skip the tests of a module where no hosts of namespaces can be made."""
    try:
        with Hosts(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))


def synthetic(mib: int = 8) -> list[str]:
    """A resizable program with registered data that goes on until the test tells it to end."""
    argv = [sys.executable, str(SUPPORT / "paced.py"), "0.4", "apps.synthetic"]
    return [*argv, "--iterations", "2", "--seconds", "0", "--mib", str(mib)]


def let_end(cluster: Cluster, job: int) -> None:
    """Tell a job that it may end (`told`)."""
    (cluster.folder / end_file(job)).touch()


def finish(cluster: Cluster, job: int) -> m.JobInfo:
    """Tell a job that it may end, and wait until it has."""
    let_end(cluster, job)
    return cluster.wait(job)

"""What tests on several hosts share: a check whether hosts can be made, and a program."""

from __future__ import annotations

import sys

import pytest
from hosts import Hosts, NoHosts


def skip_without_hosts() -> None:
    """Skip the tests of a module where no hosts of namespaces can be made."""
    try:
        with Hosts(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))


def synthetic(iterations: int) -> list[str]:
    """A resizable program with 8 MiB of data and iterations of 0.1 s on its starting size."""
    argv = [sys.executable, "-m", "apps.synthetic", "--iterations", str(iterations)]
    return [*argv, "--seconds", "0.1", "--speedup", "amdahl:serial=0", "--mib", "8"]

"""A pool whose batch system is PSI/J with processes of this machine."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest
from waiting import wait_until

from reshape.errors import ReshapeError
from scheduler.protocol import messages as m

OPTIONS = {
    "nodes": "0-2",
    "time_limit": "10:00",
    "processors": "2",
    "backlog": "2",
    "idle_timeout": "0:02",
    "hysteresis": "0:02",
}


@pytest.fixture
def serving(served: Any) -> Any:
    """A service without nodes of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served.start("--processors", "0", "--scenario", "easy", "--listen", f"127.0.0.1:{port}")
    return served


def add(served: Any, system: str, *arguments: str) -> m.Message:
    message = m.AddPool(name="p", system=system, options=OPTIONS, arguments=arguments)
    answer: m.Message = served.ask(message)
    return answer


def allocations(served: Any) -> list[str]:
    answer = served.ask(m.ListPools())
    assert isinstance(answer, m.PoolList)
    return [each.state for each in answer.pools[0].allocations]


def test_a_job_gets_two_nodes_by_two_batch_jobs_which_are_given_back(serving: Any) -> None:
    pytest.importorskip("psij", reason="the extra 'psij' is not installed")
    assert isinstance(add(serving, "psij-local"), m.PoolAdded)
    program = "from mpi4py.MPI import COMM_WORLD as w; w.rank == 0 and print(w.size)"
    job = serving.submit([sys.executable, "-c", program], 4, 300.0)
    info = serving.wait(job)
    assert info.state == "COMPLETED", serving.output(job)
    assert serving.output(job) == "4\n"
    wait_until(lambda: allocations(serving) == [])
    log = serving.place.log("serve").read_text()
    assert log.count("is batch job") == 2
    assert "is cancelled" not in log  # the batch jobs end with their agents


def test_options_and_systems_that_psij_does_not_have_are_refused(serving: Any) -> None:
    with pytest.raises(ReshapeError, match="no batch system 'psij-pbspro'; there is slurm, psij-"):
        add(serving, "psij-pbspro")
    try:
        import psij
    except ImportError:
        with pytest.raises(ReshapeError, match=r"would be refused: PSI/J is not installed: pip"):
            add(serving, "psij-local")
    else:
        del psij
        with pytest.raises(ReshapeError, match=r"would be refused: psij-local has no option"):
            add(serving, "psij-local", "--partition=short")

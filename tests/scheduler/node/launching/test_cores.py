"""Which CPUs each processor of a host stands for."""

from __future__ import annotations

import os
import sys

import pytest
from rank_runs import run_rank

from scheduler.node.launching.cores import binding_text, cores, cpus_of_processors

#: Two cores with two hardware threads each, one with one.
CORES = [[0, 3], [1, 4], [2]]


def test_cores_are_the_cpus_that_this_process_may_use() -> None:
    assert sorted(cpu for core in cores() for cpu in core) == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("processors", "cpus"),
    [
        (1, [[0, 3]]),
        (3, [[0, 3], [1, 4], [2]]),
        (4, [[0], [1], [2], [3]]),
        (5, [[0], [1], [2], [3], [4]]),
        (6, []),
    ],
)
def test_a_processor_is_a_core_or_else_a_cpu(processors: int, cpus: list[list[int]]) -> None:
    assert cpus_of_processors(CORES, processors) == cpus


def printed(cpus: dict[int, list[int]], rank: int) -> list[str]:
    """What a rank that is bound prints: its affinity and the variable, as it sees them."""
    script = "import os; print(*os.sched_getaffinity(0)); print(os.environ.get('RESHAPE_CPUS'))"
    variables = {"RESHAPE_CPUS": binding_text(cpus), "PMI_RANK": str(rank)}
    _, done = run_rank([sys.executable, "-c", script], **variables)
    assert done.returncode == 0
    return done.stdout.splitlines() + done.stderr.splitlines()


def test_a_rank_is_bound_before_its_program_starts() -> None:
    last = max(os.sched_getaffinity(0))
    everything = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert printed({0: [9999], 3: [last]}, rank=3) == [str(last), "None"]
    assert printed({0: [last]}, rank=1) == [everything, "None"]


def test_a_binding_that_the_system_refuses_is_reported_and_left_out() -> None:
    affinity, _, error = printed({0: [9999]}, rank=0)
    assert affinity == " ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert error == "a rank is not bound to the CPUs [9999]: Invalid argument"

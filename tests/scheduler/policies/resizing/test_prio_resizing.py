"""Reasons of the rules that the scenarios of PRIO 3.3 share."""

from __future__ import annotations

from scheduler.core.core import Core
from scheduler.model.events import JobSpec, JobStarted, JobSubmitted, ResizeDone, ResizePoint
from scheduler.model.machine import Machine
from scheduler.model.orders import Contract, Expand
from scheduler.policies.scenarios import scenario


def test_an_undone_expansion_names_the_times_that_were_compared() -> None:
    """Only first iterations are known on both sizes; later ones on 2 were slower than on 4."""
    core = Core(scenario("fcfs-pr"), Machine([("n1", 4)]))
    core.handle([JobSubmitted(0.0, 1, JobSpec(2, 600.0, max_processors=4))])
    core.handle([JobStarted(0.0, 1)])
    (expand,) = core.handle([ResizePoint(1.0, 1, 1, 1.0)])
    assert isinstance(expand, Expand)
    core.handle([ResizePoint(4.0, 1, 2, 3.0)])
    core.handle([ResizeDone(4.5, 1, expand.serial)])
    (contract,) = core.handle([ResizePoint(6.0, 1, 3, 1.5)])
    assert isinstance(contract, Contract)
    assert contract.reason.sentence == f"an iteration takes 1.5 s on {expand.to}, 1 s on 2"

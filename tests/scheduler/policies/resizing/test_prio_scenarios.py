"""Reasons of the rules that the scenarios of PRIO 3.3 share."""

from __future__ import annotations

import pytest

from reshape.topology import Topology
from reshape.wire.messages import ResizeTimes
from scheduler.core.core import Core
from scheduler.model.events import (
    JobEnded,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
)
from scheduler.model.machine import Machine
from scheduler.model.orders import Continue, Contract, Expand
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


@pytest.mark.parametrize("name", ["steady", "pba"])
def test_no_job_is_contracted_for_one_that_lacks_memory(name: str) -> None:
    """Contractions release processors; the memory that job 3 requests is held by job 2."""
    changes = {"resizing.harvest": "useful", "resizing.grow_past": "blocked"}
    machine = Machine()
    machine.join("n1", 6, {"memory": 8})
    core = Core(scenario(name, changes), machine)
    core.handle([JobSubmitted(0.0, 1, JobSpec(2, 600.0, 4, Topology(step=2)))])
    core.handle([JobSubmitted(0.0, 2, JobSpec(1, 600.0, resources={"memory": 8}))])
    core.handle([JobStarted(0.0, 1), JobStarted(0.0, 2)])
    (expand,) = core.handle([ResizePoint(1.0, 1, 1, 1.0)])
    assert isinstance(expand, Expand)
    core.handle([ResizeDone(1.5, 1, expand.serial)])
    core.handle([JobSubmitted(2.0, 3, JobSpec(3, 600.0, resources={"memory": 1}))])
    (answer,) = core.handle([ResizePoint(3.0, 1, 2, 0.5)])
    assert not isinstance(answer, Contract)
    core.handle([JobEnded(4.0, 2)])
    answers = core.handle([ResizePoint(5.0, 1, 3, 0.5)])
    assert isinstance(answers[-1], Contract), "the memory is free, processors are short"


def expanded(pause_s: float) -> Core:
    """A core whose job 1 of 100 s has expanded from 2 to 4 of 8 processors, with this pause."""
    core = Core(scenario("steady"), Machine([("n1", 8)]))
    core.handle([JobSubmitted(0.0, 1, JobSpec(2, 100.0, 8, Topology(step=2)))])
    core.handle([JobStarted(0.0, 1)])
    (expand,) = core.handle([ResizePoint(1.0, 1, 1, 1.0)])
    assert isinstance(expand, Expand), "no pause was measured yet"
    core.handle([ResizeDone(2.0, 1, expand.serial, ResizeTimes(join_s=pause_s))])
    return core


def test_an_expansion_has_to_earn_back_its_pause() -> None:
    core = expanded(20.0)
    (answer,) = core.handle([ResizePoint(40.0, 1, 2, 0.5)])
    assert isinstance(answer, Expand), "60 s are left, of which a third is saved"
    core = expanded(20.0)
    (answer,) = core.handle([ResizePoint(70.0, 1, 2, 0.5)])
    assert isinstance(answer, Continue)
    assert answer.reason.sentence == (
        "from 4 to 6 it would save 10 of 30 s until its expected end, and pause for 20 s"
    )
    core = expanded(20.0)
    (answer,) = core.handle([ResizePoint(40.0, 1, 80, 0.5, iterations=100)])
    assert isinstance(answer, Continue), "20 iterations of 0.5 s are left"


def test_a_contraction_has_to_be_over_before_the_job_ends() -> None:
    core = expanded(20.0)
    core.handle([JobSubmitted(60.0, 2, JobSpec(6, 50.0))])
    (answer,) = core.handle([ResizePoint(70.0, 1, 2, 0.5)])
    assert isinstance(answer, Contract)
    core = expanded(20.0)
    core.handle([JobSubmitted(60.0, 2, JobSpec(6, 50.0))])
    (answer,) = core.handle([ResizePoint(85.0, 1, 2, 0.5)])
    assert isinstance(answer, Continue)
    assert answer.reason.sentence == (
        "it is expected to end in 15 s, and a contraction to 2 would pause it for 20 s"
    )


def test_an_undone_expansion_that_is_not_earned_back_is_the_sweet_spot_all_the_same() -> None:
    core = expanded(20.0)
    (answer,) = core.handle([ResizePoint(85.0, 1, 2, 1.5)])
    assert isinstance(answer, Continue)
    assert core.jobs[1].history.sweet_spot == 2

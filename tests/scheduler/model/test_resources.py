"""Quantities of several resources, and machines with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted, NodeJoined, NodeLost
from scheduler.model.machine import Machine
from scheduler.model.orders import Start
from scheduler.model.resources import Amounts, Pools, excess, highest, processors_of
from scheduler.policies.scenario import Scenario
from scheduler.policies.selection.basic import Contiguous

amounts = st.tuples(*[st.integers(-9, 9)] * 3).map(Amounts)


@given(amounts, amounts)
def test_parts_are_compared_one_by_one(a: Amounts, b: Amounts) -> None:
    assert (a <= b) == all(x <= y for x, y in zip(a, b, strict=True))
    assert (a >= b) == all(x >= y for x, y in zip(a, b, strict=True))
    assert (a > b) == any(x > y for x, y in zip(a, b, strict=True))
    assert (a < b) == any(x < y for x, y in zip(a, b, strict=True))
    assert tuple(a + b) == tuple(x + y for x, y in zip(a, b, strict=True))
    assert a + b - b == a
    assert a + (-a) == Amounts((0, 0, 0))
    assert highest([a, b]) >= a
    assert highest([a, b]) >= b
    assert excess(a, b) >= a - b
    assert excess(a, b) >= Amounts((0, 0, 0))


def test_plain_numbers_are_quantities() -> None:
    assert highest([3, 5, 4]) == 5
    assert excess(3, 5) == 0
    assert excess(7, 5) == 2
    assert processors_of(4) == processors_of(Amounts((4, 9))) == 4


def test_pools() -> None:
    pools = Pools({"licences": 2})
    assert pools.register(["memory", "licences"])
    assert not pools.register(["memory"])
    pools.take({"licences": 1})
    assert pools.free(5) == (5, 1, 0)
    assert pools.format_quantity(pools.free(5)) == "5 processors, 1 licences, 0 memory"


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"memory": -1}, "memory must be >= 0, got -1"),
        ({"": 1}, "'' cannot be the name of a further resource"),
        ({"processors": 1}, "'processors' cannot be the name of a further resource"),
    ],
)
def test_wrong_resources(resources: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        JobSpec(1, 1.0, resources=resources)
    with pytest.raises(ValueError, match=words):
        Machine().join("n", 1, resources)


def test_a_job_waits_for_a_node_with_its_resources() -> None:
    """A new resource turns quantities into amounts, also those of running jobs."""
    core = Core(Scenario("easy"), Machine([("a", 4)]))
    assert core.handle([JobSubmitted(0, 1, JobSpec(2, 10.0))])
    assert not core.partitions[0].state.multi_resource
    assert not core.handle([JobSubmitted(1, 2, JobSpec(1, 10.0, resources={"memory": 8}))])
    assert core.partitions[0].state.multi_resource
    assert str(core.reason_pending(2)) == (
        "1 processor, 8 memory wanted, the machine has 4 processors, 0 memory [TooLarge]"
    )
    (order,) = core.handle([NodeJoined(2, "b", 2, resources={"memory": 12})])[:1]
    assert isinstance(order, Start)
    assert order.job == 2
    core.handle([JobSubmitted(3, 3, JobSpec(1, 10.0, resources={"memory": 5}))])
    assert str(core.reason_pending(3)) == (
        "1 processor, 5 memory wanted, 3 processors, 4 memory free; enough by 12.0 if walltimes"
        " hold [Resources]"
    )
    assert isinstance(core.handle([JobEnded(5, 2)])[0], Start)
    assert core.machine.free_amounts == (3, 7)


def test_the_first_job_has_a_place_but_waits_for_memory() -> None:
    core = Core(Scenario("easy", selection=Contiguous()), Machine([("a", 4)]))
    core.handle([NodeJoined(0, "b", 4, resources={"memory": 8})])
    core.handle([JobSubmitted(1, 1, JobSpec(2, 10.0, resources={"memory": 6}))])
    core.handle([JobSubmitted(2, 2, JobSpec(2, 10.0, resources={"memory": 6}))])
    assert "enough by 11.0 if walltimes hold" in str(core.reason_pending(2))


def test_the_resources_of_a_lost_node_are_lost() -> None:
    core = Core(Scenario("easy"), Machine([("a", 2)], resources={"licences": 1}))
    core.handle([NodeJoined(0, "b", 2, resources={"memory": 8})])
    core.handle([JobSubmitted(0, 1, JobSpec(1, 10.0, resources={"memory": 6, "licences": 1}))])
    core.handle([NodeLost(1, "b")])
    assert core.machine.free_amounts == (1, 0, -6)
    core.handle([JobEnded(2, 1)])
    assert core.machine.free_amounts == (2, 1, 0)
    core.handle([NodeJoined(3, "b", 2, resources={"memory": 4})])
    assert core.machine.up_amounts == core.machine.installed_amounts == (4, 1, 4)

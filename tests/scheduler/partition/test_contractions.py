"""Which groups leave when a policy contracts a job."""

from __future__ import annotations

import msgspec

from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.events import JobSpec, JobStarted, JobSubmitted, ResizeDone, ResizePoint
from scheduler.model.machine import Machine
from scheduler.model.orders import Contract, Order, Reason
from scheduler.policies.api import Decision, Grow, JobView, Shrink, Stay, View
from scheduler.policies.scenario import Scenario
from scheduler.policies.selection.basic import FewNodes, FirstFit


class Steps(msgspec.Struct, frozen=True):
    """Expands by two processors three times, then contracts by two off certain nodes."""

    off: tuple[str, ...] = ()

    def decide(self, job: JobView, view: View) -> Decision:
        if len(job.history.visits) < 4:
            return Grow(job.size + 2, Reason("steps"))
        if job.size == 8:
            return Shrink(6, Reason("steps"), off=self.off)
        return Stay(Reason("steps"))


def contraction(off: tuple[str, ...], selection: FirstFit | FewNodes) -> Order:
    """The answer to the resize point at which a job of four groups contracts.

    They are on n1, n1, n2 and n3 by first fit, and on n2, n3, n1 and n1 by few nodes.
    """
    core = Core(
        Scenario("own", resizing=Steps(off), selection=selection),
        Machine([("n1", 4), ("n2", 2), ("n3", 2)]),
    )
    core.handle([JobSubmitted(0, 1, JobSpec(2, 100.0, 8, Topology(step=2)))])
    core.handle([JobStarted(1, 1)])
    for serial in range(1, 4):
        core.handle([ResizePoint(2 * serial, 1, serial, 1.0)])
        core.handle([ResizeDone(2 * serial + 1, 1, serial)])
    assert core.jobs[1].size == 8
    (order,) = core.handle([ResizePoint(9, 1, 4, 1.0)])
    return order


def left(order: Order) -> tuple[int, ...]:
    assert isinstance(order, Contract), order
    return order.groups


def test_the_newest_group_leaves() -> None:
    assert left(contraction((), FirstFit())) == (4,)


def test_a_contraction_names_the_nodes_that_it_leaves() -> None:
    assert left(contraction(("n2",), FirstFit())) == (3,)
    assert left(contraction(("n1",), FirstFit())) == (2,)
    assert left(contraction(("n1", "n2"), FirstFit())) == (3,)
    assert left(contraction(("n1", "n2"), FewNodes())) == (1,)
    assert "refused" in str(contraction(("n9",), FirstFit()))

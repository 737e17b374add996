"""The table that is kept between passes: against one that is made again for each search."""

from __future__ import annotations

from math import inf, nextafter
from typing import Any, ClassVar

import pytest
from core_life import AnyLife
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from slow_reservation_table import PLACE, SlowReservationTable

from scheduler.core.core import Core
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.job import JobState
from scheduler.model.machine import Machine
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import SharedCapacity
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.registry import find
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.policies.selection.on_table import OnTable
from scheduler.predictions.estimates import Tsafrir, UserEstimates
from scheduler.state.bitsets import bits_of, set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable

PROCESSORS = ProcSet.span(0, 12)
CAPACITY = SharedCapacity(4, {"bandwidth": 100, "network": 50})
DEMANDS = st.tuples(st.integers(0, 60), st.integers(0, 30))


class Uses:
    """A table, and what is in it, from which a slow one is made."""

    def __init__(self, capacity: SharedCapacity | None) -> None:
        self.table = ReservationTable(PROCESSORS, capacity)
        self.capacity = capacity
        self.running: dict[int, tuple[ProcSet, float, tuple[int, int]]] = {}
        self.reserved: list[tuple[ProcSet, float, float, tuple[int, int]]] = []
        self.now = 0.0

    def change(self, now: float, kind: str, job: int, wanted: ProcSet, length: int) -> None:
        """Start, change or end a job, or forget all reservations."""
        self.now = now
        self.table.advance(now)
        demand = (7 * job % 60, 11 * job % 30)
        if kind == "clear":
            self.table.clear_reservations()
            self.reserved.clear()
        elif kind == "end":
            self.table.remove(job)
            self.running.pop(job, None)
        else:
            others = [held for number, (held, _, _) in self.running.items() if number != job]
            processors = wanted - ProcSet.union(others)
            if processors and not self.reserved:
                end = -inf if kind == "kill" else now + length
                self.table.run(job, processors, end, demand)
                self.running[job] = processors, end, demand

    def reserve(self, name: str, request: Request) -> None:
        """Reserve what a selection finds."""
        found = find("selection", name)().place(self.table, request)
        if found is not None:
            end = found.begin + request.length_s
            self.table.reserve(found.processors, found.begin, end, request.demand)
            self.reserved.append((found.processors, found.begin, end, request.demand))

    def slow(self) -> SlowReservationTable:
        """Make a table again."""
        table, soon = SlowReservationTable(PROCESSORS, self.capacity), nextafter(self.now, inf)
        for processors, end, demand in self.running.values():
            table.put(processors, -inf, max(end, soon), demand)
        for reserved in self.reserved:
            table.put(*reserved)
        return table


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["start", "start", "start", "end", "kill", "clear"]),
        st.integers(1, 6),
        st.sets(st.integers(0, 11), min_size=1).map(ProcSet.of),
        st.integers(1, 30),
    ),
    max_size=14,
)
REQUESTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 20), DEMANDS), max_size=4)


@pytest.mark.parametrize("name", sorted(PLACE))
@examples(150)
@given(
    CHANGES, REQUESTS, st.tuples(st.integers(1, 13), st.integers(1, 20), DEMANDS),
    st.integers(0, 9), st.sampled_from([0.0, 5.0, inf]), st.booleans(),
)  # fmt: skip
def test_a_changed_table_is_one_made_anew(
    name: str, changes: list[Any], reserved: list[Any], wanted: Any, after: int, more: float,
    has_capacity: bool,
) -> None:  # fmt: skip
    """Every selection finds the same, whatever led to the table."""
    uses, now = Uses(CAPACITY if has_capacity else None), 0.0
    for step, *change in changes:
        now += step
        uses.change(now, *change)
    for processors, length, demand in reserved:
        uses.reserve(name, Request(processors, float(length), demand, now))
    processors, length, demand = wanted
    request = Request(processors, float(length), demand, now + after, now + after + more)
    found = find("selection", name)().place(uses.table, request)
    assert found == PLACE[name](uses.slow(), request)


class Checked(OnTable, frozen=True):
    """A selection that searches a new table of the core's jobs as well, and compares."""

    name: str = "table-first-fit"
    core: ClassVar[Core]

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find the same in both tables."""
        found = find("selection", self.name)().place(table, request)
        state = self.core.partitions[0].state
        soon = nextafter(state.now, inf)
        live = [(job, state.held(job)) for job in state.live.values()]
        free = state.machine.free
        up = ProcSet.union([free, *[held for _, held in live]])
        assert table.free_bits == bits_of(free)
        slow = SlowReservationTable(up, table.capacity)
        assert table.capacity is not None
        for job, held in live:
            end = soon if job.state is JobState.COMPLETING else max(job.estimated_end, soon)
            slow.put(held, -inf, end, table.capacity.demand(job.spec.shared))
        for use in table.reservations:
            slow.put(set_of(use.bits), use.begin, use.end, use.demand)
        for use in table.excluded:
            slow.put(set_of(use.bits), use.begin, use.end)
        assert found == PLACE[self.name](slow, request)
        return found


class TableLife(AnyLife):
    """Any events for a core that searches the table, with resizes, predictions and lost nodes."""

    @initialize(
        name=st.sampled_from(sorted(PLACE)),
        reservations=st.sampled_from([0, 1, 1, 2, None]),
        kill=st.booleans(),
        predicts=st.booleans(),
    )
    def begin(self, name: str, reservations: int | None, kill: bool, predicts: bool) -> None:
        pick = "penalty" if reservations == 1 and name == "rua" else "first"
        chosen = Scenario(
            "checked",
            backfill=Backfill(reservations=reservations, pick=pick),
            estimates=Tsafrir() if predicts else UserEstimates(),
            resizing=scenario("fcfs-pr").resizing,
            selection=Checked(name),
        )
        machine = Machine([("n1", 4)], shared=SharedCapacity(4, {"memory": 10}))
        self.core = Checked.core = Core(chosen, machine, kill_at_walltime=kill)
        self.start(self.core.partitions)

    @rule(
        processors=st.integers(1, 6),
        walltime_s=st.sampled_from([1.0, 5.0, 20.0, 100.0]),
        more=st.sampled_from([0, 0, 1, 4]),
        memory=st.integers(0, 9),
        disk=st.sampled_from([0, 0, 1]),
    )
    def submit(self, processors: int, walltime_s: float, more: int, memory: int, disk: int) -> None:
        job = len(self.submitted) + 1
        self.submitted.add(job)
        resources = {"disk": disk} if disk else {}
        spec = JobSpec(
            processors, walltime_s, processors + more, resources=resources,
            shared={"memory": memory},
        )  # fmt: skip
        self.waiting.append(JobSubmitted(self.time, job, spec))

    def nobody_waits_for_what_is_there(self) -> None:
        """A selection on the table may let jobs wait."""


TestTableLife = TableLife.TestCase
TestTableLife.settings = examples(300, stateful_step_count=40)

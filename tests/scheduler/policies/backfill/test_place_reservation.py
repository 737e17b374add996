"""EASY and FCFS with selections that may refuse, against a slow twin, and their guarantees."""

from __future__ import annotations

import heapq
from math import inf
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.model.events import Event, JobEnded, JobSpec, JobSubmitted, Wakeup
from scheduler.model.interfaces import Selection
from scheduler.model.machine import Machine
from scheduler.model.network import Mesh, Tree
from scheduler.model.orders import Kill, Start, WakeAt
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.partition.passes import instant_order
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.backfill.balance import Pick
from scheduler.policies.queue_orders.basic import Lxwf, Sjf
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.policies.selection.basic import Contiguous, FirstFit
from scheduler.policies.selection.on_network import (
    Submesh,
    SubmeshRelaxed,
    TreeContiguous,
    TreeRelaxed,
)

TREE = Tree(2, 4)
TORUS = Mesh((4, 4), wraps=True)
INSTALLED = ProcSet.parse("0-10 12-13")  # 13 of 16 leaves
SELECTIONS: list[Selection] = [
    Contiguous(),
    TreeContiguous(),
    TreeRelaxed(),
    Submesh(),
    SubmeshRelaxed(),
]

RESERVES: tuple[Literal["place", "shortage"], ...] = ("place", "shortage")
Row = tuple[int, int, int, int]  # submitted, processors, walltime, run time
jobs_of = st.lists(
    st.tuples(st.integers(0, 25), st.integers(1, 13), st.integers(1, 12), st.integers(1, 14)),
    min_size=1,
    max_size=14,
).map(sorted)


class Simulated:
    """Result of a workload: starts, ends, places, reservations of the heads over time."""

    def __init__(self, jobs: list[Row], chosen: Scenario, *, memory: int = 0) -> None:
        network = network_of(chosen.selection)
        machine = Machine([("all", len(INSTALLED))], network=network, places={"all": INSTALLED})
        if memory:
            machine.join("all", len(INSTALLED), {"memory": memory})
        self.core = Core(chosen, machine, kill_at_walltime=False)
        self.starts, self.ends = [inf] * len(jobs), [inf] * len(jobs)
        self.places: dict[int, ProcSet] = {}
        self.reserved: dict[int, list[float]] = {}
        self.killed: set[int] = set()
        self._heap: list[tuple[float, int, int, int, Event]] = []
        for i, (at, processors, walltime, _) in enumerate(jobs):
            resources = {"memory": 1 + i % 3} if memory else {}
            self._add_event(JobSubmitted(at, i, JobSpec(processors, walltime, resources=resources)))
        while self._heap:
            now = self._heap[0][0]
            batch = []
            while self._heap and self._heap[0][0] == now:
                batch.append(heapq.heappop(self._heap)[-1])
            self._handle_instant(now, batch, jobs)

    def _add_event(self, event: Event) -> None:
        entry = event.at, *instant_order(event), len(self._heap), event
        heapq.heappush(self._heap, entry)

    def _handle_instant(self, now: float, batch: list[Event], jobs: list[Row]) -> None:
        for event in batch:
            if isinstance(event, JobEnded):
                self.ends[event.job] = min(now, self.ends[event.job])
        for order in self.core.handle(batch):
            if isinstance(order, WakeAt):
                self._add_event(Wakeup(order.at))
            elif isinstance(order, Kill):
                self.killed.add(order.job)
                self._add_event(JobEnded(now, order.job, signal=15))
            else:
                assert isinstance(order, Start)
                self.starts[order.job], self.places[order.job] = now, order.processors
                self._add_event(JobEnded(now + jobs[order.job][3], order.job))
        head = self.core.partitions[0].view.reservation()
        if head is not None:
            self.reserved.setdefault(head.job, []).append(head.at)


def network_of(selection: Selection) -> Tree | Mesh:
    """Network with a place for each selection; both have 16 leaves."""
    return TORUS if isinstance(selection, Submesh) else TREE


def can_run(selection: Selection, processors: int) -> bool:
    return selection.select(Space(INSTALLED, network_of(selection)), processors) is not None


def slow_easy(jobs: list[Row], selection: Selection, easy: bool) -> dict[int, tuple[int, ProcSet]]:
    """Start and place of each job, computed again in each second."""
    found: dict[int, tuple[int, ProcSet]] = {}
    network = network_of(selection)

    def free_at(now: int, then: int) -> ProcSet:
        free = INSTALLED
        for i, (start, place) in found.items():
            if start + jobs[i][3] > now and (then == now or start + jobs[i][2] > then):
                free -= place
        return free

    def start(i: int, now: int, head: int | None) -> bool:
        """Start a job if it has a place now and does not delay the head."""
        needed, walltime = jobs[i][1], jobs[i][2]
        here = Space(free_at(now, now), network)
        if head is not None:
            wanted = jobs[head][1]
            ends = sorted({start + jobs[j][2] for j, (start, _) in found.items()} | {now})
            later = [(t, Space(free_at(now, t), network)) for t in ends if t >= now]
            at, then = next(item for item in later if choose(selection, item[1], wanted))
            if now + walltime > at:
                here = Space(here.free - selection.keep(then, here, wanted), network)
        place = choose(selection, here, needed)
        if place is not None:
            found[i] = now, place
        return place is not None

    now, reserved = -1, None  # head whose reservation was made since the latest end of a job
    while len(found) < sum(can_run(selection, job[1]) for job in jobs):
        now += 1
        if any(start + jobs[i][3] == now for i, (start, _) in found.items()):
            reserved = None
        queued = [i for i, job in enumerate(jobs) if job[0] <= now and i not in found]
        waiting = [i for i in queued if can_run(selection, jobs[i][1])]
        while waiting and start(waiting[0], now, None):
            queued.remove(waiting.pop(0))
        if not (easy and waiting and len(queued) > 1):
            continue
        head, *behind = waiting
        if head == reserved:  # only arrivals are tried, each once
            for i in behind:
                if jobs[i][0] == now:
                    start(i, now, head)
        elif min(jobs[i][1] for i in queued) <= len(free_at(now, now)):
            reserved = head  # a start can let a job ahead of it start, too
            while any(start(i, now, head) for i in behind if i not in found):
                pass
    return found


def choose(selection: Selection, space: Space, processors: int) -> ProcSet | None:
    return selection.select(space, processors) if len(space.free) >= processors else None


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("reservations", [0, 1])
@settings(max_examples=20)
@given(jobs=jobs_of)
@example(jobs=[(0, 3, 2, 2), (0, 11, 1, 1), (1, 2, 2, 1), (1, 5, 1, 1)])
@example(
    jobs=[(0, 1, 2, 2), (0, 13, 10, 10), (1, 8, 7, 7), (1, 11, 2, 1), (2, 6, 2, 2), (2, 9, 1, 1),
          (3, 3, 8, 1), (21, 1, 1, 1)]
)  # fmt: skip
def test_equals_its_twin(selection: Selection, reservations: int, jobs: list[Row]) -> None:
    exact = [(at, n, wall, min(wall, run)) for at, n, wall, run in jobs]
    lived = Simulated(exact, Scenario("t", backfill=Backfill(reservations), selection=selection))
    expected = slow_easy(exact, selection, reservations == 1)
    assert {i: (lived.starts[i], place) for i, place in lived.places.items()} == expected


@pytest.mark.parametrize(
    ("head", "starts"),
    [(5, {"place": 1.0, "shortage": 20.0}), (10, dict.fromkeys(RESERVES, 1.0))],
    ids=["no place", "too few"],
)
def test_in_a_shortage_alone_later_jobs_start_before_the_head(
    head: int, starts: dict[str, float]
) -> None:
    # After 1 s 7 processors are free, in two places of 4 and of 3.
    running = [(0, 4, 30, 30), (0, 4, 1, 1), (0, 3, 1, 1), (0, 2, 20, 20)]
    for reserve in RESERVES:
        backfill = Backfill(1, reserve=reserve)
        chosen = Scenario("t", backfill=backfill, selection=TreeContiguous())
        lived = Simulated([*running, (1, head, 10, 10), (1, 1, 5, 5)], chosen)
        assert lived.starts[-1] == starts[reserve], reserve


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(
    ("order", "pick", "memory"),
    [
        (None, "first", 0),
        (Sjf(), "first", 0),
        (Lxwf(), "first", 0),
        (None, "first", 4),
        (None, "bb", 4),
        (None, "bl", 0),
    ],
)
@given(jobs=jobs_of)
@example(jobs=[(0, 3, 10, 10), (0, 7, 20, 20), (1, 10, 5, 5), (2, 1, 30, 30), (2, 1, 30, 30)])
def test_the_reservation_of_the_head_is_kept(
    selection: Selection, order: Sjf | Lxwf | None, pick: Pick, memory: int, jobs: list[Row]
) -> None:
    exact = [(at, n, wall, min(wall, run)) for at, n, wall, run in jobs]
    chosen = Scenario("t", backfill=Backfill(pick=pick), backfill_order=order, selection=selection)
    lived = Simulated(exact, chosen, memory=memory)
    for job, promised in lived.reserved.items():
        assert promised == sorted(promised, reverse=True), "a promise moved back"
        assert lived.starts[job] <= promised[-1]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(
    "backfill",
    [
        Backfill(1),
        Backfill(1, kill_at_reservation=True),
        Backfill(1, kill_at_reservation=True, reserve="shortage"),
    ],
    ids=["no kill", "overdue", "in a shortage"],
)
@given(jobs=jobs_of)
def test_no_job_is_lost_and_no_processor_held_twice(
    selection: Selection, backfill: Backfill, jobs: list[Row]
) -> None:
    """Jobs exceed their estimates here; jobs behind which others were backfilled still start."""
    chosen = Scenario("t", backfill=backfill, selection=selection)
    lived = Simulated(jobs, chosen)
    for i, (_, processors, walltime, run_s) in enumerate(jobs):
        assert (lived.starts[i] < inf) == can_run(selection, processors)
        if lived.starts[i] == inf:
            assert lived.core.reason_pending(i).rule == "NoPlace"
            continue
        assert lived.places[i].count() == processors
        assert not lived.places[i] - INSTALLED
        if i in lived.killed:
            assert backfill.kill_at_reservation
            assert lived.starts[i] + walltime <= lived.ends[i]
        else:
            assert lived.ends[i] == lived.starts[i] + run_s
        for j in range(i):
            if lived.starts[i] < lived.ends[j] and lived.starts[j] < lived.ends[i]:
                assert not lived.places[i] & lived.places[j]


def test_the_head_gets_the_place_of_an_overdue_backfilled_job() -> None:
    """LOC section 3: at the time of the reservation overdue backfilled jobs are ended."""
    jobs = [
        (0, 4, 10, 10),
        (0, 4, 8, 30),
        (0, 3, 20, 20),
        (1, 8, 5, 5),
        (2, 2, 7, 99),
        (2, 2, 9, 9),
    ]
    chosen = Scenario(
        "t", backfill=Backfill(1, kill_at_reservation=True), selection=TreeContiguous()
    )
    lived = Simulated(jobs, chosen)
    # 0-3, 4-7 and 8-10 are held. Job 3 needs 0-7, held by jobs 0 and 1, or 8-15, of which too few
    # are installed. Job 1 was not backfilled and may run until 30. Processors below the switch of
    # the head that are free from 10 on are kept for it, so job 5 waits for 8-9.
    assert lived.starts == [0, 0, 0, 30, 2, 20]
    assert str(lived.places[3]) == "0-7"
    assert lived.killed == set()
    jobs[1] = (0, 4, 8, 8)
    jobs[0] = (0, 4, 10, 10)
    jobs[4] = (8, 4, 2, 99)  # is backfilled before job 3 on 4-7 until 10
    lived = Simulated(jobs, chosen)
    assert lived.starts[4] == 8
    assert lived.killed == {4}
    assert (lived.starts[3], lived.ends[4]) == (10, 10)


def test_gaps_that_the_head_needs_are_not_filled() -> None:
    """From 1 on every other leaf of the first four switches is free; two jobs are backfilled."""
    walltimes = [10, 1, 20, 1, 30, 1, 40, 1, 50, 50, 50, 50, 50]
    jobs: list[Row] = [(0, 1, walltime, walltime) for walltime in walltimes]
    jobs += [(2, 2, 10, 10), (3, 1, 100, 100), (3, 1, 100, 100)]
    lived = Simulated(jobs, Scenario("t", backfill=Backfill(1), selection=TreeContiguous()))
    assert lived.starts[14:] == [3, 3]
    assert (lived.starts[13], str(lived.places[13])) == (10, "0-1")


def test_first_fit_by_places_is_easy_by_numbers() -> None:
    """With a selection that never refuses, a reservation of a place equals one of a number."""

    class Wary(FirstFit, frozen=True):
        anywhere = False

    jobs: list[Row] = [(i // 3, 1 + 5 * i % 13, 1 + 7 * i % 11, 1 + 3 * i % 5) for i in range(60)]
    jobs = [(at, n, wall, min(wall, run)) for at, n, wall, run in jobs]
    plain, wary = (Simulated(jobs, Scenario("t", selection=s)) for s in (FirstFit(), Wary()))
    assert plain.starts == wary.starts


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("conservative", "conservative promises numbers of processors, not places"),
        ("easy", "it needs a machine with a network"),
    ],
)
def test_invalid_combinations(name: str, says: str) -> None:
    network = TREE if name == "conservative" else None
    with pytest.raises(ConfigError, match=says):
        Core(scenario(name, {"selection": "tree"}), Machine([("n", 4)], network=network))

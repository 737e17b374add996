"""Exclusions in scheduling passes: nodes that expire, with every strategy and selection."""

from __future__ import annotations

from math import inf, isnan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import EventLoop
from scheduler.core.core import Core
from scheduler.forecasts.expected_jobs import ExpectedJobs
from scheduler.model.events import JobSpec, JobSubmitted, NodeJoined
from scheduler.model.machine import Machine
from scheduler.model.orders import Start
from scheduler.model.procset import ProcSet
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.registry import find
from scheduler.policies.scenario import Scenario
from scheduler.state.exclusions import Exclusion, Exclusions, expiry_of, hold_of
from scheduler.state.records import copied

ALL = ProcSet.span(0, 8)
#: Submission (s), processors, estimate (s), share of it that the job runs.
JOBS = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, 8), st.integers(1, 50), st.sampled_from([0.2, 0.7, 1.0])
    ),
    min_size=1,
    max_size=14,
).map(sorted)
STRATEGIES = [0, 1, 2, None]  # FCFS, EASY, two reservations, conservative


def core_of(reservations: int | None, selection: str = "first-fit", **nodes: float) -> Core:
    """Core of nodes of four processors that expire at these times."""
    backfill = Backfill(reservations=reservations)
    core = Core(Scenario("x", backfill=backfill, selection=find("selection", selection)()))
    core.handle(
        [
            NodeJoined(0.0, name, 4, until=None if until == inf else until)
            for name, until in nodes.items()
        ]
    )
    return core


def run(
    core: Core, jobs: list[tuple[int, int, int, float]]
) -> tuple[list[float], dict[int, ProcSet]]:
    """Starts (nan: never) and processors of the jobs."""
    specs = [JobSpec(processors, estimate_s) for _, processors, estimate_s, _ in jobs]
    run_s = {number: job[2] * job[3] for number, job in enumerate(jobs, 1)}
    agenda = Agenda()
    loop = EventLoop(
        core,
        [float(job[0]) for job in jobs],
        specs,
        agenda,
        ExpectedJobs(core, agenda, run_s),
        keep_allocations=True,
    )
    loop.run()
    assert loop.allocated is not None
    return loop.started, loop.allocated


@pytest.mark.parametrize("reservations", STRATEGIES)
@given(jobs=JOBS)
# The last job ends when the reservation of the fourth begins, in rounded times.
@example(jobs=[(0, 2, 37, 0.2), (0, 7, 24, 0.7), (1, 2, 40, 0.2), (1, 7, 1, 0.2), (2, 2, 40, 0.2)])
def test_an_exclusion_after_all_jobs_changes_no_start(
    reservations: int | None, jobs: list[tuple[int, int, int, float]]
) -> None:
    """The pass over the table starts jobs when the ordinary pass of FCFS and EASY does."""
    starts, _ = run(core_of(reservations, a=inf, b=inf), jobs)
    excluded, _ = run(core_of(reservations, a=1e6, b=1e6), jobs)
    if reservations in (0, 1):
        assert excluded == starts
    assert not any(isnan(start) for start in excluded)


@pytest.mark.parametrize("selection", ["first-fit", "table-first-fit", "less-consume"])
@pytest.mark.parametrize("reservations", STRATEGIES)
@given(jobs=JOBS, until=st.integers(0, 80))
def test_no_job_starts_that_would_be_on_a_node_when_it_expires(
    reservations: int | None,
    selection: str,
    jobs: list[tuple[int, int, int, float]],
    until: int,
) -> None:
    starts, held = run(core_of(reservations, selection, a=inf, b=float(until)), jobs)
    expiring = ProcSet.span(4, 4)
    for number, (_, processors, estimate_s, _) in enumerate(jobs, 1):
        if number in held and held[number] & expiring:
            assert starts[number - 1] + estimate_s <= until
        if processors <= 4 and reservations != 0:
            assert not isnan(starts[number - 1]), "node a suffices"


@given(jobs=JOBS, until=st.integers(1, 80))
def test_contiguous_jobs_honour_an_expiry(
    jobs: list[tuple[int, int, int, float]], until: int
) -> None:
    starts, held = run(core_of(1, "contiguous", a=float(until), b=inf), jobs)
    for number, (_, processors, estimate_s, _) in enumerate(jobs, 1):
        if number in held:
            assert len(held[number].intervals) == 1
            if held[number] & ProcSet.span(0, 4):
                assert starts[number - 1] + estimate_s <= until
        if processors <= 4:
            assert not isnan(starts[number - 1])


def test_a_short_job_starts_before_the_expiry_and_a_long_one_elsewhere() -> None:
    core = core_of(1, a=inf, b=100.0)
    specs = [JobSpec(3, 200.0), JobSpec(4, 200.0), JobSpec(4, 90.0), JobSpec(1, 150.0)]
    orders = core.handle([JobSubmitted(10.0, i, spec) for i, spec in enumerate(specs, 1)])
    started = {order.job: order.processors for order in orders if isinstance(order, Start)}
    assert started == {1: ProcSet.span(0, 3), 3: ProcSet.span(4, 4), 4: ProcSet.span(3, 1)}
    reason = core.reason_pending(2)
    assert reason.rule == "Resources"
    assert reason.facts["at"] == 210.0


def test_a_node_that_joins_again_with_a_later_time_expires_later() -> None:
    core = core_of(1, a=100.0)
    assert core.handle([JobSubmitted(1.0, 1, JobSpec(4, 150.0))])[:0] == []
    assert 1 in core.partitions[0].queue
    core.handle([NodeJoined(2.0, "a", 4, until=300.0)])
    assert core.jobs[1].started_at == 2.0
    core.handle([NodeJoined(3.0, "a", 4)])
    assert not core.partitions[0].state.excluding


def test_exclusions_survive_a_record() -> None:
    core = core_of(1, a=inf, b=100.0)
    core.handle([JobSubmitted(1.0, 1, JobSpec(8, 150.0))])
    copy = Core.restored(core.record(), [copied(core.jobs[1])], core.scenario, Machine())
    assert copy.exclusions == core.exclusions
    assert copy.partitions[0].state.excluding


def test_processors_that_are_counted_cannot_be_excluded() -> None:
    core = Core(Scenario("x"), Machine([("a", 4)], counted=True))
    with pytest.raises(ValueError, match="'expiry of node a' needs a machine whose processors are"):
        core.handle([NodeJoined(1.0, "a", 4, until=5.0)])


def test_an_exclusion_must_end_after_it_begins() -> None:
    with pytest.raises(ValueError, match=r"'r' must end after it begins, got 5\.0 to"):
        Exclusion("r", ProcSet.span(0, 2), 5.0, 5.0)


def test_only_what_was_agreed_on_by_wall_clock_moves_with_it() -> None:
    exclusions = Exclusions()
    exclusions.put(Exclusion("course", ProcSet.span(0, 2), 100.0, 200.0, admits=True), 0.0)
    exclusions.put(Exclusion(expiry_of("n2"), ProcSet.span(2, 2), 300.0), 0.0)
    exclusions.put(Exclusion(hold_of("n3"), ProcSet.span(4, 2), 0.0, 30.0), 0.0)
    assert exclusions.move(3600.0, 1.0)
    begins = {exclusion.name: (exclusion.begin, exclusion.end) for exclusion in exclusions}
    assert begins == {
        "course": (3700.0, 3800.0),
        expiry_of("n2"): (3900.0, inf),
        hold_of("n3"): (0.0, 30.0),
    }
    assert exclusions.next_change == 30.0


def test_what_exclusions_keep_from_jobs() -> None:
    exclusions = Exclusions()
    exclusions.put(Exclusion("r", ProcSet.span(0, 4), 10.0, 20.0, admits=True), 0.0)
    exclusions.put(Exclusion("expiry", ProcSet.span(3, 3), 50.0), 0.0)
    assert exclusions.next_change == 10.0
    assert exclusions.blocked("", 0.0, 10.0, ALL) == ProcSet()
    assert exclusions.blocked("", 0.0, 10.5, ALL) == ProcSet.span(0, 4)
    assert exclusions.blocked("", 20.0, 50.0, ALL) == ProcSet()
    assert exclusions.blocked("", 19.0, 60.0, ALL) == ProcSet.span(0, 6)
    assert exclusions.blocked("r", 10.0, 20.0, ALL) == ProcSet.span(4, 4)
    assert exclusions.blocked("r", 9.0, 20.0, ALL) == ALL
    assert exclusions.blocked("r", 10.0, 21.0, ALL) == ALL
    assert exclusions.blocked("s", 10.0, 20.0, ALL) == ALL
    assert not exclusions.advance(9.0)
    assert exclusions.advance(10.0)
    assert exclusions.next_change == 20.0
    assert exclusions.advance(20.0)
    assert [each.name for each in exclusions] == ["expiry"]
    assert exclusions.blocked("r", 10.0, 20.0, ALL) == ALL
    assert exclusions.remove("expiry", 20.0)
    assert exclusions.next_change == inf

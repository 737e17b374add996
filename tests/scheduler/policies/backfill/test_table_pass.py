"""Backfilling on the reservation table: every number of reservations, RUA, further resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.model.events import (
    JobCancelled,
    JobEnded,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
)
from scheduler.model.machine import Machine
from scheduler.model.orders import Contract, Expand, Start
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import SharedCapacity
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.registry import known
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import changed, scenario
from scheduler.policies.selection.on_table import LessConsume, LessConsumeThreshold, OnTable

SELECTIONS = [
    "table-first-fit", "equi-distribute", "less-consume", "less-consume-threshold", "rua",
]  # fmt: skip


def core_of(scenario: Scenario, resources: Mapping[str, int] | None = None) -> Core:
    """Core of two nodes of four processors, each with a bandwidth of 100."""
    shared = SharedCapacity(4, {"bandwidth": 100})
    machine = Machine([("a", 4), ("b", 4)], shared=shared, resources=resources)
    return Core(scenario, machine)


def job(processors: int, walltime_s: float, bandwidth: int = 0, **more: int) -> JobSpec:
    return JobSpec(processors, walltime_s, shared={"bandwidth": bandwidth}, resources=more)


def started(site: Core, at: float, *specs: JobSpec, first: int = 1) -> dict[int, ProcSet]:
    """Processors of the jobs that start when these are submitted."""
    events = [JobSubmitted(at, number, spec) for number, spec in enumerate(specs, first)]
    return {order.job: order.processors for order in site.handle(events) if type(order) is Start}


def starts_of(site: Core, specs: Sequence[JobSpec], run_s: Sequence[float]) -> list[float]:
    """Start of each job, all submitted at 0, with these run times."""
    events: list[JobSubmitted | JobEnded] = [
        JobSubmitted(0.0, number, spec) for number, spec in enumerate(specs, 1)
    ]
    ends: dict[int, float] = {}
    starts = [-1.0] * len(specs)
    while events:
        for order in site.handle(events):
            if type(order) is Start:
                starts[order.job - 1] = site.now
                ends[order.job] = site.now + run_s[order.job - 1]
        now = min(ends.values(), default=0.0)
        events = [JobEnded(now, number) for number, at in ends.items() if at == now]
        ends = {number: at for number, at in ends.items() if at != now}
    return starts


def test_all_selections_are_registered() -> None:
    assert set(SELECTIONS) <= set(known("selection"))
    assert "rua" in known("scenario")


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "easy++"])
def test_every_policy_starts_all_jobs(policy: str, selection: str) -> None:
    """Each selection with each policy: all jobs run, and never more than fit."""
    core = core_of(changed(scenario(policy), {"selection": selection}))
    specs = [job(1 + 3 * i % 8, 10.0 + 7 * i % 50, 20 * (i % 4)) for i in range(30)]
    run_s = [spec.walltime_s - (i % 3) for i, spec in enumerate(specs)]
    starts = starts_of(core, specs, run_s)
    assert min(starts) == 0
    for at in starts:
        running = [
            spec.processors
            for spec, begin, length in zip(specs, starts, run_s, strict=True)
            if begin <= at < begin + length
        ]
        assert sum(running) <= 8


def test_first_fit_on_the_table_is_easy_where_processors_do_not_matter() -> None:
    """Jobs as large as half of the machine: both reserve the same time."""
    specs = [job(4, 10.0), job(4, 20.0), job(8, 10.0), job(4, 10.0), job(4, 9.0), job(4, 20.0)]
    run_s = [spec.walltime_s for spec in specs]
    expected = starts_of(core_of(scenario("easy")), specs, run_s)
    on_table = core_of(changed(scenario("easy"), {"selection": "table-first-fit"}))
    assert starts_of(on_table, specs, run_s) == expected == [0, 0, 20, 10, 30, 30]


def test_a_backfilled_job_does_not_take_what_the_head_needs() -> None:
    core = core_of(Scenario("t", selection=OnTable()))
    assert started(core, 0.0, job(6, 100.0)) == {1: ProcSet.span(0, 6)}
    # Job 2 reserves processors 0 to 3 at 100, so that job 3 may use 6 and 7 for as long as it runs.
    assert started(core, 1.0, job(4, 50.0), first=2) == {}
    assert started(core, 2.0, job(2, 500.0), first=3) == {3: ProcSet.span(6, 2)}


def test_reservations_of_all() -> None:
    core = core_of(Scenario("t", backfill=Backfill(reservations=None), selection=OnTable()))
    started(core, 0.0, job(6, 100.0), job(8, 100.0), job(2, 250.0))
    assert [job.id for job in core.partitions[0].queue] == [2, 3]  # job 3 would delay job 2
    assert started(core, 0.0, job(2, 100.0), first=4) == {4: ProcSet.span(6, 2)}


def test_fcfs_lets_no_job_pass() -> None:
    core = core_of(Scenario("t", backfill=Backfill(reservations=0), selection=OnTable()))
    assert [*started(core, 0.0, job(6, 100.0), job(8, 100.0), job(1, 1.0))] == [1]


def test_less_consume_avoids_a_busy_node() -> None:
    core = core_of(Scenario("t", selection=LessConsume()))
    assert started(core, 0.0, job(2, 100.0, 50)) == {1: ProcSet.span(0, 2)}
    assert started(core, 1.0, job(2, 100.0, 20), first=2) == {2: ProcSet.span(4, 2)}
    assert started(core, 2.0, job(2, 100.0, 10), first=3) == {3: ProcSet.span(6, 2)}


def test_a_threshold_lets_a_job_wait_and_others_start() -> None:
    core = core_of(Scenario("t", selection=LessConsumeThreshold(1.0)))
    started(core, 0.0, job(2, 100.0, 50), job(1, 100.0), job(5, 100.0))
    core.handle([JobEnded(10.0, 2)])  # processor 2 is free, beside job 1
    assert started(core, 11.0, job(1, 100.0, 20), first=4) == {}
    assert started(core, 12.0, job(1, 10.0), first=5) == {5: ProcSet.span(2, 1)}
    orders = core.handle([JobEnded(13.0, 1)])
    assert [order.job for order in orders if type(order) is Start] == [4]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
def test_a_job_that_no_start_spares_a_penalty_starts_when_the_machine_is_empty(policy: str) -> None:
    """Eight processes of 40 are too many for two nodes of 100, whenever they start."""
    core = core_of(changed(scenario(policy), {"selection": "less-consume-threshold"}))
    assert [*started(core, 0.0, job(1, 100.0), job(8, 10.0, 40))] == [1]
    (order,) = (order for order in core.handle([JobEnded(50.0, 1)]) if type(order) is Start)
    assert order.job == 2


def test_rua_starts_the_job_of_the_least_penalty() -> None:
    """Behind the head: job 3 would be penalised, jobs 4 and 5 not, and 5 is shorter (7.4)."""
    rua, least = scenario("rua"), []
    core = core_of(rua)
    started(core, 0.0, job(4, 1000.0), job(2, 1000.0, 50))
    for order in core.handle(
        [
            JobSubmitted(1.0, 3, job(8, 10.0)),
            JobSubmitted(1.0, 4, job(1, 90.0, 30)),
            JobSubmitted(1.0, 5, job(1, 90.0)),
            JobSubmitted(1.0, 6, job(1, 60.0)),
        ]
    ):
        if type(order) is Start:
            least.append(order.job)
    assert least == [6, 5]


def test_further_resources_of_the_head_are_kept() -> None:
    core = core_of(Scenario("t", selection=OnTable()), {"licences": 2})
    assert [*started(core, 0.0, job(2, 100.0, licences=1))] == [1]
    assert started(core, 1.0, job(2, 50.0, licences=2), first=2) == {}
    assert started(core, 1.0, job(2, 500.0, licences=1), first=3) == {}  # it would delay job 2
    assert [*started(core, 1.0, job(2, 50.0, licences=1), first=4)] == [4]


@pytest.mark.parametrize(
    ("selection", "pick", "message"),
    [
        (OnTable(), "bb", "does not go with pick bb"),
        (None, "penalty", "pick: penalty has no effect .* a selection on the res"),
    ],
)
def test_picks_that_do_not_go_together(selection: OnTable | None, pick: str, message: str) -> None:
    base = scenario("easy") if selection is None else Scenario("t", selection=selection)
    with pytest.raises(ConfigError, match=message):
        core_of(changed(base, {"backfill.pick": pick}))


def test_expansions_and_contractions_change_what_the_nodes_are_used_for() -> None:
    """Job 1 leaves 20 of the bandwidth of node a on two processors, none of it on three."""
    policy = scenario("fcfs-pr").resizing
    core = core_of(Scenario("t", selection=LessConsume(), resizing=policy))
    spec = JobSpec(2, 1000.0, 3, shared={"bandwidth": 40})
    core.handle([JobSubmitted(0.0, 1, spec)])
    core.handle([JobStarted(0.0, 1)])
    assert started(core, 1.0, job(1, 10.0, 20), first=2) == {2: ProcSet.of([2])}
    core.handle([JobEnded(2.0, 2)])
    (order,) = core.handle([ResizePoint(3.0, 1, 1, 1.0)])
    assert type(order) is Expand
    assert order.processors == ProcSet.of([2])
    core.handle([ResizeDone(4.0, 1, order.serial)])
    assert started(core, 5.0, job(1, 10.0, 20), first=3) == {3: ProcSet.of([4])}
    core.handle([JobSubmitted(6.0, 4, job(8, 10.0))])
    (order,) = core.handle([ResizePoint(7.0, 1, 2, 2.0)])
    assert type(order) is Contract
    core.handle([ResizeDone(8.0, 1, order.serial), JobCancelled(8.0, 4)])
    assert started(core, 9.0, job(1, 10.0, 20), first=5) == {5: ProcSet.of([2])}


def test_fcfs_starts_a_job_that_arrives_at_an_empty_queue() -> None:
    core = core_of(Scenario("x", backfill=Backfill(reservations=0), selection=OnTable()))
    assert started(core, 0.0, job(4, 10.0))
    assert started(core, 1.0, job(2, 10.0), first=2) == {2: ProcSet.span(4, 2)}
    assert started(core, 2.0, job(2, 10.0), first=3) == {3: ProcSet.span(6, 2)}

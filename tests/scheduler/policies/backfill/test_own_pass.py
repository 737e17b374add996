"""User-defined scheduling passes: what they see and do, and that EASY can be written as one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from core_script import replay
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import EXAMPLES

import simulator as sim
from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.forecasts.forecast import last_job_changes_nothing
from scheduler.journal.journal_format import encode_order, order_decoder
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted, NodeLost, ReservationRequested
from scheduler.model.machine import Machine
from scheduler.model.orders import Reason, Start, WakeAt
from scheduler.policies.api import CurrentPass
from scheduler.policies.containment import description
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import from_data, scenario, to_data
from scheduler.state.records import copied

SCRIPT = Path(__file__).with_name("own_pass.txt")


class Easy(msgspec.Struct, frozen=True):
    """EASY: the first jobs that do not fit hold reservations."""

    reservations: int = 1

    def schedule(self, current: CurrentPass) -> None:
        for job in current.queue:
            if not current.start(job) and len(current.reserved) < self.reservations:
                current.reserve(job)


class Calls(msgspec.Struct, frozen=True):
    """Calls a function with the pass."""

    call: Any = None

    def schedule(self, current: CurrentPass) -> None:
        self.call(current)


@pytest.fixture
def examples_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    sys.modules.pop("my_pass", None)


@pytest.mark.usefixtures("examples_importable")
def test_the_example_decides_by_the_script(rewrite: bool) -> None:
    result = replay(SCRIPT)
    if rewrite:
        SCRIPT.write_text(result)
    assert result == SCRIPT.read_text()


jobs_of_any_kind = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 8), st.integers(1, 30), st.integers(0, 20)),
    min_size=1,
    max_size=25,
)


@examples(200)
@given(jobs_of_any_kind, st.sampled_from([None, "first-fit", "contiguous"]))
def test_easy_as_a_pass_of_its_own_is_easy(
    jobs: list[tuple[int, int, int, int]], select: str | None
) -> None:
    columns = sim.Jobs(
        submit_s=[at for at, _, _, _ in jobs],
        processors=[size for _, size, _, _ in jobs],
        run_s=[run_s for _, _, run_s, _ in jobs],
        walltime_s=[run_s + more for _, _, run_s, more in jobs],
    )
    own, built_in = (
        sim.simulate(columns, processors=8, select=select, scenario=rules)
        for rules in (Easy(), "easy")
    )
    if select != "contiguous":  # by place, EASY keeps certain processors and the table others
        assert own.jobs["start_s"].tolist() == built_in.jobs["start_s"].tolist()
    assert not any(own.jobs["state"] == "unstarted")


@pytest.mark.parametrize("counted", [True, False])
def test_a_reservation_is_kept_by_a_wake_up_and_never_delayed(counted: bool) -> None:
    core = _core(Easy(reservations=2), Machine([("n", 4)], counted=counted))
    orders = _submit(core, 0.0, (3, 10.0), (4, 10.0), (2, 5.0), (1, 100.0))
    assert [order.job for order in orders if isinstance(order, Start)] == [1]
    assert core.partitions[0].state.reservations == {2: 10.0, 3: 20.0}
    assert WakeAt(10.0) in orders
    assert str(core.reason_pending(2)) == "4 processors reserved for 10.0 [Reservation]"
    assert core.reason_pending(4).rule == "Policy", "it would delay job 2"


def test_what_a_pass_sees() -> None:
    seen: list[Any] = []

    def look(current: CurrentPass) -> None:
        seen.append((current.now, current.free, current.installed))
        seen.append([(job.id, job.size, job.estimated_end) for job in current.running])
        seen.append([(job.id, current.earliest(job)) for job in current.queue])
        current.start(current.queue[0], Reason("Own", "one of {count}", {"count": 9}))

    core = _core(Calls(look), Machine([("a", 3), ("b", 1)]))
    [start, _] = _submit(core, 5.0, (3, 10.0))
    assert str(start.reason) == "one of 9 [Own]"
    assert seen == [(5.0, 4, 4), [], [(1, 5.0)]]
    seen.clear()
    _submit(core, 6.0, (4, 1.0), (9, 1.0), first=2)
    assert seen == [(6.0, 1, 4), [(1, 3, 15.0)], [(2, 15.0)]], "job 3 is too large for the machine"
    seen.clear()
    core.handle([NodeLost(7.0, "b")])
    _submit(core, 8.0, (9, 1.0), first=4)
    assert seen[-1] == [(2, inf)], "with a node down there is no start to expect"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda own: [own.start(own.queue[0]), own.start(own.queue[0])], "not a queued job"),
        (lambda own: [own.reserve(own.queue[1]), own.start(own.queue[1])], "starts or reserves"),
        (lambda own: own.earliest(1), "1 is not a queued job"),
        (lambda own: own.start(own.queue[0], "why"), "must be a Reason, got 'why'"),
        (lambda own: own.start(own.queue[0], Reason("Own", "{n}")), "cannot be recorded: KeyError"),
        (
            lambda own: own.start(own.queue[0], Reason("Own", "at {at}", {"at": inf})),
            "cannot be recorded: ValueError: inf is not a finite number",
        ),
        (lambda own: own.start(own.queue[0], None, 2.0), "cannot be interpreted as an integer"),
        (lambda own: own.expect(own.queue[0], nan), "expected to start at nan, which is no number"),
        (lambda own: own.expect(own.queue[0], "soon"), "start at 'soon', which is no number"),
        (lambda own: [own.start(job) for job in own.in_order()], r"a loop over in_order\(\): loop"),
    ],
)
def test_what_a_pass_may_not_do(call: Callable[[CurrentPass], object], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        _submit(_core(Calls(call), Machine([("n", 4)])), 0.0, (2, 10.0), (4, 10.0))


def test_a_pass_may_give_numbers_of_numpy() -> None:
    def start(current: CurrentPass) -> None:
        facts = {"n": np.int64(2), "share": np.float32(0.5)}
        current.start(current.queue[0], Reason("Own", "{n} {share}", facts), np.int64(2))

    order, *_ = _submit(_core(Calls(start), Machine([("n", 4)])), 0.0, (2, 10.0))
    assert isinstance(order, Start)
    assert order_decoder.decode(encode_order(order)) == order
    assert str(order.reason) == "2 0.5 [Own]"


@pytest.mark.parametrize("at", [np.float32(7), np.float64(7), np.int64(7), 7])
def test_a_pass_may_expect_a_start_at_any_kind_of_number(at: Any) -> None:
    expected: list[float] = []

    def expect(current: CurrentPass) -> None:
        current.expect(current.queue[0], at)
        expected.extend(current.reserved.values())

    _submit(_core(Calls(expect), Machine([("n", 4)])), 0.0, (2, 10.0))
    assert expected == [7.0]
    assert type(expected[0]) is float


def test_a_loop_over_the_jobs_in_order_may_end_with_a_start() -> None:
    call = Calls(lambda own: own.start(next(own.in_order())))
    start, *_ = _submit(_core(call, Machine([("n", 4)])), 0.0, (2, 10.0), (2, 10.0))
    assert start.job == 1


def test_an_error_ends_a_simulation_and_is_survived_live() -> None:
    def fail(current: CurrentPass) -> None:
        current.reserve(current.queue[-1])
        raise KeyError("no such thing")

    jobs = (2, 10.0), (3, 10.0), (1, 10.0)
    with pytest.raises(KeyError, match="no such thing"):
        _submit(_core(Calls(fail), Machine([("n", 4)])), 0.0, *jobs)
    said: list[str] = []

    def report(*failure: Any) -> str:
        said.append(description(*failure))
        return said[-1]

    core = _core(Calls(fail), Machine([("n", 4)]), report_error=report)
    orders = _submit(core, 0.0, *jobs)
    assert [order.job for order in orders if isinstance(order, Start)] == [1], "in queue order"
    [sentence] = said
    assert sentence.endswith(":Calls failed in schedule with KeyError: 'no such thing'")
    assert str(core.reason_pending(2)) == f"3 processors wanted, 2 free; {sentence} [Resources]"
    assert core.partitions[0].state.reservations == {}
    again = Core.restored(core.record(), _jobs(core), core.scenario, Machine(), report_error=report)
    orders = again.handle([JobEnded(10.0, 1)])
    assert [order.job for order in orders if isinstance(order, Start)] == [2, 3]


def test_advance_reservations_keep_processors_from_a_pass() -> None:
    core = _core(Easy(), Machine([("n", 4)]))
    core.handle([ReservationRequested(0.0, "maintenance", 10.0, 20.0, processors=2)])
    orders = _submit(core, 1.0, (4, 20.0), (2, 29.0), (2, 5.0))
    assert [order.job for order in orders if isinstance(order, Start)] == [2, 3]
    assert core.partitions[0].state.reservations == {1: 30.0}


def test_only_the_first_jobs_are_seen_if_the_depth_is_limited() -> None:
    core = _core(Easy(), Machine([("n", 2)]), {"backfill.max_jobs": 2})
    _submit(core, 0.0, (1, 10.0), (2, 10.0), (2, 5.0), (1, 5.0))
    assert core.reason_pending(4).rule == "NotExamined"


def test_a_scenario_with_a_pass_is_data() -> None:
    made = scenario(f"{__name__}:Easy", {"scheduling.reservations": 3})
    assert made.scheduling == Easy(3)
    assert from_data(to_data(made)) == made
    assert scenario("easy", {"scheduling": f"{__name__}:Easy"}).scheduling == Easy()
    assert scenario(f"{__name__}:Easy", {"scheduling": "none"}).scheduling is None


@pytest.mark.parametrize(
    "changes",
    [
        {"backfill.reservations": 2},
        {"backfill.pick": "bb"},
        {"backfill.kill_at_reservation": True},
        {"backfill_order": "sjf"},
    ],
)
def test_rules_of_backfilling_have_no_effect_with_a_pass(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no effect"):
        scenario(f"{__name__}:Easy", changes)


def test_experiments_take_a_pass_by_name_and_as_an_object(tmp_path: Path) -> None:
    jobs = sim.Jobs(submit_s=[0, 0], processors=[1, 2], run_s=[5, 5])
    experiment = sim.Experiment(jobs, scenario=Easy(2))
    experiment.save(tmp_path / "own.yaml")
    again = sim.Experiment.from_file(tmp_path / "own.yaml")
    assert again.chosen.scheduling == Easy(2)
    assert again.run().jobs["start_s"].tolist() == [0, 5]
    with pytest.raises(ConfigError, match=r"scenario: is a class; give an object, Easy\(\)"):
        sim.Experiment(jobs, scenario=Easy)


def test_a_pass_that_starts_nothing_is_named_in_the_notes() -> None:
    jobs = {"submit_s": [0], "processors": [1], "run_s": [5]}
    run = sim.simulate(jobs, processors=1, scenario=Easy(0))
    assert run.notes == []
    idle = sim.simulate(jobs, processors=1, scenario=Calls(str))
    assert "job 1 requests 1 processor, and the scheduling pass never started it" in idle.notes[0]


def test_forecasts_do_not_take_a_shortcut_of_easy() -> None:
    state = msgspec.defstruct("State", ["scenario", "jobs"])
    assert not last_job_changes_nothing(state(Scenario("own", scheduling=Easy()), []))


def _core(
    policy: Any, machine: Machine, changes: dict[str, Any] | None = None, **options: Any
) -> Core:
    rules = scenario("easy", changes or {})
    return Core(msgspec.structs.replace(rules, scheduling=policy), machine, **options)


def _submit(core: Core, at: float, *jobs: tuple[int, float], first: int = 1) -> list[Any]:
    specs = enumerate(jobs, first)
    return core.handle([JobSubmitted(at, i, JobSpec(*job)) for i, job in specs])


def _jobs(core: Core) -> list[Any]:
    return [copied(job) for job in core.jobs.values()]

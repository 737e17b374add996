"""Policies that raise exceptions or return invalid results do not end the site that uses them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any, ClassVar

import msgspec
import pytest

from scheduler.core.core import Core
from scheduler.model.events import (
    Event,
    JobEnded,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizePoint,
    Wakeup,
)
from scheduler.model.interfaces import QueueOrder, Selection
from scheduler.model.job import Job
from scheduler.model.job_view import shown
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Reason, Start
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE, Space
from scheduler.policies.containment import description
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.queue_orders.basic import Lxwf
from scheduler.policies.resizing.interface import Stay
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.scenarios import contained, scenario
from scheduler.predictions.predictor import Predictor


class Errors:
    """Reports of the errors that a site contained."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def __call__(self, kind: str, policy: object, method: str, error: Exception) -> str:
        sentence = description(kind, policy, method, error)
        self.sentences.append(sentence)
        return sentence


class ByUser(QueueOrder, msgspec.Struct, frozen=True):
    """Queue order whose key depends on the user: a number, an exception or an invalid result."""

    ages: ClassVar[bool] = False

    def key(self, job: Any, now: float) -> Any:
        special = {"text": "a", "none": None, "nan": nan, "longer": (1.0, 2.0)}
        if job.spec.user == "raises":
            raise KeyError("no such user")
        if job.spec.user == "exits":
            sys.exit(0)
        return special.get(job.spec.user, float(job.spec.priority))


class AgingByUser(ByUser, frozen=True):
    """The same, evaluated again at each pass."""

    ages: ClassVar[bool] = True


class Urgent(AgingByUser, frozen=True):
    """The same, with a priority."""

    def priority(self, job: Any, now: float) -> float:
        return -self.key(job, now)


class Choosing(Selection, msgspec.Struct, frozen=True):
    """Processor selection that fails for 2 processors in a way that `how` names."""

    how: str = "raises"

    def select(self, space: Any, processors: int) -> Any:
        if processors != 2:
            return space.free.first(processors)
        if self.how == "raises":
            raise RuntimeError("not today")
        return {
            "list": [0, 1],
            "few": space.free.first(1),
            "held": ProcSet.span(100, 2),
        }[self.how]


class ChoosingAnywhere(Choosing, frozen=True):
    """The same, but it promises never to refuse."""

    anywhere = True


class Leaving(Choosing, frozen=True):
    """The same; the oldest group leaves, or that choice fails."""

    def leaving(self, space: Any, groups: Any, processors: int, others: Any = NONE) -> Any:
        if self.how == "leaving raises":
            raise RuntimeError("no group")
        return (min(groups),)


class Foretelling(msgspec.Struct, frozen=True):
    """Source of estimates that fails in one method."""

    fails: str = "predict"
    result: float | None = None

    def predictor(self) -> Any:
        if self.fails == "predictor":
            raise OSError("no model")
        return Foreteller(self)


class Foreteller(Predictor):
    def __init__(self, parameters: Foretelling) -> None:
        self._parameters = parameters

    def _fail(self, method: str, else_s: float) -> Any:
        if self._parameters.fails != method:
            return else_s
        if self._parameters.result is None:
            raise ZeroDivisionError("no history")
        return self._parameters.result

    def predict(self, job: Any) -> float:
        return self._fail("predict", 10.0)

    def missed(self, job: Any) -> float:
        return self._fail("missed", job.estimate_s + 10.0)

    def ended(self, job: Any) -> None:
        self._fail("ended", 0.0)

    def learned(self) -> Any:
        return self._fail("learned", 7.0)

    def relearn(self, learned: Any) -> None:
        self._fail("relearn", learned)


def site(chosen: Scenario, errors: Errors | None, processors: int = 4) -> Core:
    return Core(chosen, Machine([("n1", processors)]), report_error=errors)


def submitted(
    at: float, job: int, processors: int, walltime_s: float = 100.0, **fields: Any
) -> JobSubmitted:
    return JobSubmitted(at, job, JobSpec(processors, walltime_s, **fields))


def started(orders: Sequence[Order]) -> list[int]:
    return [order.job for order in orders if isinstance(order, Start)]


def run(core: Core, *instants: Sequence[Event]) -> list[int]:
    """Hand over the events of some instants; return the jobs in the order of their starts."""
    return [job for events in instants for job in started(core.handle(events))]


@pytest.mark.parametrize("order", [ByUser(), AgingByUser(), Urgent()])
@pytest.mark.parametrize("fault", ["raises", "exits", "text", "none", "nan", "longer"])
def test_jobs_for_which_the_order_fails_start_behind_the_others(order: Any, fault: str) -> None:
    errors = Errors()
    core = site(Scenario("mine", order=order), errors)
    wholes = [
        submitted(0, 1, 4),
        submitted(1, 2, 4, priority=2.0),
        submitted(2, 3, 4, user=fault),
        submitted(3, 4, 4, user=fault),
        submitted(4, 5, 4, priority=1.0),
    ]
    ends = [[JobEnded(10.0 * at, job)] for at, job in enumerate([1, 5, 2, 3], start=1)]
    assert run(core, *([event] for event in wholes), *ends) == [1, 5, 2, 3, 4]
    assert any("test_containment:" in each and "failed in key" in each for each in errors.sentences)


def test_an_order_that_fails_for_all_jobs_is_first_come_first_served() -> None:
    core = site(Scenario("mine", order=ByUser()), Errors())
    come = [[submitted(at, 5 - at, 4, user="raises")] for at in range(4)]
    ends = [[JobEnded(10.0 * at, 6 - at)] for at in range(1, 4)]
    assert run(core, *come, *ends) == [5, 4, 3, 2]


def test_a_priority_that_fails_beside_the_order_of_another_queue() -> None:
    class Wrong(Urgent, frozen=True):
        def priority(self, job: Any, now: float) -> float:
            raise ValueError("no priority")

    errors = Errors()
    chosen = Scenario("mine", order=Aging(), queues={"mine": QueueRules(Wrong())})
    core = site(chosen, errors)
    come = [
        submitted(0, 1, 4),
        submitted(1, 2, 4, queue="mine", priority=5.0),
        submitted(2, 3, 4, priority=50.0),
    ]
    assert run(core, *([event] for event in come), [JobEnded(10, 1)], [JobEnded(20, 3)]) == [
        *(1, 3, 2)
    ]
    assert "no priority" in errors.sentences[0]


@pytest.mark.parametrize("how", ["raises", "list", "few", "held"])
@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_a_job_waits_where_the_selection_fails_and_the_reason_says_so(
    how: str, policy: str
) -> None:
    errors = Errors()
    chosen = msgspec.structs.replace(scenario(policy), selection=Choosing(how))
    core = site(chosen, errors)
    assert run(core, [submitted(0, 1, 2), submitted(0, 2, 1), submitted(0, 3, 3)]) == [2, 3]
    why = core.reason_pending(1).sentence
    assert "the processor selection test_containment:Choosing failed in select" in why
    assert core.machine.free_count == 0
    assert run(core, [JobEnded(5, 3)], [JobEnded(6, 2)]) == []
    assert core.machine.free_count == 4
    assert errors.sentences


def test_backfilling_with_a_selection_that_fails_after_it_promised_a_place() -> None:
    class Fitting(Choosing, frozen=True):
        def fits(self, space: Any, processors: int) -> bool:
            return True

    core = site(msgspec.structs.replace(scenario("easy"), selection=Fitting()), Errors())
    come = [submitted(0, 1, 1), submitted(0, 2, 1), submitted(1, 3, 4), submitted(2, 4, 2, 10)]
    assert run(core, *([event] for event in come)) == [1, 2]
    assert run(core, [JobEnded(3, 2)], [JobEnded(4, 1)]) == [3]


@pytest.mark.parametrize("how", ["raises", "list", "few", "held"])
def test_first_fit_chooses_where_a_selection_that_never_refuses_fails(how: str) -> None:
    errors = Errors()
    chosen = msgspec.structs.replace(scenario("easy"), selection=ChoosingAnywhere(how))
    core = site(chosen, errors)
    orders = core.handle([submitted(0, 1, 1), submitted(0, 2, 2)])
    assert [str(order.processors) for order in orders if isinstance(order, Start)] == ["0", "1-2"]
    assert "failed in select" in errors.sentences[0]


@pytest.mark.parametrize("result", [None, nan, -1.0, inf])
@pytest.mark.parametrize("method", ["predictor", "predict"])
def test_the_walltime_is_the_estimate_where_the_predictor_fails(
    method: str, result: float | None
) -> None:
    errors = Errors()
    core = site(Scenario("mine", estimates=Foretelling(method, result)), errors)
    core.handle([submitted(0, 1, 2, 100.0)])
    assert core.jobs[1].estimate_s == 100.0
    assert f"failed in {method} with" in errors.sentences[0]


@pytest.mark.parametrize("result", [None, nan, 0.0, 10.0])
def test_the_walltime_is_the_estimate_where_a_correction_fails(result: float | None) -> None:
    errors = Errors()
    core = site(Scenario("mine", estimates=Foretelling("missed", result)), errors)
    core.handle([submitted(0, 1, 2, 100.0)])
    core.handle([Wakeup(10.0)])
    assert core.jobs[1].estimate_s == 100.0
    assert "failed in missed with" in errors.sentences[0]


def test_an_object_of_another_class_is_no_predictor() -> None:
    class Other(msgspec.Struct, frozen=True):
        def predictor(self) -> Any:
            return "a forecast"

    errors = Errors()
    core = site(Scenario("mine", estimates=Other()), errors)
    assert run(core, [submitted(0, 1, 4)]) == [1]
    assert "TypeError: derive the class of 'a forecast' from Predictor" in errors.sentences[0]


def test_a_predictor_without_a_prediction() -> None:
    class Misspelt(Predictor):
        def predicts(self, job: Any) -> float:
            return 5.0

    class Other(msgspec.Struct, frozen=True):
        def predictor(self) -> Any:
            return Misspelt()

    errors = Errors()
    core = site(Scenario("mine", estimates=Other()), errors)
    assert run(core, [submitted(0, 1, 4)]) == [1]
    assert "TypeError: its predictor Misspelt has no method predict" in errors.sentences[0]


def test_learning_that_fails_changes_nothing() -> None:
    errors = Errors()
    core = site(Scenario("mine", estimates=Foretelling("ended")), errors)
    assert run(core, [submitted(0, 1, 4)], [submitted(1, 2, 4)], [JobEnded(5, 1)]) == [1, 2]
    assert "failed in ended with ZeroDivisionError: no history" in errors.sentences[0]


@pytest.mark.parametrize("method", ["learned", "relearn"])
def test_a_record_of_what_a_predictor_learned_that_fails(method: str) -> None:
    errors = Errors()
    chosen = Scenario("mine", estimates=Foretelling(method))
    core = site(chosen, errors)
    run(core, [submitted(0, 1, 2)], [JobEnded(5, 1)])
    jobs = core.jobs.values()
    restored = Core.restored(core.record(), jobs, chosen, Machine(), report_error=errors)
    assert restored.now == core.now
    assert f"failed in {method} with ZeroDivisionError" in errors.sentences[0]


def test_the_groups_that_leave_are_those_of_the_selection() -> None:
    groups = {1: ProcSet.span(0, 2), 2: ProcSet.span(2, 2)}
    errors = Errors()
    chosen, failing = (
        contained(Scenario("mine", selection=Leaving(how)), errors).selection
        for how in ("raises", "leaving raises")
    )
    assert chosen.leaving(Space(), groups, 2) == (1,)
    assert errors.sentences == []
    assert failing.leaving(Space(), groups, 2) == (2,), "the newest"
    assert "failed in leaving with RuntimeError: no group" in errors.sentences[0]


def test_without_a_report_exceptions_are_raised() -> None:
    for chosen in (
        Scenario("mine", order=ByUser()),
        Scenario("mine", estimates=Foretelling()),
        Scenario("mine", selection=Choosing()),
    ):
        core = site(chosen, None)
        events = [submitted(0, 1, 1), submitted(0, 2, 2, user="raises")]
        with pytest.raises((KeyError, ZeroDivisionError, RuntimeError)):
            core.handle(events)


def test_the_scenario_stays_the_one_that_was_set() -> None:
    mine = Scenario("mine", order=ByUser(), selection=Choosing())
    core = site(mine, Errors())
    assert core.scenario == mine
    other = Scenario("other", order=AgingByUser())
    assert core.resumed(other, kill_at_walltime=True).scenario == other


def test_progress_and_quantiles_of_a_predictor_that_fails() -> None:
    class Broken(Predictor):
        def predict(self, job: Any) -> float:
            return 50.0

        def progressed(self, job: Any, point: Any) -> float:
            return nan

        def quantiles(self, job: Any, probabilities: Any) -> list[float]:
            raise KeyError("history")

    class Source(msgspec.Struct, frozen=True):
        def predictor(self) -> Predictor:
            return Broken()

    errors = Errors()
    core = site(Scenario("mine", estimates=Source()), errors)
    core.handle([submitted(0, 1, 2, max_processors=4)])
    core.handle([JobStarted(0, 1)])
    core.handle([ResizePoint(10, 1, 1, 10.0, iterations=9)])
    job = core.jobs[1]
    assert job.estimate_s == 50
    assert core.partitions[0].predictor.quantiles(job, (0.5,)) is None
    assert [each.split(" failed in ")[1].split()[0] for each in errors.sentences] == [
        "progressed", "quantiles",
    ]  # fmt: skip


class Changing(QueueOrder, msgspec.Struct, frozen=True):
    """Queue order that tries to change what a job requests, in a way that `how` names."""

    how: str
    ages: ClassVar[bool] = False

    def key(self, job: Any, now: float) -> float:
        change(job, self.how)
        return 0.0


class ChangingResizes(msgspec.Struct, frozen=True):
    """Resizing policy that does the same with a job of the view."""

    how: str
    which: str = "own"

    def decide(self, job: Any, view: Any) -> Any:
        shown = {
            "own": lambda: job,
            "head": lambda: view.head,
            "queue": lambda: next(iter(view.queue)),
            "first": lambda: view.queue[0],
            "resizable": lambda: next(iter(view.resizable)),
        }
        change(shown[self.which](), self.how)
        return Stay(Reason("changed"))


class ChangingPasses(msgspec.Struct, frozen=True):
    """Scheduling pass that does the same."""

    how: str

    def schedule(self, current: Any) -> None:
        change(current.queue[0], self.how)


class ChangingPredictor(Predictor):
    def __init__(self, how: str) -> None:
        self.how = how

    def predict(self, job: Any) -> float:
        change(job, self.how)
        return 1.0


class ChangingEstimates(msgspec.Struct, frozen=True):
    """Source of estimates that does the same."""

    how: str

    def predictor(self) -> Predictor:
        return ChangingPredictor(self.how)


def change(job: Any, how: str) -> None:
    """Change a job."""
    if how == "set":
        job.processors = 1
    elif how == "delete":
        del job.estimate_s
    elif how == "groups":
        job.groups[1] = ProcSet()
    elif how == "spec":
        job.spec.processors = 1
    elif how == "resources":
        job.spec.resources["gpu"] = 0
    elif how == "history":
        job.history.sweet_spot = 1
    elif how == "failures":
        job.history.failures[4] = 0
    elif how == "measured":
        job.history.record(0.1, 1.0)


HOWS = ["set", "delete", "groups", "spec", "resources", "history", "failures", "measured"]
RESIZABLE = JobSpec(2, 100.0, 8, resources={"gpu": 1})


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "rules",
    [
        lambda how: Scenario("x", order=Changing(how)),
        lambda how: Scenario("x", backfill_order=Changing(how)),
        lambda how: Scenario("x", scheduling=ChangingPasses(how)),
        lambda how: Scenario("x", estimates=ChangingEstimates(how)),
        lambda how: Scenario("x", resizing=ChangingResizes(how)),
        lambda how: Scenario("x", resizing=ChangingResizes(how, "head")),
        lambda how: Scenario("x", resizing=ChangingResizes(how, "queue")),
        lambda how: Scenario("x", resizing=ChangingResizes(how, "first")),
        lambda how: Scenario("x", resizing=ChangingResizes(how, "resizable")),
    ],
    ids=["order", "backfill", "pass", "predictor", "own", "head", "queue", "first", "resizable"],
)
def test_a_policy_cannot_change_a_job(rules: Callable[[str], Scenario], how: str) -> None:
    errors = Errors()

    def lives(scenario: Scenario) -> tuple[list[Any], Core]:
        core = Core(
            scenario,
            Machine([("n", 5)], resources={"gpu": 4}),
            report_error=errors,
        )
        for number in (1, 2, 3):
            core.handle([JobSubmitted(float(number), number, RESIZABLE)])
        core.handle([JobSubmitted(3.5, 4, JobSpec(1, 100.0))])  # behind job 3
        core.handle([JobStarted(4.0, 1), JobStarted(4.0, 2)])
        core.handle([ResizePoint(5.0, 1, 1, 1.0)])
        jobs = [
            (job.processors, job.estimate_s, job.groups, job.spec, job.history.sweet_spot)
            for job in list(core.jobs.values())[:3]  # a fallback may let job 4 wait
        ]
        return jobs, core

    jobs, core = lives(rules(how))
    assert errors.sentences, "the error names the policy"
    assert jobs == lives(Scenario("x", resizing=ChangingResizes("not")))[0]
    assert core.jobs[1].history.points == 1
    assert core.jobs[1].history.failures == {}


class Taking(Selection, msgspec.Struct, frozen=True):
    """Processor selection that takes the processors itself, which the core does."""

    def select(self, space: Any, processors: int) -> Any:
        chosen = space.free.first(processors)
        space.take(chosen)
        return chosen

    def leaving(self, space: Any, groups: Any, processors: int, others: Any = NONE) -> Any:
        groups.clear()
        return None


def test_a_selection_changes_only_a_copy() -> None:
    core = Core(Scenario("x", selection=Taking()), Machine([("n", 4)]), report_error=Errors())
    for number in (1, 2):
        core.handle([JobSubmitted(float(number), number, JobSpec(1, 10.0))])
    assert core.machine.free == ProcSet.parse("2-3")
    assert core.machine.free_count == 2


def test_what_a_policy_sees_of_a_job_is_one_object_that_reads_as_the_job() -> None:
    job = Job(7, RESIZABLE, 1.0)
    seen = shown(job)
    assert shown(job) is seen
    assert repr(seen) == "job 7"
    names = {name for name in dir(Job) if not name.startswith("_")}
    methods = {"become", "change_limits", "change_request", "copy", "redirect", "requeue"}
    methods |= {"cancel", "start_on", "expect_on", "shown"}
    job.started_at = 2.0
    job.history.configured(2, 2.0)
    for name in sorted(names - methods):
        assert getattr(seen, name, None) == getattr(job, name) or name.endswith("history"), name
    assert seen.spec == job.spec
    job.size = 2
    assert seen.size == 2
    assert Aging().key(seen, 5.0) == Aging().key(job, 5.0)
    assert Lxwf().key(seen, 5.0) == Lxwf().key(job, 5.0)

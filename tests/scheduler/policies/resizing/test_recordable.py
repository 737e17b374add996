"""A decision of a policy is carried out only if it can be recorded and printed."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.journal.recovery import policy_errors
from scheduler.model.events import (
    DrainChanged,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
    SizesRequested,
)
from scheduler.model.machine import Machine
from scheduler.model.orders import Continue, Order, Reason
from scheduler.policies.api import Decision, Grow, JobView, Shrink, Stay, View
from scheduler.policies.containment import ErrorReporter
from scheduler.policies.resizing.recordable import checked, finite
from scheduler.policies.scenario import Scenario

VALUES = st.one_of(
    st.text(max_size=5),
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=2),
)
TEXTS = st.one_of(st.text(max_size=5), st.text("{}ab", max_size=5), st.none(), st.just("\ud800"))
FACTS = st.one_of(st.dictionaries(TEXTS, VALUES, max_size=3), st.none(), st.just({1: 2}))
REASONS = st.one_of(st.builds(Reason, TEXTS, TEXTS, FACTS), st.none())
DECISIONS = st.one_of(
    st.builds(Grow, VALUES, REASONS),
    st.builds(Stay, REASONS, VALUES),
    st.builds(Shrink, VALUES, REASONS),
)


PLAIN_VALUES = st.integers(-(2**63), 2**63 - 1) | st.floats(-1e300, 1e300) | st.text()
PLAIN_REASONS = st.builds(
    Reason, st.text(), st.just("{a}"), st.fixed_dictionaries({"a": PLAIN_VALUES})
)
PLAIN = st.builds(Grow, st.integers(1, 9), PLAIN_REASONS) | st.builds(Stay, PLAIN_REASONS)


@given(st.one_of(PLAIN, DECISIONS))
@example(Grow(4, Reason("rule", "{a}", {"a": 2**63 - 1})))
@example(Stay(Reason("rule", "{a}", {"a": -(2**63)})))
def test_a_checked_decision_is_read_back_equal(decision: Decision) -> None:
    try:
        recorded = checked(decision)
    except (TypeError, ValueError):
        reject()
    assert msgspec.json.decode(msgspec.json.encode(recorded), type=type(recorded)) == recorded


@pytest.mark.parametrize(
    "decision",
    [Grow(6, Reason("rule", "to {to}", {"to": 6, "s": 0.5, "why": "a"})), Stay(Reason("rule"), 4)],
)
def test_most_decisions_are_recorded_as_they_are(decision: Decision) -> None:
    assert checked(decision) == decision
    assert finite(decision) is decision


@pytest.mark.parametrize("value", [inf, -inf, nan])
def test_a_fact_that_is_not_finite_is_an_error(value: float) -> None:
    with pytest.raises(ValueError, match=r"cannot be recorded: left_s is (inf|-inf|nan)"):
        finite(Stay(Reason("rule", "{left_s} s", {"left_s": value})))


@pytest.mark.parametrize(
    ("decision", "kind"),
    [
        (Grow(6, Reason("rule", "{missing}")), "KeyError"),
        (Grow("6", Reason("rule")), "ValidationError"),
        (Stay(Reason("rule"), True), "ValidationError"),
        (Stay(Reason("rule", "", {"a": float("nan")})), "ValidationError"),
        (Stay(Reason("rule", "", {"a": [1]})), "ValidationError"),
        (Stay(Reason("\ud800")), "UnicodeEncodeError"),
        (Stay(Reason("rule", "on {size}", {"to": 4})), "KeyError"),
        (Stay(None), "ValidationError"),
        (Stay(Reason("rule", "", {"a": object})), "TypeError: .* is neither a number nor a text"),
    ],
)
def test_a_decision_that_cannot_be_recorded_is_an_error(decision: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"cannot be recorded: {kind}"):
        checked(decision)


@pytest.mark.parametrize(
    ("decision", "plain"),
    [
        (Grow(np.int64(6), Reason("rule")), Grow(6, Reason("rule"))),
        (Shrink(np.int32(2), Reason("rule"), (np.int64(3),)), Shrink(2, Reason("rule"), (3,))),
        (
            Stay(Reason("rule", "{a} {b:.1f}", {"a": np.uint8(7), "b": np.float32(0.5)})),
            Stay(Reason("rule", "{a} {b:.1f}", {"a": 7, "b": 0.5})),
        ),
    ],
)
def test_numbers_of_numpy_become_those_of_python(decision: Any, plain: Decision) -> None:
    recorded = checked(decision)
    assert recorded == plain
    assert msgspec.json.encode(recorded) == msgspec.json.encode(plain)


class Returns(msgspec.Struct, frozen=True):
    """A policy that returns something at each resize point."""

    decision: Any

    def decide(self, job: JobView, view: View) -> Any:
        """Return it."""
        return self.decision


def answer(decision: Any, on_error: ErrorReporter | None = None) -> Order:
    """What a core answers a job on 4 of 8 processors that ran on 2 before and may have 6."""
    grown = Grow(4, Reason("first"))
    rules = [Scenario("own", resizing=Returns(each)) for each in (grown, decision)]
    core = Core(rules[0], Machine([("n", 8)]))
    spec = JobSpec(2, 100.0, 6, topology=Topology.parse("list:2,4,6"))
    core.handle([JobSubmitted(0, 1, spec), JobSubmitted(0, 2, JobSpec(3, 100.0))])
    core.handle([JobStarted(1, 1), JobStarted(1, 2)])
    core.handle([ResizePoint(2, 1, 1, 1.0)])
    core.handle([ResizeDone(3, 1, 1)])
    core = Core.restored(
        core.record(), core.jobs.values(), rules[1], Machine(), report_error=on_error
    )
    (order,) = core.handle([ResizePoint(4, 1, 2, 1.0)])
    return order


INVALID = [
    (None, "it returned None, which is neither Grow nor Shrink nor Stay"),
    ("grow", "it returned 'grow', which is neither Grow nor Shrink nor Stay"),
    (Grow(3, Reason("own")), r"Grow\(to=3.*but the job has 4 processors already"),
    (Grow(9, Reason("own")), r"Grow\(to=9.*but the machine has 8 processors"),
    (Grow(7, Reason("own")), r"Grow\(to=7.*but the job may have at most 6 processors"),
    (Grow(5, Reason("own")), r"Grow\(to=5.*but the job cannot run on so many .*list:2,4,6"),
    (Shrink(0, Reason("own")), r"Shrink\(to=0.*but the job has 4 processors"),
    (Shrink(3, Reason("own")), r"Shrink\(to=3.*but the job cannot run on so many .*list:2,4,6"),
    (Shrink(1, Reason("own")), r"Shrink\(to=1.*but the job may not have fewer than 2 processors"),
    (Shrink(2, Reason("own"), (9,)), r"groups \(9,\) do not have the 2 processors that leave"),
]


@pytest.mark.parametrize(("decision", "said"), INVALID)
def test_an_invalid_decision_is_an_error_of_the_policy(decision: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        answer(decision)
    errors = policy_errors()
    order = answer(decision, errors)
    assert isinstance(order, Continue)
    assert order.reason.rule == "policy error"
    place = "test_recordable.py:"
    assert re.search(f"{said}.*{place}.*the job keeps its size", order.reason.sentence)


def test_a_decision_that_cannot_be_carried_out_now_is_no_error() -> None:
    order = answer(Grow(6, Reason("own")))
    assert isinstance(order, Continue)
    assert str(order.reason).endswith("(grow to 6 with 1 free); its rule: own [refused]")


class Asked(msgspec.Struct, frozen=True):
    """A policy whose answers last, and that counts how often it is asked about each job."""

    count: dict[int, int]

    def decide(self, job: JobView, view: View) -> Decision:
        """Stay."""
        self.count[job.id] = self.count.get(job.id, 0) + 1
        return Stay(Reason("asked"), lasting=True)


def test_a_lasting_answer_is_asked_for_again_only_after_a_change() -> None:
    count: dict[int, int] = {}
    core = Core(Scenario("own", resizing=Asked(count)), Machine([("n", 8)]))
    spec = JobSpec(2, 100.0, 6, topology=Topology())
    core.handle([JobSubmitted(0, job, spec) for job in (1, 2)])
    core.handle([JobStarted(0, job) for job in (1, 2)])

    def point(iteration: int, iteration_s: float) -> int:
        (order,) = core.handle([ResizePoint(float(iteration), 1, iteration, iteration_s)])
        assert order == Continue(1, Reason("asked"))
        return count[1]

    assert [point(i, 1.0) for i in range(1, 6)] == [1, 2, 3, 3, 3], "a size is judged after three"
    assert [point(i, 1.5) for i in (6, 7)] == [4, 5], "an iteration took another time"
    assert [point(i, 1.0) for i in (8, 9)] == [5, 5]
    core.handle([JobSubmitted(9.5, 3, JobSpec(1, 10.0))])
    assert [point(i, 1.0) for i in (10, 11)] == [6, 6], "another job started"
    core.handle([SizesRequested(11.5, 1, 2, 4)])
    assert [point(i, 1.0) for i in (12, 13)] == [7, 7], "its program bounds its size"
    core.handle([DrainChanged(13.5, "n", drains=True)])
    assert [point(i, 1.0) for i in (14, 15)] == [8, 9], "it tries to leave the node at each point"
    core.handle([DrainChanged(15.5, "n", drains=False)])
    assert [point(i, 1.0) for i in (16, 17)] == [10, 10]

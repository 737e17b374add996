"""The resizes of a trial, at random or as the user has written them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from reshape.errors import ReshapeError
from reshape.topology import Topology
from scheduler.client.trial.plan import Kill, Step, parse, random_plan, resized, written_plan

RNG = np.random.default_rng(0)


def sizes_of(start: int, steps: list[Step]) -> list[int]:
    """Sizes of the job after each step; checks that groups leave whole and one stays."""
    groups: tuple[int, ...] = (start,)
    sizes = []
    for step in steps:
        assert len(step.leave) < len(groups)
        groups = resized(groups, step)
        assert min(groups) >= 1
        sizes.append(sum(groups))
    return sizes


@examples(300)
@given(
    st.integers(0, 2**16),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from(["arbitrary", "nearly-square", "power-of-2", "arbitrary:divides=24"]),
    st.integers(1, 12),
)
def test_random_plan_has_valid_sizes(
    seed: int, start: int, more: int, topology: str, resizes: int
) -> None:
    rules = Topology.parse(topology)
    try:
        rules.check_start(start)
    except ValueError:
        return
    points = list(range(3, 60, 4))
    allows = rules.valid_sizes(start, start + more).__contains__
    steps = random_plan(np.random.default_rng(seed), start, start + more, points, resizes, allows)
    sizes = sizes_of(start, steps)
    assert sizes == [step.size for step in steps]
    assert all(allows(size) and size <= start + more for size in sizes)
    assert [a != b for a, b in zip([start, *sizes], sizes, strict=False)] == [True] * len(sizes)
    assert [step.at for step in steps] == sorted({step.at for step in steps} & set(points))
    has_room = any(allows(size) for size in range(start + 1, start + more + 1))
    assert len(steps) == (resizes if has_room else 0)


def test_kills_leave_the_groups_as_they_are_or_start_one_anew() -> None:
    kills: list[Kill] = ["joining group", "job in the resize", "job"]
    seen = set()
    for seed in range(20):
        steps = random_plan(
            np.random.default_rng(seed), 2, 6, range(1, 99), 12, lambda _: True, kills
        )
        groups: tuple[int, ...] = (2,)
        for step in steps:
            after = resized(groups, step)
            if step.kill is not None:
                seen.add(step.kill)
                assert after == ((step.size,) if step.kill == "job" else groups)
                assert step.leave == ()
            groups = after
    assert seen == set(kills)


def test_equal_seeds_draw_equal_plans() -> None:
    plans = [
        random_plan(np.random.default_rng(5), 3, 6, range(1, 99), 10, lambda _: True)
        for _ in range(2)
    ]
    assert plans[0] == plans[1]


def test_the_first_group_leaves_first_if_it_can() -> None:
    for seed in range(20):
        steps = random_plan(np.random.default_rng(seed), 2, 8, range(1, 99), 12, lambda _: True)
        leaving = [step.leave for step in steps if step.leave]
        assert 0 in leaving[0]


def test_written_plan_finds_groups_for_later_contractions() -> None:
    """After 2, 4 and 6 processes only one choice of the group that leaves allows the last step."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        steps = written_plan(rng, 2, [(1, 4), (2, 7), (3, 5), (4, 3)])
        assert sizes_of(2, steps) == [4, 7, 5, 3]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (
            "10:4,20:2",
            "--at 20:2: the groups of the job have 3 and 1 processes then, and leave only "
            "as a whole: it can contract to 1 or 3",
        ),
        (
            "10:2",
            "--at 10:2: the groups of the job have 3 processes then, and leave only as a whole: it "
            "can contract to no other size",
        ),
        ("10:5,20:5", "--at 20:5: the job has 5 processes then: leave it out"),
    ],
)
def test_impossible_plan_is_refused_with_the_reason(wanted: str, why: str) -> None:
    with pytest.raises(ReshapeError, match=re.escape(why)):
        written_plan(RNG, 3, parse(wanted))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10", "expected ITERATION:SIZE such as 10:4, both at least 1, got '10'"),
        ("10:4,0:2", "got '0:2'"),
        ("10:4,5:2", "iteration 5 does not come after iteration 10"),
    ],
)
def test_text_of_another_form_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse(text)

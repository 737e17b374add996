"""The parameters of `malleable`; the scripts in tests/scheduler/core have its decisions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.core.core import Core
from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.policies.resizing.malleable import Malleable
from scheduler.policies.resizing.targets import Division
from scheduler.policies.scenario import Scenario


def test_an_exponent_whose_weights_would_be_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="favour_short must be >= 0 and <= 10, got 1000"):
        Malleable(favour_short=1000.0)
    Malleable(favour_short=10.0)


JOBS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 40), st.floats(1.0, 1e9)), min_size=1, max_size=8
)


@example([(1, 1, 100.0), (1, 1, 1e5)], 3, 1.0)  # the bounds of all jobs, but for the rounding
@given(JOBS, st.integers(1, 60), st.sampled_from([0.0, 0.25, 1.0, 10.0]))
def test_what_jobs_can_use_is_divided_in_proportion_to_the_weights(
    jobs: list[tuple[int, int, float]], processors: int, favour: float
) -> None:
    view = Core(Scenario("own"), Machine([("n", processors)])).partitions[0].view
    division = Division(view, favour)
    for number, (least, more, walltime_s) in enumerate(jobs, 1):
        spec = JobSpec(least + more, walltime_s, min_processors=least)
        division.begin(Job(number, spec, 0.0))
    division.divide()
    shares = list(division._shares.values())
    assert all(share.least <= share.target <= share.most for share in shares)
    used = sum(share.target for share in shares)
    least, most = (sum(getattr(share, name) for share in shares) for name in ("least", "most"))
    assert used == max(least, min(most, processors))
    for share in shares:  # none has a processor beyond its part that another one lacks
        for other in shares:
            if share.target > share.least and other.target < other.most:
                level = (share.target - 1) / Fraction(share.weight)
                next_level = (other.target + 1) / Fraction(other.weight)
                assert level <= next_level * (1 + Fraction(1, 10**6))

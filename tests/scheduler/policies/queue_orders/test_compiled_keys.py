"""Keys of the whole queue are those of its jobs, one by one; what a subclass changes holds too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.events import JobSpec
from scheduler.model.interfaces import QueueOrder
from scheduler.model.job import Job
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.queue_orders.basic import Fcfs, Lxwf, Sjf

seconds = st.floats(0, 1e6)
jobs = st.lists(
    st.builds(
        lambda processors, walltime_s, priority, at: Job(
            1, JobSpec(processors, walltime_s, priority=priority), at
        ),
        st.integers(1, 64),
        st.floats(1e-3, 1e6),
        st.integers(-3, 3) | st.floats(-1e3, 1e3),
        seconds,
    ),
    max_size=6,
)


class Patient(Aging, frozen=True):
    """Aging without the wait."""

    def priority(self, job: Job, now: float) -> float:
        return job.spec.priority


class ShortestFactor(Lxwf, frozen=True):
    """The other way round."""

    def key(self, job: Job, now: float) -> tuple[float, float]:
        factor, at = super().key(job, now)
        return -factor, at


@pytest.mark.parametrize(
    "order",
    [
        Aging(),
        Aging(qfactor_weight=3, wait_weight=0, nodes_weight=-0.5, qfactor_limit_s=60),
        Aging(qfactor_weight=0),
        Patient(),
        Lxwf(),
        Lxwf(weight_per_hour=0),
        ShortestFactor(),
        Fcfs(),
        Sjf(),
    ],
    ids=repr,
)
@given(jobs=jobs, now=seconds)
def test_keys_of_the_queue(order: QueueOrder, jobs: list[Job], now: float) -> None:
    assert order.keys(jobs, now) == [order.key(job, now) for job in jobs]

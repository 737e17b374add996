"""The interface of predictors of run times, and the next prediction when one was too short.

GUIM (Guim, Job-guided scheduling strategies for multi-site HPC infrastructures) 4.4.3. A missed
prediction never ends a job; a deadline manager extends the prediction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, nextafter
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from reshape.errors import check_ranges
from scheduler.model.events import ResizePoint
from scheduler.model.job import Job
from scheduler.text.used_fields import Needs

#: Jobs whose history is shared: all jobs, those of a user, or those of a group.
Cluster: TypeAlias = Literal["none", "user", "group"]
#: The power of a prediction is limited to this, s; it exceeds every run time of a trace.
LONGEST_S = 1e10
#: Least extension, s. Without it powers of 0 and 1 would never grow.
LEAST_S = 1.0


class DeadlineManager(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Extends a missed prediction by at least one second.

    Parameters
    ----------
    kind : "gradual" adds the entry of `steps_s` for this miss to the prediction, and its last entry
        once there are no more; "exponential" raises the prediction to `power`.
    steps_s : for the first, second, ... miss of a job, s; >= 1 and ascending.
    power : exponent, > 1.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    field_needs: ClassVar[Mapping[str, Needs]] = {
        "steps_s": Needs(lambda own: own.kind == "gradual", "with kind gradual"),
        "power": Needs(lambda own: own.kind == "exponential", "with kind exponential"),
    }
    kind: Literal["gradual", "exponential"] = "gradual"
    steps_s: tuple[float, ...] = (
        60, 300, 900, 1800, 3600, 7200, 36000, 72000, 180000, 360000, 1800000, 3600000,
    )  # fmt: skip
    power: float = 2.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        steps_s = (LEAST_S, *self.steps_s)
        if not self.steps_s or not all(a <= b < inf for a, b in pairwise(steps_s)):
            raise ValueError(f"steps_s must be >= {LEAST_S} and ascending, got {self.steps_s}")
        check_ranges(self, power="> 1 and finite")

    def extended(self, predicted_s: float, misses: int) -> float:
        """Return the prediction that follows a missed one, s.

        Parameters
        ----------
        predicted_s : missed prediction, >= 0.
        misses : how many predictions of the job were missed, this one included.
        """
        if self.kind == "gradual":
            longer_s = predicted_s + self.steps_s[min(misses, len(self.steps_s)) - 1]
        else:
            limit = LONGEST_S ** (1 / self.power)
            longer_s = min(predicted_s, limit) ** self.power
        return max(longer_s, predicted_s + LEAST_S, nextafter(predicted_s, inf))


class DeadlineManagers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Deadline managers of a predictor.

    Parameters
    ----------
    before, after : the managers for predictions below the user's estimate, and for those that have
        reached it (GUIM's pre- and post-managers).
    """

    before: DeadlineManager = DeadlineManager()
    after: DeadlineManager = DeadlineManager()

    def next_s(self, job: Job) -> float:
        """Return the next prediction for a job whose `estimate_s` was missed, s."""
        manager = self.before if job.estimate_s < job.spec.walltime_s else self.after
        return manager.extended(job.estimate_s, job.misses)


class Predictor:
    """Predicts run times (GUIM 4.4.1). A predictor may learn, so that each core has its own.

    The core calls the methods in this order: `predict` when a job is queued, `progressed` at each
    resize point, `missed` when the job has run as long as predicted, `ended`. A subclass must have
    `predict`; the other methods do nothing, and `missed` asks the deadline managers.

    A prediction may be larger or smaller than the user's estimate. A missed one ends no job. If the
    core ends jobs at their walltimes, it uses the walltime in place of a larger prediction.

    Attributes
    ----------
    beyond_walltime : whether predictions may exceed the walltime. If not, a job that is still
        running after its walltime is overdue, and `missed` is not called any more.
    deadlines : managers of missed predictions.
    """

    beyond_walltime: bool = True
    deadlines: DeadlineManagers = DeadlineManagers()

    def ended(self, job: Job) -> None:
        """Learn from a job that has ended; one that never ran has no `started_at`."""

    def predict(self, job: Job) -> float:
        """Return the run time to expect of a job that is being submitted, s; finite and >= 0."""
        raise NotImplementedError(f"{type(self).__name__} has no method predict")

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return quantiles of the run time to expect, s; None if the predictor has none."""
        return None

    def progressed(self, job: Job, point: ResizePoint) -> float | None:
        """Return the run time to expect of a job at a resize point, s; None: as before."""
        return None

    def missed(self, job: Job) -> float:
        """Return the next prediction for a job that missed `job.misses` of them, s.

        It must exceed the missed one, `job.estimate_s`.
        """
        return self.deadlines.next_s(job)

    def learned(self) -> Any:
        """Return what the predictor has learned, as data that JSON can hold; None if nothing."""
        return None

    def relearn(self, learned: Any) -> None:
        """Take over what `learned` returned, after a restart of the service."""


class LatestRuns(Predictor):
    """Predictor that keeps the run times of the latest ended jobs of each cluster.

    Parameters
    ----------
    window : number of jobs of a cluster.
    cluster : whose jobs they are; unknown users and groups form one cluster.
    """

    def __init__(self, window: int, cluster: Cluster) -> None:
        self._window, self._cluster = window, cluster
        self._runs: dict[str, deque[float]] = {}

    def runs_of(self, job: Job) -> deque[float]:
        """Run times of the latest jobs of the cluster of a job, s."""
        spec = job.spec
        name = {"none": "", "user": spec.user, "group": spec.group}[self._cluster]
        return self._runs.setdefault(name, deque(maxlen=self._window))

    def ended(self, job: Job) -> None:
        """Add the run time of a job."""
        run_s = run_time_s(job)
        if run_s is not None:
            self.runs_of(job).append(run_s)

    def learned(self) -> dict[str, list[float]]:
        """Return the run times by cluster, s."""
        return {name: list(runs) for name, runs in self._runs.items() if runs}

    def relearn(self, learned: Mapping[str, Iterable[float]]) -> None:
        """Take over what `learned` returned."""
        self._runs = {name: deque(runs, self._window) for name, runs in learned.items()}


def run_time_s(job: Job) -> float | None:
    """Run time of an ended job, s; None if it never ran."""
    if job.started_at is None or job.ended_at is None:
        return None
    return job.ended_at - job.started_at

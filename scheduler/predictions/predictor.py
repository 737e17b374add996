"""The interface of predictors of run times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from scheduler.model.events import ResizePoint
from scheduler.model.job import Job
from scheduler.predictions.deadlines import DeadlineManagers


class Predictor:
    """Predicts run times (GUIM 4.4.1). A predictor may learn, so that each core has its own.

    The core calls the methods in this order: `submitted` and `predict` when a job is queued,
    `started`, `progressed` at each resize point, `missed` when the job has run as long as
    predicted, `ended`. A subclass must have `predict`; the other methods do nothing, and `missed`
    asks the deadline managers.

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
    #: Probabilities of the quantiles between which a run time is expected in nine of ten cases.
    INTERVAL: ClassVar[tuple[float, float]] = (0.05, 0.95)

    def submitted(self, job: Job) -> None:
        """Note that a job is being queued."""

    def started(self, job: Job) -> None:
        """Note that a job has started."""

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


def run_time_s(job: Job) -> float | None:
    """Run time of an ended job, s; None if it never ran."""
    if job.started_at is None or job.ended_at is None:
        return None
    return job.ended_at - job.started_at

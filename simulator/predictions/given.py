"""Estimates that are given for each job beforehand, such as its run time."""

from __future__ import annotations

import msgspec

from scheduler.model.job import Job
from scheduler.predictions.deadlines import DeadlineManagers
from scheduler.predictions.predictor import Predictor


class GivenEstimates(msgspec.Struct, frozen=True):
    """Estimates by job number.

    Parameters
    ----------
    predicted_s : prediction of job 1, 2, ..., s.
    deadlines : managers of missed predictions.
    """

    predicted_s: list[float]
    deadlines: DeadlineManagers = DeadlineManagers()

    def predictor(self) -> Predictor:
        """Create the predictor."""
        return _GivenPredictor(self)


class _GivenPredictor(Predictor):
    """Predictor that looks up the number of a job."""

    def __init__(self, source: GivenEstimates) -> None:
        self._predicted_s, self.deadlines = source.predicted_s, source.deadlines

    def predict(self, job: Job) -> float:
        """Return what is given for the job, s."""
        return self._predicted_s[job.id - 1]

"""Predictions for jobs that report their iterations."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.model.events import ResizePoint
from scheduler.model.job import Job
from scheduler.predictions.deadlines import DeadlineManagers
from scheduler.predictions.history import limited_s
from scheduler.predictions.hybrid import Simple, simple_predictor
from scheduler.predictions.predictor import Predictor


class Iterations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates by the remaining iterations times the measured iteration time.

    A job declares the number of its iterations by `app.iterations(total)`. At each of its resize
    points its estimate becomes the time since its start plus the remaining iterations times the
    iteration time on its present size (`History.predict_s`). Other jobs keep their predictions.

    Parameters
    ----------
    fallback : "user", "constant", "tsafrir" or "statistical", which predicts at submission.
    deadlines : managers of missed predictions.
    """

    fallback: Simple = "user"
    deadlines: DeadlineManagers = DeadlineManagers()

    def predictor(self) -> Predictor:
        """Create a predictor that has not learned yet."""
        return IterationPredictor(simple_predictor(self.fallback), self.deadlines)


class IterationPredictor(Predictor):
    """Predictor by remaining iterations.

    Parameters
    ----------
    first : predicts at submission.
    """

    def __init__(self, first: Predictor, deadlines: DeadlineManagers) -> None:
        self._first, self.deadlines = first, deadlines

    def predict(self, job: Job) -> float:
        """Return the prediction of the fallback, s."""
        return limited_s(self._first.predict(job))

    def progressed(self, job: Job, point: ResizePoint) -> float | None:
        """Return the run time by the remaining iterations, s; None if they are not declared."""
        if point.iterations <= 0 or job.started_at is None:
            return None
        history = job.recorded_history
        iteration_s = None if history is None else history.predict_s(job.size)
        if iteration_s is None:
            iteration_s = point.iteration_s
        remaining = max(0, point.iterations - point.iteration)
        return limited_s(point.at - job.started_at + remaining * iteration_s)

    def ended(self, job: Job) -> None:
        """Let the fallback learn."""
        self._first.ended(job)

    def learned(self) -> Any:
        """Return what the fallback has learned."""
        return self._first.learned()

    def relearn(self, learned: Any) -> None:
        """Let the fallback take over what it had learned."""
        self._first.relearn(learned)

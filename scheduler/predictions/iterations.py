"""Predictors with another one to begin with: until there is history, or iterations are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from reshape.errors import check_ranges
from scheduler.model.events import ResizePoint
from scheduler.model.job import Job
from scheduler.predictions.classification import Classification
from scheduler.predictions.estimates import Tsafrir, UserEstimates
from scheduler.predictions.history import HistoryPredictor, Statistical, limited_s
from scheduler.predictions.predictor import DeadlineManagers, Predictor, run_time_s

#: Predictors that need little or no history.
Simple: TypeAlias = Literal["user", "tsafrir", "statistical"]


class Hybrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates by a predictor that learns, and by a simpler one at first (GUIM 4.4.2).

    Parameters
    ----------
    primary : "classification" or "statistical", with its default parameters.
    fallback : "user", "tsafrir" or "statistical", used until `least_jobs` jobs have ended, and
        where the primary predictor has no forecast.
    least_jobs : ended jobs after which the primary predictor is used; >= 0.
    deadlines : managers of missed predictions.

    Raises
    ------
    ValueError : `least_jobs` is negative.
    """

    primary: Literal["classification", "statistical"] = "classification"
    fallback: Simple = "tsafrir"
    least_jobs: int = 500
    deadlines: DeadlineManagers = DeadlineManagers()

    def __post_init__(self) -> None:
        """Check the number of jobs."""
        check_ranges(self, least_jobs=">= 0")

    def predictor(self) -> Predictor:
        """Create a predictor that has not learned yet.

        Raises
        ------
        ConfigError : see `Classification.predictor`.
        """
        source = Classification() if self.primary == "classification" else Statistical()
        return HybridPredictor(self, source.predictor())


class HybridPredictor(HistoryPredictor):
    """Predictor that uses a primary predictor once there is enough history."""

    def __init__(self, parameters: Hybrid, primary: HistoryPredictor) -> None:
        self._primary, self._fallback = primary, simple_predictor(parameters.fallback)
        self._least, self.deadlines = parameters.least_jobs, parameters.deadlines
        self._ended = 0

    def forecast(self, job: Job) -> float | None:
        """Return the forecast of the primary predictor, else the prediction of the fallback, s."""
        forecast_s = self._primary.forecast(job) if self._ended >= self._least else None
        return limited_s(self._fallback.predict(job)) if forecast_s is None else forecast_s

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return the quantiles of the predictor that is used for the job, s."""
        if self._ended >= self._least and self._primary.forecast(job) is not None:
            return self._primary.quantiles(job, probabilities)
        return self._fallback.quantiles(job, probabilities)

    def ended(self, job: Job) -> None:
        """Let both predictors learn."""
        self._ended += run_time_s(job) is not None
        self._primary.ended(job)
        self._fallback.ended(job)

    def learned(self) -> dict[str, Any]:
        """Return what both predictors have learned."""
        return {
            "ended": self._ended,
            "primary": self._primary.learned(),
            "fallback": self._fallback.learned(),
        }

    def relearn(self, learned: Mapping[str, Any]) -> None:
        """Take over what `learned` returned."""
        self._ended = learned["ended"]
        self._primary.relearn(learned["primary"])
        self._fallback.relearn(learned["fallback"])


def simple_predictor(name: Simple) -> Predictor:
    """Create a predictor that needs little or no history, with its default parameters."""
    makers: dict[Simple, Callable[[], Predictor]] = {
        "user": UserEstimates,
        "tsafrir": Tsafrir().predictor,
        "statistical": Statistical().predictor,
    }
    return makers[name]()


class Iterations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates by the remaining iterations times the measured iteration time.

    A job declares the number of its iterations by `app.iterations(total)`. At each of its resize
    points its estimate becomes the time since its start plus the remaining iterations times the
    iteration time on its present size (`History.predict_s`). Other jobs keep their predictions.

    Parameters
    ----------
    fallback : "user", "tsafrir" or "statistical", which predicts at submission.
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

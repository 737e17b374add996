"""A predictor with a fallback until it has enough history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from scheduler.model.job import Job
from scheduler.predictions.classification import Classification
from scheduler.predictions.deadlines import DeadlineManagers
from scheduler.predictions.estimates import Constant, Tsafrir, UserPredictor
from scheduler.predictions.history import HistoryPredictor, limited_s
from scheduler.predictions.predictor import Predictor, run_time_s
from scheduler.predictions.statistical import Regression, Statistical

#: Predictors that need little or no history.
Simple: TypeAlias = Literal["user", "constant", "tsafrir", "statistical"]


class Hybrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates by a predictor that learns, and by a simpler one at first (GUIM 4.4.2).

    Parameters
    ----------
    primary : "classification", "regression" or "statistical", with its default parameters.
    fallback : "user", "constant", "tsafrir" or "statistical", used until `least_jobs` jobs have
        ended, and where the primary predictor has no forecast.
    least_jobs : ended jobs after which the primary predictor is used; >= 0.
    deadlines : managers of missed predictions.

    Raises
    ------
    ValueError : `least_jobs` is negative.
    """

    primary: Literal["classification", "regression", "statistical"] = "classification"
    fallback: Simple = "tsafrir"
    least_jobs: int = 500
    deadlines: DeadlineManagers = DeadlineManagers()

    def __post_init__(self) -> None:
        """Check the number of jobs."""
        if self.least_jobs < 0:
            raise ValueError(f"least_jobs must be >= 0, got {self.least_jobs}")

    def predictor(self) -> Predictor:
        """Create a predictor that has not learned yet.

        Raises
        ------
        ConfigError : see `Classification.predictor`.
        """
        sources = {
            "classification": Classification,
            "regression": Regression,
            "statistical": Statistical,
        }
        return HybridPredictor(self, sources[self.primary]().predictor())


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

    def submitted(self, job: Job) -> None:
        """Let both predictors note the job."""
        self._primary.submitted(job)
        self._fallback.submitted(job)

    def started(self, job: Job) -> None:
        """Let both predictors note the start."""
        self._primary.started(job)
        self._fallback.started(job)

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
        "user": UserPredictor,
        "constant": Constant().predictor,
        "tsafrir": Tsafrir().predictor,
        "statistical": Statistical().predictor,
    }
    return makers[name]()

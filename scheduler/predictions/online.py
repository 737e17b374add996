"""Predictions by an online regression with an asymmetric loss."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf, log
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import msgspec

from scheduler.model.job import Job
from scheduler.predictions.deadlines import DeadlineManagers
from scheduler.predictions.history import HistoryPredictor, limited_s, quantile
from scheduler.predictions.predictor import run_time_s
from scheduler.predictions.user_history import FEATURES, UserHistories
from scheduler.text.used_fields import Needs

#: Growth of the loss with the error.
Curve: TypeAlias = Literal["linear", "squared"]
#: Which jobs count more: all alike; those of large or small area (processors x run time); short
#: jobs of many processors; long jobs of few.
Weight: TypeAlias = Literal["constant", "large-area", "small-area", "short-wide", "long-narrow"]
#: Longest walltime in the features, s: 30 days.
LONGEST_S = 30 * 86400.0
#: Fewer ended jobs give no quantiles.
LEAST_RATIOS = 20


class Online(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates by a regression that learns from each ended job.

    Gaussier, Glesser, Reis and Trystram, Improving backfilling by using machine learning to predict
    running times, SC 2015: a polynomial of degree 2 in the features of `UserHistories`, fitted by
    normalised adaptive gradients. With the defaults the loss has the form of the paper's E-loss:
    squared for predictions that are too long, linear for those that are too short, and weighted by
    the logarithm of the area of the job. A prediction is at most the walltime.

    Parameters
    ----------
    over, under : growth of the loss with the error of predictions that are too long, too short:
        the error e, or e² / `unit_s`.
    unit_s : > 0, s. Half of it is the error at which both growths have the same slope. In the paper
        it is 1 s, with which nearly all predictions are too short.
    weight : which jobs count more.
    rate : learning rate; > 0. A step changes a prediction by about as many seconds at first.
    ridge : strength of the penalty on the squared weights of the normalised features; >= 0.
    degree : 1, or 2 with the products of two features.
    least_jobs : ended jobs from which on there are predictions; until then the user's estimate is
        the prediction.
    window : latest ended jobs whose ratios of run time to prediction give the quantiles.
    deadlines : managers of missed predictions.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    field_needs: ClassVar[Mapping[str, Needs]] = {
        "unit_s": Needs(
            lambda own: "squared" in (own.over, own.under), "with over or under squared"
        ),
    }
    over: Curve = "squared"
    under: Curve = "linear"
    weight: Weight = "large-area"
    unit_s: float = 600.0
    rate: float = 5000.0
    ridge: float = 0.0
    degree: Literal[1, 2] = 2
    least_jobs: int = 20
    window: int = 500
    deadlines: DeadlineManagers = DeadlineManagers()

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("unit_s", "rate"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be > 0 and finite, got {getattr(self, name)}")
        if not 0 <= self.ridge < inf:
            raise ValueError(f"ridge must be >= 0 and finite, got {self.ridge}")
        for name, least in (("least_jobs", 1), ("window", LEAST_RATIOS)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")

    def predictor(self) -> HistoryPredictor:
        """Create a predictor that has not learned yet."""
        from scheduler.predictions.gradients import NormalisedGradients  # late: it loads NumPy

        model = NormalisedGradients(len(FEATURES), self.degree, self.rate, self.ridge)
        return OnlinePredictor(self, model)


class OnlineModel(Protocol):
    """A regression that learns from one example at a time."""

    def predict(self, features: Sequence[float]) -> float:
        """Return the value of the model."""

    def learn(self, features: Sequence[float], slope: Callable[[float], float]) -> None:
        """Learn from an example; `slope` is the derivative of the loss by the prediction."""

    def learned(self) -> dict[str, Any]:
        """Return the state as data that JSON can hold."""

    def relearn(self, learned: Mapping[str, Any]) -> None:
        """Take over what `learned` returned."""


class OnlinePredictor(HistoryPredictor):
    """Predictor by an online regression over the features at submission."""

    beyond_walltime = False

    def __init__(self, parameters: Online, model: OnlineModel) -> None:
        self._parameters, self._model = parameters, model
        self.deadlines = parameters.deadlines
        self._users = UserHistories()
        self._features: dict[int, list[float]] = {}  # of jobs that have not ended
        self._ended = 0
        self._ratios: deque[float] = deque(maxlen=parameters.window)  # run time / prediction

    def submitted(self, job: Job) -> None:
        """Keep the features of a job until it ends."""
        self._features[job.id] = self._users.features(job, LONGEST_S)

    def started(self, job: Job) -> None:
        """Note that the user has a running job."""
        if job.started_at is not None:
            self._users.started(job, job.started_at)

    def forecast(self, job: Job) -> float | None:
        """Return the value of the regression, s, at most the walltime; None at first."""
        if self._ended < self._parameters.least_jobs:
            return None
        features = self._features.get(job.id) or self._users.features(job, LONGEST_S)
        return self._predicted_s(features, job)

    def predict(self, job: Job) -> float:
        """Return the forecast, or the walltime if there is none, s."""
        return min(super().predict(job), job.spec.walltime_s)

    def missed(self, job: Job) -> float:
        """Return the extended prediction, at most the walltime, s."""
        return min(self.deadlines.next_s(job), job.spec.walltime_s)

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return the forecast times quantiles of run time over forecast of the latest jobs, s."""
        forecast_s = self.forecast(job)
        if forecast_s is None or len(self._ratios) < LEAST_RATIOS:
            return None
        ratios = sorted(self._ratios)
        return [limited_s(limited_s(forecast_s) * quantile(ratios, p)) for p in probabilities]

    def ended(self, job: Job) -> None:
        """Learn from a job that has ended."""
        run_s, features = run_time_s(job), self._features.pop(job.id, None)
        self._users.ended(job, job.ended_at or 0.0, run_s)
        if run_s is None or features is None:
            return
        run_s = min(run_s, LONGEST_S)
        self._ratios.append(run_s / self._predicted_s(features, job))
        self._model.learn(features, self._slope(job, run_s))
        self._ended += 1

    def learned(self) -> dict[str, Any]:
        """Return the model, the histories of the users and the features of jobs not yet ended."""
        return {
            "model": self._model.learned(),
            "users": self._users.learned(),
            "features": {str(job): features for job, features in self._features.items()},
            "ended": self._ended,
            "ratios": list(self._ratios),
        }

    def relearn(self, learned: Mapping[str, Any]) -> None:
        """Take over what `learned` returned."""
        self._model.relearn(learned["model"])
        self._users.relearn(learned["users"])
        self._features = {int(job): list(each) for job, each in learned["features"].items()}
        self._ended = learned["ended"]
        self._ratios = deque(learned["ratios"], maxlen=self._parameters.window)

    def _predicted_s(self, features: Sequence[float], job: Job) -> float:
        return min(limited_s(self._model.predict(features)), max(job.spec.walltime_s, 1.0))

    def _slope(self, job: Job, run_s: float) -> Callable[[float], float]:
        """Derivative of the loss of a job by its prediction."""
        weight = weight_of(self._parameters.weight, job.spec.processors, run_s)
        over, under = self._parameters.over, self._parameters.under
        unit_s = self._parameters.unit_s

        def slope(predicted_s: float) -> float:
            error = predicted_s - run_s
            curve = over if error > 0 else under
            return weight * (
                2 * error / unit_s if curve == "squared" else (error > 0) - (error < 0)
            )

        return slope


def weight_of(weight: Weight, processors: int, run_s: float) -> float:
    """Weight of a job in the loss (Gaussier et al., table 3), at least a small positive number."""
    size, run_s = float(processors), max(run_s, 1.0)
    weights = {
        "constant": 1.0,
        "large-area": log(size * run_s),
        "small-area": 11 - log(size * run_s),
        "short-wide": 5 + log(size / run_s),
        "long-narrow": 5 + log(run_s / size),
    }
    return max(weights[weight], 0.01)

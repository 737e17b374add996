"""Estimates of run times: the users' walltimes, or the predictions of a predictor.

Backfilling uses estimates. A prediction may exceed the walltime, and a missed prediction is
extended; only the walltime is a limit, if the core ends jobs at their walltimes.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from reshape.errors import check_ranges
from scheduler.model.job import Job
from scheduler.predictions.predictor import LatestRuns, Predictor

__all__ = ["Estimates", "Predictor", "Tsafrir", "UserEstimates"]


class Estimates(Protocol):
    """Source of estimates: a class with typed parameters, registered under a name."""

    def predictor(self) -> Predictor | None:
        """Create a predictor that has not learned yet; None if walltimes are the estimates."""


class UserEstimates(Predictor, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates that are the users' walltimes; a predictor of them, to compare and to combine."""

    def predictor(self) -> None:
        """Return None: a core needs no predictor for them."""
        return None

    def predict(self, job: Job) -> float:
        """Return the walltime, s."""
        return job.spec.walltime_s


class Tsafrir(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates that are the mean of the last run times of the same user.

    Tsafrir, Etsion and Feitelson, Backfilling using system-generated predictions rather than user
    runtime estimates, IEEE TPDS 18(6), 2007: EASY++ together with shortest job backfilled first.

    Parameters
    ----------
    window : number of the user's latest ended jobs whose mean is taken (rounded down to seconds);
        until this many have ended the walltime is the estimate.
    corrections : seconds added to the first prediction when the job exceeds its estimate for the
        first, second, ... time; after the last one the walltime is the estimate.

    Raises
    ------
    ValueError : `window` is not from 1 to 1e9, or `corrections` do not ascend from above 0.
    """

    window: int = 2
    corrections: tuple[float, ...] = (
        60, 300, 900, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_ranges(self, window=">= 1 and <= 1e9")
        before = 0.0
        for correction in self.corrections:
            if not correction > before:
                raise ValueError(f"corrections must ascend from above 0, got {self.corrections}")
            before = correction

    def predictor(self) -> Predictor:
        """Create a predictor that has not learned yet."""
        return _UserMeans(self)


class _UserMeans(LatestRuns):
    """Predictor by the last run times of each user; no prediction exceeds the walltime."""

    beyond_walltime = False

    def __init__(self, parameters: Tsafrir) -> None:
        super().__init__(parameters.window, "user")
        self._parameters = parameters

    def predict(self, job: Job) -> float:
        runs = self.runs_of(job)
        if len(runs) < self._parameters.window:
            return job.spec.walltime_s
        return min(float(sum(runs) // len(runs)), job.spec.walltime_s)

    def missed(self, job: Job) -> float:
        corrections, walltime_s = self._parameters.corrections, job.walltime_s
        if job.misses > len(corrections):
            return walltime_s
        predicted_s = job.first_estimate_s + corrections[job.misses - 1]
        if walltime_s != job.spec.walltime_s:  # an adaptive start prolonged it and the estimate
            predicted_s *= walltime_s / job.spec.walltime_s
        return min(predicted_s, walltime_s)

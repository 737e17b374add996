"""How long jobs are expected to run: as their users say, or as a predictor finds.

Backfilling decides by estimates. Whatever they are, the walltime stays the limit: an estimate never
exceeds it, and a prediction that runs out before the job ends is corrected, until the walltime.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from scheduler.model.job import Job


class Predictor(Protocol):
    """What a core asks; it may learn, so each core has one of its own."""

    def estimate(self, job: Job) -> float:
        """Run time, in seconds, to expect of a job that is being submitted: <= its walltime."""

    def corrected(self, job: Job) -> float:
        """Run time to expect of a job that outlived its estimate for the `job.misses`-th time.

        More than the estimate was, <= the walltime.
        """

    def ended(self, job: Job) -> None:
        """Learn from a job that ended."""


class Estimates(Protocol):
    """Where estimates come from: a class with typed parameters, registered under a name."""

    def predictor(self) -> Predictor | None:
        """Give a predictor that has learned nothing yet; None: walltimes are the estimates."""


class UserEstimates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The users' walltimes."""

    def predictor(self) -> None:
        """Give none."""
        return None


class Tsafrir(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mean of the last run times of the same user.

    Tsafrir, Etsion and Feitelson, Backfilling using system-generated predictions rather than user
    runtime estimates, IEEE TPDS 18(6), 2007: EASY++ together with shortest job backfilled first.

    Parameters
    ----------
    window : jobs of the user that must have ended before, and whose mean is taken (whole seconds,
        rounded down); before that the walltime is the estimate.
    corrections : what is added to the first prediction when it runs out for the first, second ...
        time, seconds; after the last the walltime is the estimate.

    Raises
    ------
    ValueError : no window, or corrections that do not ascend from above 0.
    """

    window: int = 2
    corrections: tuple[float, ...] = (
        60, 300, 900, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.window < 1:
            raise ValueError(f"window must be >= 1, got {self.window}")
        before = 0.0
        for correction in self.corrections:
            if not correction > before:
                raise ValueError(f"corrections must ascend from above 0, got {self.corrections}")
            before = correction

    def predictor(self) -> Predictor:
        """Give a predictor that has learned nothing yet."""
        return _UserMeans(self)


class _UserMeans:
    """The last run times of each user."""

    def __init__(self, parameters: Tsafrir) -> None:
        self._parameters = parameters
        self._runs: dict[str, deque[float]] = {}

    def estimate(self, job: Job) -> float:
        runs = self._runs.get(job.spec.user, ())
        if len(runs) < self._parameters.window:
            return job.spec.walltime_s
        return min(float(sum(runs) // len(runs)), job.spec.walltime_s)

    def corrected(self, job: Job) -> float:
        corrections, walltime_s = self._parameters.corrections, job.spec.walltime_s
        if job.misses > len(corrections):
            return walltime_s
        return min(job.first_estimate_s + corrections[job.misses - 1], walltime_s)

    def ended(self, job: Job) -> None:
        if job.started_at is not None and job.ended_at is not None:
            runs = self._runs.setdefault(job.spec.user, deque(maxlen=self._parameters.window))
            runs.append(job.ended_at - job.started_at)

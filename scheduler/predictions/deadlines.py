"""Deadline managers: the next prediction for a job that ran longer than predicted.

GUIM (Guim, Job-guided scheduling strategies for multi-site HPC infrastructures) 4.4.3. A missed
prediction never ends a job; a deadline manager extends the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf, nextafter
from typing import ClassVar, Literal

import msgspec

from scheduler.model.job import Job
from scheduler.text.used_fields import Needs

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
        if not 1 < self.power < inf:
            raise ValueError(f"power must be > 1 and finite, got {self.power}")

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

"""Predictions with errors of a chosen kind: the fake predictor of GUIM, chapter 5.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 5.5. A prediction is
the run time with a drawn error. Which jobs are predicted almost exactly, within 5 %, is the
category; bounds on run time, processors and area (their product) say which jobs are short, large
and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.model.job import Job
from scheduler.predictions.predictor import DeadlineManagers, Predictor

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

#: Categories of jobs that are predicted almost exactly, in the order of 5.5.1; the others have the
#: error. "pure-equal": no job; "equal": half of the jobs, drawn.
Quantitative: TypeAlias = Literal[
    "high-processors", "low-processors", "large", "short", "high-area", "low-area",
    "more-executed", "low-processors-and-short", "not-small", "pure-equal", "equal",
]  # fmt: skip
QUANTITATIVE: Final = get_args(Quantitative)
#: Kinds of jobs whose nature a prediction changes, 5.5.2; "both" is short2large and large2short.
Qualitative: TypeAlias = Literal["short2large", "large2short", "both"]
QUALITATIVE: Final = get_args(Qualitative)
#: An almost exact prediction exceeds the run time by at most this share.
ALMOST: Final = 0.05
#: Applications with more jobs than this are "more executed".
MANY: Final = 50
#: Lower bound over upper bound. The text has 0.05; 0.04 gives the numbers of table 5.1.
LOWER_SHARE: Final = 0.04


def bounds_of(values: Floats) -> tuple[float, float]:
    """Lower and upper bound: half of the 95th percentile, and a share of that (5.5.1)."""
    upper = float(np.percentile(values, 95)) / 2
    return LOWER_SHARE * upper, upper


def job_bounds(run_s: Floats, processors: Floats) -> dict[str, tuple[float, float]]:
    """Bounds of "run" (s), "processors" and "area", their product, from jobs; (n,) float64 each."""
    variables = {"run": run_s, "processors": processors, "area": run_s * processors}
    return {name: bounds_of(values) for name, values in variables.items()}


class FakePredictor(msgspec.Struct, frozen=True):
    """Draws predictions for jobs whose run times are known.

    The same seed gives the same draws for every category and error, so that two results differ by
    these only.

    Parameters
    ----------
    run_s : (n,) float64, run times, > 0.
    processors : (n,) float64.
    executables : (n,) int64, negative where the application is not known.
    bounds : lower and upper one of the categories, by "run", "processors" and "area".
    seed : of the draws.
    """

    run_s: Floats
    processors: Floats
    executables: NDArray[np.int64]
    bounds: Mapping[str, tuple[float, float]]
    seed: int

    def quantitative(self, category: Quantitative, error_pct: float, deviation: float) -> Floats:
        """Predictions with a relative error in all jobs outside the category (5.5.1).

        Parameters
        ----------
        error_pct, deviation : mean and standard deviation of E. The prediction is uniform between
            max(1, r - r E / 100) and r + r E / 100 for a run time of r.

        Returns
        -------
        (n,) float64, s

        Raises
        ------
        ValueError : the category is unknown.
        """
        rng = np.random.default_rng(self.seed)
        almost, half = self._almost_exact(rng), rng.random(len(self.run_s)) < 0.5
        errors = np.maximum(rng.normal(error_pct, deviation, len(self.run_s)), 0.0) / 100
        most = self.run_s * (1 + errors)
        least = np.minimum(np.maximum(1.0, self.run_s * (1 - errors)), most)
        drawn = least + (most - least) * rng.random(len(self.run_s))
        exact = half if category == "equal" else self.members(category)
        return np.where(exact, almost, drawn)

    def qualitative(self, conversion: Qualitative, percentage: float, deviation: float) -> Floats:
        """Predictions that take short jobs for large ones, or the reverse (5.5.2).

        Parameters
        ----------
        percentage, deviation : a job of the kind is converted if a number drawn from 0 to 100 is at
            most N(percentage, deviation).

        Returns
        -------
        (n,) float64, s

        Raises
        ------
        ValueError : the conversion is unknown.
        """
        if conversion not in QUALITATIVE:
            raise ValueError(f"must be one of {', '.join(QUALITATIVE)}, got {conversion!r}")
        rng = np.random.default_rng(self.seed)
        almost, n = self._almost_exact(rng), len(self.run_s)
        converted = 100 * rng.random(n) <= rng.normal(percentage, deviation, n)
        lower, upper = self.bounds["run"]
        shortened = self.run_s - upper
        shortened = np.where(shortened > lower, lower - 1, shortened)
        predicted = almost
        if conversion != "large2short":
            predicted = np.where(converted & self.members("short"), self.run_s + upper, predicted)
        if conversion != "short2large":
            short = np.maximum(shortened, 1.0)
            predicted = np.where(converted & self.members("large"), short, predicted)
        return predicted

    def members(self, category: Quantitative) -> Bools:
        """Whether each job belongs to a category other than "equal", (n,) bool.

        Raises
        ------
        ValueError : the category is unknown or has drawn members.
        """
        run, sizes, area = self.run_s, self.processors, self.run_s * self.processors
        (short, large), (few, many), (small, vast) = (
            self.bounds[name] for name in ("run", "processors", "area")
        )
        members: dict[str, Bools] = {
            "high-processors": sizes > many,
            "low-processors": sizes < few,
            "large": run > large,
            "short": run < short,
            "high-area": area > vast,
            "low-area": area < small,
            "more-executed": self._often_executed(),
            "not-small": (run > short) | (sizes > few),
            "pure-equal": np.zeros(len(run), np.bool_),
        }
        members["low-processors-and-short"] = members["short"] & members["low-processors"]
        if category not in members:
            raise ValueError(f"must be one of {', '.join(members)}, got {category!r}")
        return members[category]

    def _often_executed(self) -> Bools:
        executables, of_job, counts = np.unique(
            self.executables, return_inverse=True, return_counts=True
        )
        often: Bools = ((counts > MANY) & (executables >= 0))[of_job]
        return often

    def _almost_exact(self, rng: np.random.Generator) -> Floats:
        return self.run_s * (1 + ALMOST * rng.random(len(self.run_s)))


class GivenEstimates(Predictor, msgspec.Struct, frozen=True):
    """Estimates by job number.

    Parameters
    ----------
    predicted_s : prediction of job 1, 2, ..., s.
    deadlines : managers of missed predictions.
    """

    predicted_s: list[float]
    deadlines: DeadlineManagers = Predictor.deadlines

    def predictor(self) -> Predictor:
        """Return itself: there is nothing to learn."""
        return self

    def predict(self, job: Job) -> float:
        """Return the prediction of the job's number, s."""
        return self.predicted_s[job.id - 1]

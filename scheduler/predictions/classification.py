"""Predictions by classification: history of features and run times, and when models are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reshape.errors import ConfigError, check_ranges, nearest
from scheduler.model.job import Job
from scheduler.predictions.history import HistoryPredictor
from scheduler.predictions.predictor import DeadlineManagers, run_time_s

if TYPE_CHECKING:
    from scheduler.predictions.trees import ClassificationTree

#: Features of a job: numbers, and labels, which are numbered in the order of their appearance.
NUMBERS = ("number", "submitted", "processors", "requested_time", "memory")
LABELS = ("user", "group", "executable", "queue")


class Classification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimates by a classification tree over intervals of run times (GUIM 8.6.1).

    The run times of the ended jobs are divided into intervals. A tree predicts the interval of a
    job from what is known at its submission. The prediction is the upper bound of the interval; for
    the last one, which has none, it is the lower bound. Until there is a model, the prediction is
    the user's estimate.

    Parameters
    ----------
    tree : "id3": a full tree over features that are divided into intervals, too; "c45": a tree
        that finds thresholds of the features itself, with at least two jobs in a leaf.
    discretiser : intervals of "equal-width" or of "equal-frequency". GUIM takes "id3" with
        "equal-width"; as most run times are short, their upper bound is then far too long.
    most_bins : largest number of intervals; the number is chosen by the leave-one-out estimate of
        the entropy.
    rebuild_every : ended jobs after which the model is built again (GUIM: K = 100).
    history : latest ended jobs that a model is built from.
    features : of "number", "submitted", "processors", "requested_time", "memory", "user", "group",
        "executable" and "queue".
    deadlines : managers of missed predictions.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    tree: Literal["id3", "c45"] = "c45"
    discretiser: Literal["equal-width", "equal-frequency"] = "equal-frequency"
    most_bins: int = 10
    rebuild_every: int = 100
    history: int = 2000
    features: tuple[str, ...] = (*NUMBERS, "user", "group", "executable")
    deadlines: DeadlineManagers = DeadlineManagers()

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_ranges(self, most_bins=">= 2", rebuild_every=">= 1", history=">= 2")
        if not self.features:
            raise ValueError("features must name at least one")
        for feature in self.features:
            if feature not in NUMBERS + LABELS:
                offered = nearest(feature, NUMBERS + LABELS)
                raise ValueError(f"unknown feature {feature!r}{offered}")

    def predictor(self) -> HistoryPredictor:
        """Create a predictor that has not learned yet.

        Raises
        ------
        ConfigError : scikit-learn is not installed.
        """
        try:
            import sklearn.tree  # type: ignore[import-untyped]  # noqa: F401 - is it there?
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "sklearn":
                raise
            raise ConfigError(
                "the predictor classification needs scikit-learn;"
                " install it with pip install 'reshape-mpi[predict]'",
                field="estimates",
            ) from None
        return ClassificationPredictor(self)


#: Larger values do not fit into the float32 of a tree.
_LARGEST = 1e30


class ClassificationPredictor(HistoryPredictor):
    """Predictor by a classification tree that is built again after some ended jobs."""

    def __init__(self, parameters: Classification) -> None:
        self._parameters, self.deadlines = parameters, parameters.deadlines
        self._rows: list[list[float]] = []  # features and run time (s) of ended jobs
        self._modelled = 0  # rows from which the model was built
        self._codes: dict[str, dict[str, int]] = {
            name: {} for name in parameters.features if name in LABELS
        }
        self._model: ClassificationTree | None = None

    def forecast(self, job: Job) -> float | None:
        """Return the bound of the interval that the tree predicts, s; None without a model."""
        if self._model is None:
            return None
        return self._model.predict(self._features(job, learn=False))

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return quantiles of the shares of the intervals in the leaf of the job, s."""
        if self._model is None:
            return None
        return self._model.quantiles(self._features(job, learn=False), probabilities)

    def ended(self, job: Job) -> None:
        """Add a job to the history, and build the model again when that is due."""
        run_s = run_time_s(job)
        if run_s is None:
            return
        self._rows.append([*self._features(job, learn=True), run_s])
        if len(self._rows) - self._modelled >= self._parameters.rebuild_every:
            del self._rows[: -self._parameters.history]
            self._build(len(self._rows))

    def learned(self) -> dict[str, Any]:
        """Return the history and the numbers of the labels."""
        return {"rows": self._rows, "modelled": self._modelled, "labels": self._codes}

    def relearn(self, learned: Mapping[str, Any]) -> None:
        """Take over what `learned` returned, and build its model."""
        self._rows = [list(map(float, row)) for row in learned["rows"]]
        self._codes = {name: dict(codes) for name, codes in learned["labels"].items()}
        self._build(learned["modelled"])

    def _build(self, count: int) -> None:
        self._modelled = count
        own = self._parameters
        if count:
            from scheduler.predictions.trees import tree_model  # late: it needs NumPy

            self._model = tree_model(self._rows[:count], own.tree, own.discretiser, own.most_bins)

    def _features(self, job: Job, learn: bool) -> list[float]:
        """Return the features of a job; an unknown label has the next number."""
        spec = job.spec
        values: dict[str, float] = {
            "number": job.id,
            "submitted": job.submitted_at,
            "processors": spec.processors,
            "requested_time": min(spec.walltime_s, _LARGEST),
            "memory": spec.memory_kib or spec.resources.get("memory", 0),
        }
        for name, codes in self._codes.items():
            label = getattr(spec, name)
            values[name] = (
                codes.setdefault(label, len(codes)) if learn else codes.get(label, len(codes))
            )
        return [float(values[name]) for name in self._parameters.features]

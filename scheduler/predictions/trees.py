"""Classification trees, and the intervals into which their inputs are divided.

The leave-one-out entropy chooses the number of intervals. Trees are built by scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.predictions.history import limited_s

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier  # type: ignore[import-untyped]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Discretiser: TypeAlias = Literal["equal-width", "equal-frequency"]


def cut_points(values: Floats, discretiser: Discretiser, most_bins: int) -> Floats:
    """Choose the bounds between intervals of the values.

    Of 1, 2, ... `most_bins` intervals those of the least leave-one-out estimate of the entropy are
    taken (`entropy`), as in Weka's discretiser. An interval contains its upper bound.

    Parameters
    ----------
    values : (n,) float64, finite.
    discretiser : "equal-width" or "equal-frequency"; equal bounds count once.

    Returns
    -------
    (k,) float64, ascending; the first interval begins at minus infinity, the last ends at infinity.
    """
    none: Floats = np.empty(0)
    if not len(values):
        return none
    low, high = float(values.min()), float(values.max())
    if not low < high:
        return none
    best, least = none, entropy(values, none)
    for bins in range(2, most_bins + 1):
        if discretiser == "equal-width":
            cuts = low + (high - low) / bins * np.arange(1.0, bins)
        else:
            cuts = np.quantile(values, np.arange(1, bins) / bins).astype(np.float64)
        cuts = np.unique(cuts[(cuts >= low) & (cuts < high)]).astype(np.float64)
        here = entropy(values, cuts)
        if here < least:
            best, least = cuts, here
    return best


def entropy(values: Floats, cuts: Floats) -> float:
    """Leave-one-out estimate of the entropy of a histogram.

    The density at a value is estimated from all other values: (n_k - 1) / width_k in an interval
    of n_k values. The result is the sum of its negative logarithms, up to a constant; infinity if
    an interval has fewer than two values.
    """
    counts = np.bincount(interval(values, cuts), minlength=len(cuts) + 1)
    if counts.min() < 2:
        return float("inf")
    widths = np.diff(np.concatenate([[values.min()], cuts, [values.max()]]))
    if widths.min() <= 0:
        return float("inf")
    return float(-(counts * (np.log(counts - 1) - np.log(widths))).sum())


def interval(values: Floats, cuts: Floats) -> Ints:
    """Number of the interval of each value, (n,) int64 from 0."""
    return np.searchsorted(cuts, values, side="left").astype(np.int64)


def tree_model(
    rows: list[list[float]], kind: Literal["id3", "c45"], discretiser: Discretiser, most_bins: int
) -> ClassificationTree | None:
    """Build a model; None if the run times form one interval.

    Parameters
    ----------
    rows : features of each job, then its run time, s.
    kind, discretiser, most_bins : see `Classification`.
    """
    from sklearn.tree import DecisionTreeClassifier  # late: it takes more than a second

    table = np.array(rows)
    features, run_s = table[:, :-1], table[:, -1]
    cuts = cut_points(run_s, discretiser, most_bins)
    if not len(cuts):
        return None
    feature_cuts = None
    if kind == "id3":
        feature_cuts = [cut_points(column, discretiser, most_bins) for column in features.T]
        features = _discretised(features, feature_cuts)
    tree = DecisionTreeClassifier(
        criterion="entropy", min_samples_leaf=2 if feature_cuts is None else 1, random_state=0
    )
    tree.fit(features, interval(run_s, cuts))
    edges = np.concatenate([[run_s.min()], cuts, [run_s.max()]])
    return ClassificationTree(tree, edges, feature_cuts)


class ClassificationTree:
    """A tree and the bounds of the intervals that it predicts.

    Parameters
    ----------
    edges : (k + 1,) bounds of the k intervals of run times, with the least and the largest one, s.
    feature_cuts : bounds between the intervals of each feature; None if the tree has thresholds.
    """

    def __init__(
        self, tree: DecisionTreeClassifier, edges: Floats, feature_cuts: list[Floats] | None
    ) -> None:
        self._edges, self._feature_cuts = edges, feature_cuts
        self._nodes, self._classes = tree.tree_, tree.classes_.tolist()

    def predict(self, features: list[float]) -> float:
        """Return the bound of the most probable interval, s."""
        shares = self._shares(features)
        return self._bound(self._classes[int(np.argmax(shares))])

    def quantiles(self, features: list[float], probabilities: Sequence[float]) -> list[float]:
        """Return quantiles, linear within the intervals, s."""
        shares = np.zeros(len(self._edges) - 1)
        shares[self._classes] = self._shares(features)
        below = np.concatenate([[0.0], np.cumsum(shares)])
        values: list[float] = np.interp(probabilities, below, self._edges).tolist()
        return [limited_s(value) for value in values]

    def _shares(self, features: list[float]) -> Floats:
        """Shares of the intervals in the leaf of a job, (classes,) float64."""
        row = np.array([features])
        if self._feature_cuts is not None:
            row = _discretised(row, self._feature_cuts)
        shares: Floats = self._nodes.predict(row.astype(np.float32)).reshape(-1)
        shares /= shares.sum()
        return shares

    def _bound(self, number: int) -> float:
        """Upper bound of an interval, s; the lower bound of the last one."""
        return limited_s(float(self._edges[min(number + 1, len(self._edges) - 2)]))


def _discretised(features: Floats, cuts: list[Floats]) -> Floats:
    """Numbers of the intervals of features, (n, features) float64."""
    columns = [interval(column, each) for column, each in zip(features.T, cuts, strict=True)]
    return np.stack(columns, axis=1).astype(np.float64)

"""Classification trees; this module needs scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.tree import DecisionTreeClassifier  # type: ignore[import-untyped]

from scheduler.predictions.discretise import Division, Floats, cut_points, interval
from scheduler.predictions.history import limited_s


def tree_model(
    rows: list[list[float]], kind: Literal["id3", "c45"], division: Division, most_bins: int
) -> ClassificationTree | None:
    """Build a model; None if the run times form one interval.

    Parameters
    ----------
    rows : features of each job, then its run time, s.
    kind, division, most_bins : see `Classification`.
    """
    table = np.array(rows)
    features, run_s = table[:, :-1], table[:, -1]
    cuts = cut_points(run_s, division, most_bins)
    if not len(cuts):
        return None
    feature_cuts = None
    if kind == "id3":
        feature_cuts = [cut_points(column, division, most_bins) for column in features.T]
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

"""Online linear regression by normalised adaptive gradients.

Ross, Mineiro and Langford, Normalized online learning, UAI 2013 (algorithm NAG): the steps do not
depend on the scales of the features, which need not be known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class NormalisedGradients:
    """A polynomial whose weights follow the gradient of the loss of each example.

    Parameters
    ----------
    features : number of features, without the constant.
    degree : 1, or 2 with the products of each two features and the squares.
    rate : learning rate, > 0.
    ridge : derivative of the penalty by a weight, for features scaled to at most 1; >= 0.
    """

    def __init__(self, features: int, degree: int, rate: float, ridge: float) -> None:
        self._degree, self._rate, self._ridge = degree, rate, ridge
        self._pairs = np.triu_indices(features)
        n = 1 + features + (len(self._pairs[0]) if degree == 2 else 0)
        self._weights = np.zeros(n)
        self._scales = np.zeros(n)  # largest magnitude of each feature
        self._squares = np.zeros(n)  # sum of the squared gradients
        self._size, self._examples = 0.0, 0  # sum of squared normalised features; examples

    def predict(self, features: Sequence[float]) -> float:
        """Return the value of the polynomial."""
        return float(self._weights @ self._expanded(features))

    def learn(self, features: Sequence[float], slope: Callable[[float], float]) -> None:
        """Make a step against the gradient of the loss of one example.

        Parameters
        ----------
        slope : derivative of the loss by the prediction.
        """
        x = self._expanded(features)
        magnitudes = np.abs(x)
        larger = magnitudes > self._scales
        self._weights[larger] *= self._scales[larger] / magnitudes[larger]
        self._scales[larger] = magnitudes[larger]
        seen = self._scales > 0
        self._examples += 1
        self._size += float(((x[seen] / self._scales[seen]) ** 2).sum())
        gradient = slope(float(self._weights @ x)) * x
        if self._ridge:
            gradient = gradient + self._ridge * self._weights * self._scales**2
        self._squares += gradient**2
        sizes = self._scales * np.sqrt(self._squares)
        moved = sizes > 0  # not if the product of tiny numbers underflows
        step = self._rate * np.sqrt(self._examples / self._size)
        self._weights[moved] -= step * gradient[moved] / sizes[moved]

    def learned(self) -> dict[str, Any]:
        """Return the state as data that JSON can hold."""
        return {
            "weights": self._weights.tolist(),
            "scales": self._scales.tolist(),
            "squares": self._squares.tolist(),
            "size": self._size,
            "examples": self._examples,
        }

    def relearn(self, learned: Mapping[str, Any]) -> None:
        """Take over what `learned` returned."""
        self._weights, self._scales, self._squares = (
            np.array(learned[name], dtype=np.float64) for name in ("weights", "scales", "squares")
        )
        self._size, self._examples = learned["size"], learned["examples"]

    def _expanded(self, features: Sequence[float]) -> NDArray[np.float64]:
        """Constant, features and, for degree 2, their products, (n,) float64."""
        x = np.array(features, dtype=np.float64)
        if self._degree == 1:
            return np.concatenate([[1.0], x])
        rows, columns = self._pairs
        return np.concatenate([[1.0], x, x[rows] * x[columns]])

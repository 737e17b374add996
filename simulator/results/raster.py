"""Any number of rectangles as an image that shows how much of each pixel they cover."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


def blend(
    boxes: Floats, colours: Floats, shape: tuple[int, int], ground: tuple[float, float, float]
) -> Floats:
    """Paint rectangles that do not overlap; a pixel is the mean of what covers it.

    A rectangle is the sum of four quadrants, one from each corner, and a quadrant is a step along
    either axis. So each rectangle adds a few numbers around its corners, and sums along both axes
    turn them into areas: the cost is linear in rectangles plus pixels.

    Parameters
    ----------
    boxes : (n, 4) left, low, right, high in pixels, within the image.
    colours : (n, 3) red, green, blue from 0 to 1.
    shape : rows, columns; row 0 is the lowest.
    ground : colour of uncovered pixels.

    Returns
    -------
    (rows, columns, 3) float64 from 0 to 1
    """
    rows, columns = shape
    across = rows + 2, columns + 2
    # What a rectangle adds to the ground: its colour, minus the ground it hides.
    weights = colours - np.asarray(ground)
    image = np.empty((rows, columns, 3))
    corners = [
        (side * level, *_split(boxes[:, x]), *_split(boxes[:, y]))
        for x, side in ((0, 1.0), (2, -1.0))
        for y, level in ((1, 1.0), (3, -1.0))
    ]
    for channel in range(3):
        total = np.zeros(across[0] * across[1])
        for sign, column, right, row, upper in corners:
            for dx, share_x in ((0, 1 - right), (1, right)):
                for dy, share_y in ((0, 1 - upper), (1, upper)):
                    index = (row + dy) * across[1] + column + dx
                    amount = sign * share_x * share_y * weights[:, channel]
                    total += np.bincount(index, weights=amount, minlength=len(total))
        areas = np.cumsum(np.cumsum(total.reshape(across), axis=0), axis=1)
        image[:, :, channel] = areas[:rows, :columns] + ground[channel]
    return np.clip(image, 0.0, 1.0)


def _split(values: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Whole and broken part."""
    whole = np.floor(values)
    return whole.astype(np.int64), values - whole

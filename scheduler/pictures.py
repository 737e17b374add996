"""What all pictures share: colours, layout, and encoding as PNG or SVG.

matplotlib is imported when something is drawn, because `steps` also serves what draws nothing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#22262b"
GROUND = "#f7f7f5"
WAITING = "#8d6a9f"
DPI = 150
#: File formats, each with the metadata to omit because it differs between runs.
FORMATS: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}}


def new_figure(height: float, title: str) -> Figure:
    """Create an empty figure, 11 inches wide and `height` inches high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, fontweight="bold", color=INK)
    return figure


def reduce_frame(axes: Axes) -> None:
    """Remove the upper and right border, and shorten the ticks."""
    axes.tick_params(length=2)
    axes.spines[["top", "right"]].set_visible(False)


def encode(figure: Figure, form: str) -> bytes:
    """Encode a figure as "png" or "svg"; equal figures give equal bytes."""
    import matplotlib

    data = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "reshape"}):  # makes element names reproducible
        figure.savefig(data, format=form, dpi=DPI, metadata=FORMATS[form])
    return data.getvalue()


def encode_all(figures: Mapping[str, Figure]) -> dict[str, bytes]:
    """Encode figures in all `FORMATS`, by file name."""
    return {
        f"{name}.{form}": encode(figure, form)
        for name, figure in figures.items()
        for form in FORMATS
    }


def steps(times: ArrayLike, changes: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum the changes of a quantity that is 0 before the first change.

    Parameters
    ----------
    times : (n,) float64, times of the changes, in any order.
    changes : (n,) float64, amount of each change.

    Returns
    -------
    times : (m,) float64, distinct, in ascending order.
    values : (m,) float64, the quantity from each of these times on.
    """
    moments, which = np.unique(np.asarray(times, dtype=np.float64), return_inverse=True)
    amounts = np.asarray(changes, dtype=np.float64)
    return moments, np.cumsum(np.bincount(which, weights=amounts, minlength=len(moments)))


def covered(
    boxes: NDArray[np.float64], amounts: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Sum what rectangles add to pixels: an amount each, times the share of the pixel they cover.

    A rectangle is the sum of four quadrants, one from each corner, and a quadrant is a step along
    either axis. So each rectangle adds a few numbers around its corners, and sums along both axes
    turn them into areas: the cost is linear in rectangles plus pixels.

    Parameters
    ----------
    boxes : (n, 4) left, low, right, high in pixels, within the image.
    amounts : (n,)
    shape : rows, columns; row 0 is the lowest.

    Returns
    -------
    (rows, columns) float64
    """
    rows, columns = shape
    across = rows + 2, columns + 2
    total = np.zeros(across[0] * across[1])
    left, low, right_end, high = (_split(boxes[:, axis]) for axis in range(4))
    for (column, right), side in ((left, 1.0), (right_end, -1.0)):
        for (row, upper), level in ((low, 1.0), (high, -1.0)):
            for dx, share_x in ((0, 1 - right), (1, right)):
                for dy, share_y in ((0, 1 - upper), (1, upper)):
                    index = (row + dy) * across[1] + column + dx
                    amount = side * level * share_x * share_y * amounts
                    total += np.bincount(index, weights=amount, minlength=len(total))
    areas = np.cumsum(np.cumsum(total.reshape(across), axis=0), axis=1)
    return areas[:rows, :columns]


def _split(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Whole and broken part."""
    whole = np.floor(values)
    return whole.astype(np.int64), values - whole

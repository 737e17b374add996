"""What all pictures share: colours, layout, and encoding as PNG or SVG.

matplotlib is imported when something is drawn, because `Series` also serves what draws nothing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats: TypeAlias = NDArray[np.float64]
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


class Series(NamedTuple):
    """A quantity that changes in steps; 0 before the first.

    Parameters
    ----------
    times : (m,) distinct, ascending, seconds.
    values : (m,) from each time on.
    """

    times: Floats
    values: Floats

    @classmethod
    def of(cls, begins: Floats, ends: Floats, amounts: Floats) -> Series:
        """Sum amounts, each from a begin to an end; (n,) each, in any order."""
        times = np.concatenate([begins, ends])
        moments, which = np.unique(times, return_inverse=True)
        changes = np.concatenate([amounts, -amounts])
        return cls(moments, np.cumsum(np.bincount(which, changes, len(moments))))

    def between(self, edges: Floats) -> tuple[Floats, Floats]:
        """Mean and largest value in each of the intervals between edges; the last value stays.

        Parameters
        ----------
        edges : (b + 1,) ascending.

        Returns
        -------
        (b,) means and (b,) maxima
        """
        widths = np.diff(self.times, append=self.times[-1:])
        sums = np.concatenate([[0.0], np.cumsum(self.values * widths)])
        made = np.searchsorted(self.times, edges, side="right")  # steps made until each edge
        begun = np.maximum(made - 1, 0)
        at_edge = np.where(made > 0, self.values[begun], 0.0)
        integral = np.where(made > 0, sums[begun] + at_edge * (edges - self.times[begun]), 0.0)
        means = np.diff(integral) / np.diff(edges)
        first, behind = made[:-1], np.searchsorted(self.times, edges[1:], side="left")
        pairs = np.stack([first, np.maximum(first, behind)], axis=1).ravel()
        peaks = np.maximum.reduceat(np.append(self.values, 0.0), pairs)[::2]
        return means, np.where(behind > first, np.maximum(at_edge[:-1], peaks), at_edge[:-1])


def covered(boxes: Floats, amounts: Floats, shape: tuple[int, int]) -> Floats:
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


def _split(values: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Whole and broken part."""
    whole = np.floor(values)
    return whole.astype(np.int64), values - whole

"""Colours and layout of pictures, and their reproducible encoding as PNG or SVG."""

from __future__ import annotations

import io

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK = "#22262b"
GROUND = "#f7f7f5"
WAITING = "#8d6a9f"
DPI = 150
#: File formats, each with the metadata to omit because it differs between runs.
FORMATS: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}}


def new_figure(height: float, title: str) -> Figure:
    """Create an empty figure, 11 inches wide and `height` inches high."""
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
    data = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "reshape"}):  # makes element names reproducible
        figure.savefig(data, format=form, dpi=DPI, metadata=FORMATS[form])
    return data.getvalue()

"""How our pictures look, and how they become files: the same data gives the same bytes."""

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
#: Kinds of files, and what is left out of them because it changes from day to day.
FORMATS: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}}


def new_figure(height: float, title: str) -> Figure:
    """Make an empty figure of our width, `height` inches high."""
    figure = Figure(figsize=(11, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, fontweight="bold", color=INK)
    return figure


def quiet(axes: Axes) -> None:
    """Leave out what says nothing."""
    axes.tick_params(length=2)
    axes.spines[["top", "right"]].set_visible(False)


def encode(figure: Figure, form: str) -> bytes:
    """Write a figure as "png" or "svg"."""
    data = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "reshape"}):  # names inside of it
        figure.savefig(data, format=form, dpi=DPI, metadata=FORMATS[form])
    return data.getvalue()

"""Picture of the errors of predictors over a trace (GUIM, figure 8.14)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from scheduler.pictures import INK, WAITING, new_figure, reduce_frame
from simulator.predictions.accuracy import PlayedTrace

#: Number of spans of jobs over which medians are drawn.
SPANS = 50


def draw_errors(played: Mapping[str, PlayedTrace], about: str) -> Figure:
    """Draw the absolute error of each job on a logarithmic axis, and medians over spans of jobs.

    Parameters
    ----------
    played : name of the predictor -> predictions. Errors below 1 s are drawn at 1 s.
    """
    figure = new_figure(1 + 1.8 * len(played), f"Error of the predicted run time: {about}")
    rows = figure.subplots(len(played), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, each) in zip(rows, played.items(), strict=True):
        sizes = np.maximum(np.abs(each.errors_s), 1.0)
        numbers = np.arange(1, len(sizes) + 1)
        axes.scatter(numbers, sizes, s=3, color=WAITING, alpha=0.6, linewidths=0, rasterized=True)
        spans = [span for span in np.array_split(np.arange(len(sizes)), SPANS) if len(span)]
        middles = [float(numbers[span].mean()) for span in spans]
        axes.plot(middles, [float(np.median(sizes[span])) for span in spans], color=INK)
        axes.set_yscale("log")
        axes.set_ylabel(f"{name}\n|error|, s")
        reduce_frame(axes)
    rows[-1].set_xlabel("job, in the order of submission; the line is the median")
    return figure

"""Queues of the centres over time, after figures 8.8 and 8.9 of GUIM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.pictures import FORMATS, encode, new_figure, reduce_frame
from simulator.studies.sites.runs import QUEUE_EVERY_S

DAY_S = 86400.0
ROW = 2.4  # inches


def picture(
    found: Mapping[tuple[str, str], Mapping[str, Any]], scenario: str = "ALL-SJBF"
) -> dict[str, bytes]:
    """Draw queued jobs by centre, a line for each policy, as PNG and SVG by form.

    If the scenario was not run, the first one that was is drawn.
    """
    names = [name for name, _ in found]
    chosen = scenario if scenario in names else names[0]
    policies = {policy: run["queues"] for (name, policy), run in found.items() if name == chosen}
    centres = [*next(iter(policies.values()))]
    figure = new_figure(0.8 + ROW * len(centres), f"Queued jobs, {chosen}")
    grid = figure.subplots(len(centres), 1, squeeze=False, sharex=True)
    for axes, centre in zip(grid[:, 0], centres, strict=True):
        for policy, queues in policies.items():
            days = [i * QUEUE_EVERY_S / DAY_S for i in range(len(queues[centre]))]
            axes.plot(days, queues[centre], linewidth=0.9, label=policy)
        axes.set_ylabel(centre)
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(bottom=0)
        reduce_frame(axes)
    grid[-1, 0].set_xlabel("days")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return {form: encode(figure, form) for form in FORMATS}

"""Rows of a Gantt chart grouped by host: a band for each host, with its name."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from scheduler.model.procset import ProcSet
from scheduler.pictures.style import INK

#: More hosts than this have bands and no names.
MOST_NAMES = 40
#: More hosts than this are not drawn: a band would be thinner than a few pixels.
MOST_BANDS = 200
_SHADE = "#e4e6e1"


def group_by_host(axes: Axes, hosts: Mapping[str, ProcSet]) -> bool:
    """Shade every second host, draw lines between hosts, and name them instead of processors.

    Parameters
    ----------
    axes : a Gantt chart whose y axis has the processor numbers.
    hosts : processors of each host. Those of a host that are not consecutive have a band each.

    Returns
    -------
    whether the rows are grouped; False for no hosts, or too many.
    """
    bands = sorted(
        (first, last, name) for name, held in hosts.items() for first, last in held.intervals
    )
    if not bands or len(bands) > MOST_BANDS:
        return False
    order = {name: number for number, name in enumerate(dict.fromkeys(name for *_, name in bands))}
    for first, last, name in bands:
        if order[name] % 2:
            axes.axhspan(first - 0.5, last + 0.5, color=_SHADE, linewidth=0, zorder=0)
        if first > bands[0][0]:
            axes.axhline(first - 0.5, color=INK, linewidth=0.6, zorder=3)
    if len(bands) <= MOST_NAMES:
        middles = [(first + last) / 2 for first, last, _ in bands]
        axes.set_yticks(middles, labels=[name for *_, name in bands])
        axes.tick_params(axis="y", length=0)
    axes.set_ylabel("processors by host")
    return True

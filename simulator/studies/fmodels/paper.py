"""The grids and bounds of GUIM, chapter 5."""

from __future__ import annotations

from typing import Final

from simulator.predictions.fake import Bounds, JobBounds

#: Names of the workloads, by the beginnings of the names of their traces.
WORKLOADS: Final = {
    "CTC-SP2-1996": "CTC",
    "SDSC-Par-1996": "SDSC-Par-96",
    "KTH-SP2-1996": "KTH",
    "LANL-CM5-1994": "LANL",
}
#: Tables 5.1 to 5.3. The area of LANL has the upper bound of its run time, which must be an error.
BOUNDS: Final = {
    "CTC": JobBounds(Bounds(1152.2, 28804), Bounds(4, 32), Bounds(3790, 53003)),
    "SDSC-Par-96": JobBounds(Bounds(621.34, 15534), Bounds(8, 32), Bounds(921, 311260)),
    "KTH": JobBounds(Bounds(956.88, 23922), Bounds(4, 16), Bounds(4321, 48134)),
    "LANL": JobBounds(Bounds(224.27, 5606), Bounds(32, 256), Bounds(2144, 5606)),
}
#: Errors of 5.6.1, %, and the two groups of their standard deviations.
ERRORS: Final = (5, 100, 200, 400, 600, 700, 800, 1000, 10000)
DEVIATIONS: Final = {
    "narrow": (0.5, 2, 10, 15, 20, 25, 25, 25, 25),
    "wide": (0.5, 20, 40, 60, 80, 120, 200, 300, 1000),
}
#: Percentages of 5.6.2 and their standard deviations; 12 are printed for 11 percentages.
PERCENTAGES: Final = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
PERCENTAGE_DEVIATIONS: Final = (0.05, 0.1, 0.2, 1, 2, 3, 4, 4, 4, 4, 5)


def deviation_of(error: float, group: str) -> float:
    """Standard deviation that 5.6.1 pairs with an error; that of the next smaller printed error.

    Raises
    ------
    KeyError : the group is neither "narrow" nor "wide".
    """
    deviations = DEVIATIONS[group]
    return deviations[max((i for i, e in enumerate(ERRORS) if e <= error), default=0)]


def deviation_of_percentage(percentage: float) -> float:
    """Standard deviation of a percentage; that of the next smaller printed percentage."""
    place = max((i for i, p in enumerate(PERCENTAGES) if p <= percentage), default=0)
    return PERCENTAGE_DEVIATIONS[place]

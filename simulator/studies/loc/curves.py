"""Results of the study of contiguous places, by trace, policy and speed-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from simulator.study.study import Row

FIRST_FIT = "first-fit"
#: What the policies are called, in the order in which they are told.
NAMES = {"fcfs": "FCFS", "easy": "EASY by place", "easy-number": "EASY by number"}
TOTAL, WAIT = "mean_total_min", "mean_wait_min"


class Curve(NamedTuple):
    """Results of one trace and policy.

    Parameters
    ----------
    flat : of the non-contiguous selection.
    points : speed-up -> results of the contiguous one, ascending.
    """

    flat: Mapping[str, float]
    points: dict[float, Mapping[str, float]]

    def threshold(self) -> float | None:
        """First speed-up from which on contiguous places do not lose; None: none of those tried.

        Between two points the total time is taken to fall in a straight line.
        """
        even = self.flat[TOTAL]
        found: float | None = None
        before: tuple[float, float] | None = None
        for speedup, point in self.points.items():
            total = point[TOTAL]
            if total > even:
                found = None
            elif found is None:
                found = speedup
                if before is not None:
                    share = (before[1] - even) / (before[1] - total)
                    found = before[0] + share * (speedup - before[0])
            before = speedup, total
        return found

    def cost(self) -> float | None:
        """Waiting time without any speed-up, relative to the non-contiguous selection."""
        point = self.points.get(0)
        return None if point is None or not self.flat[WAIT] else point[WAIT] / self.flat[WAIT]


Key: TypeAlias = tuple[str, str]  #: label of the trace, policy
Curves: TypeAlias = dict[Key, Curve]


def curves_of(rows: Sequence[Row]) -> Curves:
    """Put the runs together that belong together; those without a non-contiguous one are left.

    Anywhere, both kinds of EASY are the same.
    """
    flat: dict[Key, Mapping[str, float]] = {}
    points: dict[Key, dict[float, Mapping[str, float]]] = {}
    for row in rows:
        key = row.parameters["label"], row.parameters["policy"]
        if row.parameters["select"] == FIRST_FIT:
            flat[key] = row.result
        else:
            points.setdefault(key, {})[row.parameters["speedup"]] = row.result
    for label, policy in points:
        if policy.startswith("easy") and (label, "easy") in flat:
            flat.setdefault((label, policy), flat[label, "easy"])
    labels, policies = list(dict.fromkeys(label for label, _ in flat)), list(NAMES)
    order = sorted(flat, key=lambda key: (labels.index(key[0]), policies.index(key[1])))
    return {key: Curve(flat[key], dict(sorted(points.get(key, {}).items()))) for key in order}

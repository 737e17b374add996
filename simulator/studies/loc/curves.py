"""Results of the LOC study by trace, policy and speed-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from simulator.study.study import Row

FIRST_FIT = "first-fit"
#: Names of the policies in reports, in the order of the reports.
NAMES = {"fcfs": "FCFS", "easy": "EASY", "easy-place": "EASY by place"}
TOTAL, WAIT = "mean_total_min", "mean_wait_min"


class Curve(NamedTuple):
    """Results of one trace and policy.

    Parameters
    ----------
    flat : results of the non-contiguous selection.
    points : speed-up -> results of the contiguous selection, ascending.
    """

    flat: Mapping[str, float]
    points: dict[float, Mapping[str, float]]

    def threshold(self) -> float | None:
        """Smallest speed-up from which on the total time is not above that of `flat`.

        None if there is no such speed-up. Between two points the total is interpolated linearly.
        """
        even = self.flat[TOTAL]
        smallest: float | None = None
        before: tuple[float, float] | None = None
        for speedup, point in self.points.items():
            total = point[TOTAL]
            if total > even:
                smallest = None
            elif smallest is None:
                smallest = speedup
                if before is not None:
                    share = (before[1] - even) / (before[1] - total)
                    smallest = before[0] + share * (speedup - before[0])
            before = speedup, total
        return smallest

    def cost(self) -> float | None:
        """Waiting time without speed-up, relative to that of the non-contiguous selection."""
        point = self.points.get(0)
        return None if point is None or not self.flat[WAIT] else point[WAIT] / self.flat[WAIT]


Key: TypeAlias = tuple[str, str]  #: label of trace and network, policy
Curves: TypeAlias = dict[Key, Curve]


def label_of(trace: str, network: str) -> str:
    """Label of a trace on a network; the tree of the paper is not named."""
    return trace if network == "tree" else f"{trace} {network}"


def network_of(label: str) -> str:
    """Network of a label."""
    return label.partition(" ")[2] or "tree"


def curves_of(rows: Sequence[Row]) -> Curves:
    """Group runs by trace and policy; groups without a non-contiguous run are left out.

    Without contiguity both kinds of EASY are the same, so they share one run.
    """
    flat: dict[Key, Mapping[str, float]] = {}
    points: dict[Key, dict[float, Mapping[str, float]]] = {}
    for row in rows:
        label = label_of(row.parameters["label"], row.parameters["network"])
        key = label, row.parameters["policy"]
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

"""Study of LOC: the cost of contiguous allocations, and the speed-up that makes up for it.

LOC: J. A. Pascual and J. Miguel-Alonso, Effects of job placement on scheduling performance,
EHU-KAT-IK-09-08, section 4, figures 2 to 5. A run is one trace under one policy and one selection.
With a contiguous selection the run time t of every job becomes t (1 - s). The threshold is the
smallest s from which on the mean total time, wait plus run, is below that of the non-contiguous
selection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

import simulator as sim
from scheduler.config.machine_file import Platform, on_network
from scheduler.model.network import Mesh, Tree, box
from scheduler.pictures import INK, encode_all
from simulator.results.statistics import Interval
from simulator.studies.charts import bars, chart, log_ticks
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    crossed,
    declared,
    exactly,
    paper,
    reported,
    titled,
)
from simulator.study.study import Report, Row, choice, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, machine_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIRST_FIT = "first-fit"
HEAD = ("TRACE", "POLICY")
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


#: All jobs count ("We consider all the jobs important"); jobs may run longer than estimated.
RULES = {"overrun": "keep", "without_run": "keep"}
_EASY = {"backfill.kill_at_reservation": True}
OUR_EASY = "easy-place"  #: the product's EASY on contiguous selections
#: Scenario and its changes. "easy" reserves a number of processors for the head if too few are
#: free, and lets all jobs wait while it only lacks a place; "easy-place" reserves certain
#: processors in both cases, so that later jobs are backfilled.
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "fcfs": ("fcfs", {}),
    "easy": ("easy", _EASY | {"backfill.reserve": "shortage"}),
    OUR_EASY: ("easy", _EASY),
}
#: Networks -> number of dimensions, which a tree has not.
DIMENSIONS = {"tree": 0, "ring": 1, "mesh-2d": 2, "mesh-3d": 3, "torus-2d": 2, "torus-3d": 3}
#: Selections on a tree -> those on a mesh or torus.
ON_MESH = {"tree": "submesh", "tree-relaxed": "submesh-relaxed"}
MINUTE_S = 60.0
PAPER = paper("loc")


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace under one policy and selection.

    Parameters
    ----------
    parameters : `trace`; `network` (of `DIMENSIONS`); `k`, `levels` (of the tree);
        `policy` (of `POLICIES`); `select` ("tree" on a mesh or torus means "submesh"); `speedup` (s
        of contiguous allocations); `jobs` (number of jobs from the start; null: all).

    Returns
    -------
    Means in minutes, as in the paper; shares from 0 to 1.
    """
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    network, select = parameters["network"], parameters["select"]
    machine = _machine(parameters, machine_size(trace))
    base, changes = choice(parameters, "policy", POLICIES)
    if select == FIRST_FIT:  # any place is one for the head
        changes = {name: value for name, value in changes.items() if name != "backfill.reserve"}
    ran = sim.simulate(
        sim.Jobs(trace).with_rules(**RULES).first(parameters["jobs"]),
        machine=machine,
        scenario={"name": base, **changes},
        select=ON_MESH.get(select, select) if network != "tree" else select,
        contiguity=parameters["speedup"] or None,
    )
    metrics, run_s = ran.metrics, ran.jobs["run_s"]
    return {
        **{name: metrics[name] for name in ("jobs", "unstarted", "killed")},
        WAIT: metrics["mean_wait_s"] / MINUTE_S,
        "mean_run_min": float(run_s[~np.isnan(run_s)].mean()) / MINUTE_S,
        TOTAL: metrics["mean_turnaround_s"] / MINUTE_S,
        **{name: metrics[name] for name in ("utilization", "external_fragmentation")},
    }


def _judged(curves: Curves) -> list[Claim]:
    """Claims about the tree and the paper's EASY; nothing is drawn in a run: numbers are exact."""
    claims: list[Claim] = []
    for (label, policy), curve in curves.items():
        if network_of(label) != "tree" or policy == OUR_EASY:
            continue
        threshold = NOT_RUN
        if len(curve.points) > 1:
            smallest = curve.threshold()
            threshold = exactly(inf if smallest is None else smallest)
        numbers = {"cost": exactly(curve.cost()), "threshold": threshold}
        groups = [group for group in PAPER.claims if group.get("only", label) == label]
        measures = {name: lambda number=number: number for name, number in numbers.items()}
        claims += declared(groups, measures, trace=label, policy=policy)

    def apart(label: str) -> Interval:
        both = [curves.get((label, policy)) for policy in ("easy", "fcfs")]
        easy, fcfs = (None if curve is None else curve.threshold() for curve in both)
        return NOT_RUN if easy is None or fcfs is None else exactly(easy - fcfs)

    claims += declared(PAPER.comparisons, {"apart": apart})
    return [claim for claim in claims if claim.ours is not NOT_RUN]


def _machine(parameters: Mapping[str, Any], processors: int) -> Platform:
    """Machine of one-processor nodes; a mesh has the most compact box for them."""
    dimensions, network = choice(parameters, "network", DIMENSIONS), parameters["network"]
    if network == "tree":
        return on_network(Tree(parameters["k"], parameters["levels"]), processors)
    dims = box((processors,) * dimensions, processors)
    assert dims is not None, "a cube of this side has room"
    return on_network(Mesh(dims, not network.startswith("mesh")), processors)


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables of costs, thresholds and times, and pictures of the figures."""
    curves = curves_of(rows)
    tables = [_table(f"{label}, {policy}", curve) for (label, policy), curve in curves.items()]
    parts = [
        _costs(curves),
        _thresholds(curves),
        _networks(curves),
        "Mean total time (wait + run) and mean wait, minutes, by speed-up (LOC figures 3 to 5)",
        *tables,
    ]
    data = {
        "curves": [
            {
                "trace": label.split()[0],
                "network": network_of(label),
                "policy": policy,
                "cost": curve.cost(),
                "threshold": curve.threshold(),
                "paper_threshold": PAPER.thresholds.get(f"{label} {policy}"),
                "non_contiguous": dict(curve.flat),
                "contiguous": [{"speedup": s} | dict(p) for s, p in curve.points.items()],
            }
            for (label, policy), curve in curves.items()
        ]
    }
    return reported(parts, data, _judged(curves), pictures(curves), "Claims")


def _networks(curves: Curves) -> str:
    """Thresholds and costs of the networks side by side; "" for one network."""

    def cell(key: Key, network: str) -> str:
        curve = curves.get((label_of(key[0], network), key[1]))
        if curve is None:
            return "-"
        cost = curve.cost()
        return _shown(curve.threshold()) + ("" if cost is None else f" ({cost:.2f})")

    networks = {network_of(label): network_of(label) for label, _ in curves}
    keys = dict.fromkeys((label.split()[0], policy) for label, policy in curves)
    title = "Threshold by network, and in brackets the ratio of the waits without speed-up"
    return crossed(title, HEAD, keys, networks, cell) if len(networks) > 1 else ""


def _shown(threshold: float | None) -> str:
    return "none" if threshold is None else f"{threshold:.2f}"


def _costs(curves: Curves) -> str:
    lines = [
        [label, policy, f"{curve.flat[WAIT]:.1f}", f"{curve.points[0][WAIT]:.1f}", f"{cost:.2f}"]
        for (label, policy), curve in curves.items()
        if (cost := curve.cost()) is not None
    ]
    title = (
        "Waiting time with contiguous allocations over that without, speed-up 0 (LOC figure 2;"
        f" the paper: from {PAPER.ratio} times)"
    )
    return titled(title, [*HEAD, "WAIT ANYWHERE", "WAIT CONTIGUOUS", "RATIO"], lines, len(HEAD))


def _thresholds(curves: Curves) -> str:
    """Thresholds of the paper and ours, where more than one speed-up was run."""
    lines = [
        [*key, PAPER.thresholds.get(" ".join(key), "-"), _shown(curve.threshold())]
        for key, curve in curves.items()
        if len(curve.points) > 1
    ]
    title = "Speed-up from which on contiguous allocations pay"
    return titled(title, [*HEAD, "PAPER", "OURS"], lines, 4)


def _table(title: str, curve: Curve) -> str:
    head = ["SPEED-UP", "TOTAL", "WAIT", "RUN", "UTILIZATION", "EXTERNAL", "KILLED"]
    shown = [("anywhere", curve.flat), *((f"{s:.2f}", p) for s, p in curve.points.items())]
    lines = [
        [
            name,
            *(f"{point[column]:.1f}" for column in (TOTAL, WAIT, "mean_run_min")),
            f"{point['utilization']:.3f}",
            f"{point['external_fragmentation']:.3f}",
            f"{point['killed']:.0f}",
        ]
        for name, point in shown
    ]
    return titled(title, head, lines, 0)


ANYWHERE, CONTIGUOUS = "#8a8f96", "#1f6fb2"
BARS = {"fcfs": "#d98c2b", "easy": "#1f6fb2", "easy-place": "#7fb6d9"}


def pictures(curves: Curves) -> dict[str, bytes]:
    """Draw the figures for which there are runs, as PNG and SVG."""
    figures = {"figure2": _costs_figure(curves)}
    first = next(iter(curves), ("", ""))[0]
    own = {key: curve for key, curve in curves.items() if key[0] == first}
    others = {key: c for key, c in curves.items() if key[0] != first and len(c.points) > 1}
    if any(len(curve.points) > 1 for curve in own.values()):
        title = f"{first}: mean total time, contiguous or not"
        figures["figure3"] = _lines(own, TOTAL, title)
        figures["figure4"] = _lines(own, WAIT, f"{first}: mean waiting time, contiguous or not")
    if others:
        title = "Mean total time, contiguous or not"
        figures["figure5"] = _lines(others, TOTAL, title, logarithmic=True)
    return encode_all(figures)


def _costs_figure(curves: Curves) -> Figure:
    """Draw figure 2: waiting times at speed-up 0, relative to the non-contiguous selection."""
    labels = list(dict.fromkeys(label for label, _ in curves))
    series, colours = {}, {}
    for policy, name in NAMES.items():
        own = [curves.get((label, policy)) for label in labels]
        if any(own):
            series[name] = [exactly(curve and curve.cost()) for curve in own]
            colours[name] = BARS[policy]

    def panel(axes: Axes) -> None:
        unit = "wait relative to non-contiguous"
        bars(axes, labels, series, None, colours, unit=unit, numbers=".3g", bottom=1)
        axes.set_yscale("log")
        axes.margins(y=0.12)
        log_ticks(axes, "y")
        if series:
            axes.legend(loc="best", frameon=False)

    return chart("Waiting time with contiguous allocations, no speed-up", 4.2, [[panel]])


def _lines(curves: Curves, column: str, title: str, *, logarithmic: bool = False) -> Figure:
    """Draw figures 3 to 5: a time over the speed-up, one panel per trace and policy."""

    def panel(axes: Axes, key: Key) -> None:
        _draw_panel(axes, curves[key], column)
        label, policy = key
        axes.set_title(f"{label}, {NAMES[policy]}", fontsize=11, color=INK)
        if logarithmic:
            log_ticks(axes, "y")
        else:
            axes.set_ylim(bottom=0)
        if key == next(iter(curves)):
            axes.set_ylabel("minutes")
            axes.legend(loc="best", frameon=False)

    return chart(title, 4.6, [[partial(panel, key=key) for key in curves]])


def _draw_panel(axes: Axes, curve: Curve, column: str) -> None:
    times = [point[column] for point in curve.points.values()]
    axes.plot(
        [*curve.points], times, color=CONTIGUOUS, marker="o", markersize=4, label="contiguous"
    )
    axes.axhline(curve.flat[column], color=ANYWHERE, linewidth=2, label="not contiguous")
    threshold = curve.threshold()
    if column == TOTAL and threshold is not None and threshold > 0:
        axes.axvline(threshold, color=INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"pays from {threshold:.2f}",
            (threshold, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -12),
            textcoords="offset points",
            fontsize=9,
        )
    axes.set_xlabel("speed-up of contiguous jobs")

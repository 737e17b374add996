"""Study of LOC: the cost of contiguous allocations, and the speed-up that makes up for it.

LOC: J. A. Pascual and J. Miguel-Alonso, Effects of job placement on scheduling performance,
EHU-KAT-IK-09-08, section 4, figures 2 to 5. A run is one trace under one policy and one selection.
With a contiguous selection the run time t of every job becomes t (1 - s). The threshold is the
smallest s from which on the mean total time, wait plus run, is below that of the non-contiguous
selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

import simulator as sim
from reshape.errors import ReshapeError
from scheduler import pictures as drawing
from scheduler.config import machine_file as platform
from scheduler.config.machine_file import Platform
from scheduler.model.network import box
from scheduler.text.tables import Table, render
from simulator.studies.claims import Claim, as_records, as_table, by_range, exactly, titled
from simulator.study.study import Report, Row, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, machine_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
#: Meshes and tori -> number of dimensions.
DIMENSIONS = {"ring": 1, "mesh-2d": 2, "mesh-3d": 3, "torus-2d": 2, "torus-3d": 3}
#: Selections on a tree -> those on a mesh or torus.
ON_MESH = {"tree": "submesh", "tree-relaxed": "submesh-relaxed"}
MINUTE_S = 60.0
HPC2N_FIGURES = "LOC figures 3, 4"
#: Thresholds of the paper (section 4), where FCFS and EASY are "about the same" on HPC2N.
PAPER_THRESHOLD = {
    ("HPC2N", "fcfs"): "around 0.25",
    **dict.fromkeys([("HPC2N", "easy"), ("HPC2N", "easy-place")], "around 0.25"),
    **dict.fromkeys([("SDSC", "easy"), ("SDSC", "easy-place")], "0.25 to 0.30"),
    **dict.fromkeys([("LLNL", "easy"), ("LLNL", "easy-place")], "slightly above SDSC's"),
}
#: The same as ranges, widened by what "around" may mean.
THRESHOLDS = {"HPC2N": (0.2, 0.3, "around 0.25"), "SDSC": (0.25, 0.3, "0.25 to 0.30")}
SAME = 0.05  #: thresholds at most so far apart are "about the same"
COST = (7.0, 100.0)  #: figure 2, over all traces and policies
PAPER_RATIO = "7 to 100"  #: figure 2, over all traces and policies; the paper prints no more


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace under one policy and selection.

    Parameters
    ----------
    parameters : `trace`; `network` (of `DIMENSIONS`, or "tree"); `k`, `levels` (of the tree);
        `policy` (of `POLICIES`); `select` ("tree" on a mesh or torus means "submesh"); `speedup` (s
        of contiguous allocations); `jobs` (number of jobs from the start; null: all).

    Returns
    -------
    Means in minutes, as in the paper; shares from 0 to 1.
    """
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    network, select = parameters["network"], parameters["select"]
    machine = _machine(machine_size(trace), network, parameters["k"], parameters["levels"])
    base, changes = POLICIES[parameters["policy"]]
    if select == FIRST_FIT:  # any place is one for the head
        changes = {name: value for name, value in changes.items() if name != "backfill.reserve"}
    jobs = sim.Jobs(trace).with_rules(**RULES)
    ran = sim.simulate(
        jobs if parameters["jobs"] is None else jobs.first(parameters["jobs"]),
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


def _judged(curves: Curves) -> Iterator[Claim]:
    """Claims about the tree and the paper's EASY; nothing is drawn in a run: numbers are exact."""
    for (label, policy), curve in curves.items():
        if network_of(label) != "tree" or policy == OUR_EASY:
            continue
        where = f"{label}, {policy}"
        if (ratio := curve.cost()) is not None:
            text, cost = "wait without speed-up, times that of first fit", exactly(ratio)
            yield Claim(text, cost, PAPER_RATIO, by_range(cost, *COST), "LOC figure 2", where)
        if label in THRESHOLDS and len(curve.points) > 1:
            threshold = curve.threshold()
            ours = exactly(inf if threshold is None else threshold)
            low, high, paper = THRESHOLDS[label]
            part = HPC2N_FIGURES if label == "HPC2N" else "LOC figure 5"
            yield Claim("threshold", ours, paper, by_range(ours, low, high), part, where)
    both = [curves.get(("HPC2N", policy)) for policy in ("easy", "fcfs")]
    easy, fcfs = (None if curve is None else curve.threshold() for curve in both)
    if easy is not None and fcfs is not None:
        ours, text = exactly(easy - fcfs), "threshold of EASY minus that of FCFS"
        verdict = by_range(ours, -SAME, SAME)
        yield Claim(text, ours, "about the same", verdict, HPC2N_FIGURES, "HPC2N")


def _machine(processors: int, network: str, k: int, levels: int) -> Platform:
    """Machine of one-processor nodes; a mesh has the most compact box for them."""
    if network == "tree":
        return platform.tree(processors, k, levels)
    if network not in DIMENSIONS:
        names = ", ".join(["tree", *DIMENSIONS])
        raise ReshapeError(f"network: {network!r} is not known; take one of {names}")
    dims = box((processors,) * DIMENSIONS[network], processors)
    assert dims is not None, "a cube of this side has room"
    return platform.mesh(processors, dims, wraps=not network.startswith("mesh"))


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables of costs, thresholds and times, and pictures of the figures."""
    curves = curves_of(rows)
    claims = [*_judged(curves)]
    text = "\n\n".join(
        [
            "Waiting time with contiguous allocations over that without, speed-up 0 (LOC figure 2;"
            f" the paper: from {PAPER_RATIO} times)",
            _costs(curves),
            "Speed-up from which on contiguous allocations pay",
            _thresholds(curves),
            f"Claims\n{as_table(claims)}",
            *_networks(curves),
            "Mean total time (wait + run) and mean wait, minutes, by speed-up (LOC figures 3 to 5)",
            *(f"{label}, {policy}\n{_table(curve)}" for (label, policy), curve in curves.items()),
        ]
    )
    data = {
        "curves": [
            {
                "trace": label.split()[0],
                "network": network_of(label),
                "policy": policy,
                "cost": curve.cost(),
                "threshold": curve.threshold(),
                "paper_threshold": PAPER_THRESHOLD.get((label, policy)),
                "non_contiguous": dict(curve.flat),
                "contiguous": [{"speedup": s} | dict(p) for s, p in curve.points.items()],
            }
            for (label, policy), curve in curves.items()
        ],
        "claims": as_records(claims),
    }
    return Report(text, msgspec.to_builtins(data), pictures(curves))


def _networks(curves: Curves) -> list[str]:
    """Thresholds and costs of the networks side by side; nothing for one network."""
    networks = list(dict.fromkeys(network_of(label) for label, _ in curves))
    if len(networks) < 2:
        return []
    keys = dict.fromkeys((label.split()[0], policy) for label, policy in curves)
    lines = []
    for trace, policy in keys:
        cells = []
        for network in networks:
            curve = curves.get((label_of(trace, network), policy))
            cells.append("-" if curve is None else _threshold_and_cost(curve))
        lines.append([trace, policy, *cells])
    head = ["trace", "policy", *networks]
    title = "Threshold by network, and in brackets the ratio of the waits without speed-up"
    return [titled(title, head, lines, len(head))]


def _threshold_and_cost(curve: Curve) -> str:
    threshold, cost = curve.threshold(), curve.cost()
    shown = "none" if threshold is None else f"{threshold:.2f}"
    return shown if cost is None else f"{shown} ({cost:.2f})"


def _costs(curves: Curves) -> str:
    lines = [
        [label, policy, _number(curve.flat[WAIT]), _number(curve.points[0][WAIT]), f"{cost:.2f}"]
        for (label, policy), curve in curves.items()
        if (cost := curve.cost()) is not None
    ]
    head = ["trace", "policy", "wait anywhere", "wait contiguous", "ratio"]
    return render(Table(head, lines, left=frozenset({"trace", "policy"})))


def _thresholds(curves: Curves) -> str:
    """Thresholds of the paper and ours, where more than one speed-up was run."""
    lines = []
    for (label, policy), curve in curves.items():
        if len(curve.points) > 1:
            ours, paper = curve.threshold(), PAPER_THRESHOLD.get((label, policy), "-")
            lines.append([label, policy, paper, "none" if ours is None else f"{ours:.2f}"])
    head = ["TRACE", "POLICY", "PAPER", "OURS"]
    return render(Table(head, lines, left=frozenset(head)))


def _table(curve: Curve) -> str:
    head = ["speed-up", "total", "wait", "run", "utilization", "external", "killed"]
    shown = [("anywhere", curve.flat), *((f"{s:.2f}", p) for s, p in curve.points.items())]
    lines = [
        [
            name,
            *(_number(point[column]) for column in (TOTAL, WAIT, "mean_run_min")),
            f"{point['utilization']:.3f}",
            f"{point['external_fragmentation']:.3f}",
            f"{point['killed']:.0f}",
        ]
        for name, point in shown
    ]
    return render(Table(head, lines))


def _number(value: float) -> str:
    return f"{value:.1f}"


ANYWHERE, CONTIGUOUS = "#8a8f96", "#1f6fb2"
BARS = {"fcfs": "#d98c2b", "easy": "#1f6fb2", "easy-place": "#7fb6d9"}


def pictures(curves: Curves) -> dict[str, bytes]:
    """Draw the figures for which there are runs, as PNG and SVG."""
    figures = {"figure2": _costs_figure(curves)}
    first = next(iter(curves), ("", ""))[0]
    own = {policy: curve for (label, policy), curve in curves.items() if label == first}
    others = [(key, c) for key, c in curves.items() if key[0] != first and len(c.points) > 1]
    titled = [(f"{first}, {NAMES.get(p, p)}", curve) for p, curve in own.items()]
    if any(len(curve.points) > 1 for curve in own.values()):
        title = f"{first}: mean total time"
        figures["figure3"] = _lines(titled, TOTAL, f"{title}, contiguous or not")
        title = f"{first}: mean waiting time"
        figures["figure4"] = _lines(titled, WAIT, f"{title}, contiguous or not")
    if others:
        titled = [(f"{label}, {NAMES.get(p, p)}", curve) for (label, p), curve in others]
        title = "Mean total time, contiguous or not"
        figures["figure5"] = _lines(titled, TOTAL, title, logarithmic=True)
    return drawing.encode_all(figures)


def _costs_figure(curves: Curves) -> Figure:
    """Draw figure 2: waiting times at speed-up 0, relative to the non-contiguous selection."""
    from matplotlib.ticker import FuncFormatter  # late: matplotlib is slow to load

    figure = drawing.new_figure(4.2, "Waiting time with contiguous allocations, no speed-up")
    axes = figure.subplots()
    labels = list(dict.fromkeys(label for label, _ in curves))
    policies = [p for p in NAMES if any(policy == p for _, policy in curves)]
    width = 0.8 / max(1, len(policies))
    for i, policy in enumerate(policies):
        costs = [
            (labels.index(label) + (i - (len(policies) - 1) / 2) * width, curve.cost())
            for (label, of), curve in curves.items()
            if of == policy
        ]
        bars = [(x, cost) for x, cost in costs if cost is not None]
        drawn = axes.bar(
            [x for x, _ in bars],
            [cost - 1 for _, cost in bars],
            width * 0.92,
            bottom=1,
            color=BARS[policy],
            label=NAMES[policy],
        )
        axes.bar_label(drawn, [f"{cost:.3g}" for _, cost in bars], padding=2, fontsize=9)
    axes.set_yscale("log")
    axes.margins(y=0.12)
    axes.axhline(1, color=drawing.INK, linewidth=0.8)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylabel("wait relative to non-contiguous")
    axes.yaxis.set_major_formatter(FuncFormatter(_decimal))
    if policies:
        axes.legend(loc="best", frameon=False)
    drawing.reduce_frame(axes)
    return figure


def _lines(
    titled: Sequence[tuple[str, Curve]], column: str, title: str, *, logarithmic: bool = False
) -> Figure:
    """Draw figures 3 to 5: a time over the speed-up, one panel per trace and policy."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure = drawing.new_figure(4.6, title)
    panels = figure.subplots(1, len(titled), squeeze=False)[0]
    for axes, (name, curve) in zip(panels, titled, strict=True):
        _draw_panel(axes, curve, column)
        axes.set_title(name, fontsize=11, color=drawing.INK)
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(_decimal))
            low, high = axes.get_ylim()
            if high < 20 * low:  # less than about a decade: label the minor ticks too
                axes.yaxis.set_minor_formatter(FuncFormatter(_decimal))
            else:
                axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
    panels[0].set_ylabel("minutes")
    panels[0].legend(loc="best", frameon=False)
    return figure


def _draw_panel(axes: Axes, curve: Curve, column: str) -> None:
    speedups = list(curve.points)
    axes.plot(
        speedups,
        [curve.points[s][column] for s in speedups],
        color=CONTIGUOUS,
        marker="o",
        markersize=4,
        label="contiguous",
    )
    axes.axhline(curve.flat[column], color=ANYWHERE, linewidth=2, label="not contiguous")
    threshold = curve.threshold()
    if column == TOTAL and threshold is not None and threshold > 0:
        axes.axvline(threshold, color=drawing.INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"pays from {threshold:.2f}",
            (threshold, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -12),
            textcoords="offset points",
            fontsize=9,
        )
    axes.set_xlabel("speed-up of contiguous jobs")
    drawing.reduce_frame(axes)


def _decimal(value: float, _: object) -> str:
    return f"{value:g}"

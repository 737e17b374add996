"""Search over the choices that PRIO leaves open, for those that explain the order of its table 1.

A run is one job mix under one combination of choices, in all four scenarios. The report lists the
combinations with the paper's order of completion improvements (FCFS-PR, PBA-PR, Max-B-PR), their
distance from its numbers, and the effect of each choice, averaged over all others. With
`run_changed` and `report_changes` choices are changed one at a time; the report gives the effect of
each change on its base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import Claim, as_records, by_coverage, by_sign, plus_minus
from simulator.studies.prio import runs as prio
from simulator.studies.prio.claims import RESIZED
from simulator.studies.prio.paper import NAMES, TABLE_1
from simulator.study.report import text
from simulator.study.study import SEED, TRACES, Report, Row

NUMBERS = ("mean_completion_s", "mean_execution_s", "mean_wait_s", "utilization_pct")
SHOWN = 12  # combinations in each table of the text
#: Choices that are fields of the scenarios: name -> field.
_FIELDS = {
    "higher": "resizing.higher",
    "harvest": "resizing.harvest",
    "grow_past": "resizing.grow_past",
    "min_potential": "resizing.min_potential",
    "window": "resizing.remap_window_size",
}
#: Further such choices, which a study may leave out.
_MORE_FIELDS = {
    "rank_by": "resizing.rank_by",
    "unexplored": "resizing.unexplored",
    "harvest_unexplored": "resizing.harvest_unexplored",
    "harvest_for": "resizing.harvest_for",
    "contract_for": "resizing.contract_for",
    "expand_first": "resizing.expand_first",
    "adaptive_start": "backfill.adaptive_start",
}
#: Backfilling: choice -> fields of the scenarios.
_BACKFILL: dict[str, dict[str, Any]] = {
    "easy": {},
    "contacts": {"backfill.moments": "contacts"},
    "none": {"backfill.reservations": 0},
}
#: Policies that protect the reservation of the head: those that do so by default, all, or none.
_PROTECT: dict[str, dict[str, Any]] = {
    "policy": {},
    "all": {"resizing.protect_reservation": True},
    "nobody": {"resizing.protect_reservation": False},
}


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a mix under all scenarios.

    Parameters
    ----------
    parameters : `seed`; `reading` of the speedup formula; `expand_step`, `expand_most` of the
        workload; `jobs` (number of jobs, optional); `weights` (of the aging priority: Qfactor,
        minute waited, processor); `backfill`
        ("easy", "contacts", "none"); `protect` ("policy", "all", "nobody"); `higher`, `harvest`,
        `grow_past`, `min_potential`, `window` of the policies; `start_s`, `resize_s`, `pause_s`;
        optional fields of the policies: `rank_by`, `unexplored`, `harvest_unexplored`,
        `harvest_for`, `contract_for`, `expand_first`, and `adaptive_start` of the backfilling.

    Returns
    -------
    scenario -> means of its run.
    """
    qfactor, wait, nodes = parameters["weights"]
    changes = {field: parameters[name] for name, field in _FIELDS.items()}
    more = _MORE_FIELDS.keys() & parameters.keys()
    changes |= {_MORE_FIELDS[name]: parameters[name] for name in sorted(more)}
    changes |= _BACKFILL[parameters["backfill"]] | _PROTECT[parameters["protect"]]
    changes |= {
        "order.qfactor_weight": qfactor,
        "order.wait_weight": wait,
        "order.nodes_weight": nodes,
    }
    if qfactor:  # otherwise the order never changes
        changes["order.refresh_s"] = 0
    workload = {
        "expand_step": parameters["expand_step"],
        "expand_most": parameters["expand_most"],
        "speedup": {"reading": parameters["reading"]},
    }
    if "jobs" in parameters:
        workload["jobs"] = parameters["jobs"]
    common = {name: parameters[name] for name in (SEED, "start_s", "resize_s", "pause_s")}
    common |= {"workload": workload, "user_priorities": False}
    return {name: _one(_key(name, common, changes)) for name in NAMES}


def run_changed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a mix under a base with one change.

    Parameters
    ----------
    parameters : `seed`; `bases` (name -> parameters of `run`); `base` (name of one of them);
        `change` (parameters of `run` that replace those of the base).
    """
    base = parameters["bases"][parameters["base"]]
    return run({**base, **parameters["change"], SEED: parameters[SEED]})


def _key(name: str, common: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes:
    """Encode the parameters that a scenario depends on; static depends on no resizing field."""
    own = {"scenario": name, "resizable": float(name != "static")}
    changes = prio.own_changes(name, changes)
    return msgspec.json.encode({**common, **own, "set": changes}, order="deterministic")


@lru_cache(maxsize=256)
def _one(key: bytes) -> dict[str, float]:
    result = prio.run(msgspec.json.decode(key))
    return {name: result[name] for name in NUMBERS}


class CombinationResult(msgspec.Struct, frozen=True):
    """Results of one combination of choices over all mixes.

    Parameters
    ----------
    choice : the parameters that vary.
    static : mean completion (s), execution (s), wait (s) and utilisation (%) of static.
    completion, execution : improvement over static, per cent, by scenario.
    utilization : per cent, by scenario.
    order : improvement of FCFS-PR minus that of PBA-PR, and of PBA-PR minus that of Max-B-PR,
        points.
    distance : root mean square of (ours - paper's) over the three completion improvements, points.
    """

    choice: Mapping[str, Any]
    static: Mapping[str, float]
    completion: Mapping[str, Interval]
    execution: Mapping[str, Interval]
    utilization: Mapping[str, float]
    order: tuple[Interval, Interval]
    distance: float

    @property
    def ordered(self) -> bool:
        """Whether the means have the paper's order."""
        return self.order[0].mean > 0 and self.order[1].mean > 0

    @property
    def significantly_ordered(self) -> bool:
        """Whether both differences are above 0 with their whole intervals."""
        return self.order[0].low > 0 and self.order[1].low > 0


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Rank the combinations by distance from the paper, and average the effect of each choice."""
    varied = _varied(rows)
    groups: dict[bytes, list[Row]] = {}
    for row in rows:
        choice = {name: row.parameters[name] for name in varied}
        groups.setdefault(msgspec.json.encode(choice, order="deterministic"), []).append(row)
    points = [_point(group, varied) for group in groups.values()]
    points.sort(key=lambda point: point.distance)
    ordered = [point for point in points if point.ordered]
    clearly = [point for point in points if point.significantly_ordered]
    mixes = max(len(group) for group in groups.values())
    head = (
        f"{len(points)} combinations of choices, {mixes} mixes each. The paper improves the mean"
        f" completion by {_paper('completion')} % (FCFS-PR, PBA-PR, Max-B-PR).\n"
        f"{len(ordered)} combinations have the paper's order; in {len(clearly)} of them both"
        f" differences are above 0 with their whole 95 % intervals."
    )
    parts = [
        head,
        f"Nearest to the paper's three improvements\n{_points_text(points[:SHOWN], varied)}",
        f"In the paper's order, nearest first\n{_points_text(ordered[:SHOWN], varied)}",
        f"Effect of each choice: means over all others\n{_effects_text(points, varied)}",
    ]
    data = {"mixes": mixes, "points": points, "ordered": len(ordered), "clearly": len(clearly)}
    claims = [claim for point in points for claim in _claims(_label(point.choice), point)]
    return Report("\n\n".join(parts), msgspec.to_builtins(data) | {"claims": as_records(claims)})


def report_changes(rows: Sequence[Row], out: Path | None) -> Report:
    """Effect of each change on its base, on the same mixes."""
    groups: dict[tuple[str, bytes], list[Row]] = {}
    for row in rows:
        change = msgspec.json.encode(row.parameters["change"], order="deterministic")
        groups.setdefault((row.parameters["base"], change), []).append(row)
    found: dict[str, list[Change]] = {}
    for (base, _), group in groups.items():
        by = _by(group, groups.get((base, b"{}"), []))
        found.setdefault(base, []).append(Change(_point(group, ["change"]), by))
    parts = [f"{base}\n{_changes_text(changes)}" for base, changes in found.items()]
    parts.append(
        "In brackets: difference from the base on the same mixes, ± 95 %; points. STEPS: FCFS-PR"
        " minus PBA-PR,\nPBA-PR minus Max-B-PR."
    )
    claims = [
        claim
        for base, changes in found.items()
        for change in changes
        for claim in _claims(f"{base} {_label(change.point.choice['change'])}", change.point)
    ]
    return Report("\n\n".join(parts), msgspec.to_builtins(found) | {"claims": as_records(claims)})


class Change(msgspec.Struct, frozen=True):
    """Results of a base with one change.

    Parameters
    ----------
    point : results with the change.
    by : completion improvement of each scenario minus that of the base, points; nan if the base
        was not run.
    """

    point: CombinationResult
    by: Mapping[str, Interval]


def _claims(label: str, point: CombinationResult) -> list[Claim]:
    """Judge the improvements of table 1 and their order in one combination.

    Parameters
    ----------
    label : of the combination, for the ids.
    """
    found = [
        Claim(
            f"{name}: the mean completion improves (%)",
            point.completion[name],
            TABLE_1[name][2],
            by_coverage(point.completion[name], TABLE_1[name][2]),
            id=f"{label} {name}",
        )
        for name in RESIZED
    ]
    for (more, less), step in zip(pairwise(RESIZED), point.order, strict=True):
        text_ = f"the mean completion improves more with {more} than with {less} (points)"
        paper = (TABLE_1[more][2] or 0.0) - (TABLE_1[less][2] or 0.0)
        found.append(
            Claim(text_, step, round(paper, 1), by_sign(step), id=f"{label} {more} - {less}")
        )
    return found


def _label(choice: Mapping[str, Any]) -> str:
    """Choices of a combination as words; "base" if there are none."""
    return " ".join(f"{name}={_value(value)}" for name, value in choice.items()) or "base"


def _by(rows: Sequence[Row], unchanged: Sequence[Row]) -> dict[str, Interval]:
    before = {row.parameters[SEED]: row for row in unchanged}
    pairs = [(row, before[row.parameters[SEED]]) for row in rows if row.parameters[SEED] in before]
    gains = {
        name: [_gain(row, name) - _gain(base, name) for row, base in pairs] for name in RESIZED
    }
    return {name: mean_interval(differences) for name, differences in gains.items()}


def _gain(row: Row, name: str, field: str = "mean_completion_s") -> float:
    """Improvement of a scenario over static on the same mix, per cent."""
    return float(100 * (1 - row.result[name][field] / row.result["static"][field]))


def _changes_text(changes: Sequence[Change]) -> str:
    rows = []
    for change in changes:
        point = change.point
        named = point.choice["change"]
        changed = " ".join(f"{name}={text(value)}" for name, value in named.items())
        gains = [
            f"{point.completion[name].mean:.1f}"
            + (f" ({plus_minus(change.by[name], '+.1f')})" if named else "")
            for name in RESIZED
        ]
        steps = " ".join(plus_minus(step, "+.1f") for step in point.order)
        static = f"{point.static['mean_completion_s']:.0f}"
        rows.append([changed or "the base", static, *gains, steps, f"{point.distance:.1f}"])
    head = ["CHANGE", "STATIC s", "FCFS-PR", "PBA-PR", "Max-B-PR", "STEPS", "DISTANCE"]
    return render(Table(head, rows, left=frozenset({"CHANGE", *head[2:6]})))


def _varied(rows: Sequence[Row]) -> list[str]:
    names = [name for name in rows[0].parameters if name not in (SEED, TRACES)] if rows else []
    return [name for name in names if len({repr(row.parameters[name]) for row in rows}) > 1]


def _point(rows: Sequence[Row], varied: Sequence[str]) -> CombinationResult:
    gains = {
        field: {name: [_gain(row, name, field) for row in rows] for name in RESIZED}
        for field in ("mean_completion_s", "mean_execution_s")
    }
    completion = gains["mean_completion_s"]
    steps = [
        mean_interval([a - b for a, b in zip(completion[more], completion[less], strict=True)])
        for more, less in pairwise(RESIZED)
    ]
    misses = [(mean(completion[name]) - (TABLE_1[name][2] or 0.0)) ** 2 for name in RESIZED]
    return CombinationResult(
        choice={name: rows[0].parameters[name] for name in varied},
        static={field: mean([row.result["static"][field] for row in rows]) for field in NUMBERS},
        completion={name: mean_interval(completion[name]) for name in RESIZED},
        execution={name: mean_interval(gains["mean_execution_s"][name]) for name in RESIZED},
        utilization={
            name: mean([row.result[name]["utilization_pct"] for row in rows]) for name in NAMES
        },
        order=(steps[0], steps[1]),
        distance=mean(misses) ** 0.5,
    )


def _paper(what: str) -> str:
    column = {"completion": 2, "execution": 4}[what]
    return ", ".join(f"{TABLE_1[name][column]:g}" for name in RESIZED)


def _points_text(points: Sequence[CombinationResult], varied: Sequence[str]) -> str:
    head = [*varied, "STATIC s", "FCFS-PR", "PBA-PR", "Max-B-PR", "EXECUTION", "UTILISATION"]
    rows = [
        [
            *(_value(point.choice[name]) for name in varied),
            f"{point.static['mean_completion_s']:.0f}",
            *(plus_minus(point.completion[name]) for name in RESIZED),
            " ".join(f"{point.execution[name].mean:.1f}" for name in RESIZED),
            " ".join(f"{point.utilization[name]:.1f}" for name in ("static", *RESIZED)),
        ]
        for point in points
    ]
    used = " ".join(f"{TABLE_1[name][0]:g}" for name in ("static", *RESIZED))
    shown = [f"{TABLE_1['static'][1]:g}", *_paper("completion").split(", ")]
    paper = [*["paper", *[""] * len(varied)][: len(varied)], *shown]
    rows.append([*paper, _paper("execution").replace(",", ""), used])
    return render(Table(head, rows, left=frozenset({*varied, "EXECUTION", "UTILISATION"})))


def _effects_text(points: Sequence[CombinationResult], varied: Sequence[str]) -> str:
    head = ["CHOICE", "VALUE", "CHOICES", "IN ORDER", "FCFS-PR", "PBA-PR", "Max-B-PR", "STATIC s"]
    rows = []
    for name in varied:
        values = dict.fromkeys(_value(point.choice[name]) for point in points)
        for value in sorted(values):
            some = [point for point in points if _value(point.choice[name]) == value]
            means = [f"{mean([p.completion[s].mean for p in some]):.1f}" for s in RESIZED]
            static = mean([point.static["mean_completion_s"] for point in some])
            in_order = str(sum(point.ordered for point in some))
            rows.append([name, value, str(len(some)), in_order, *means, f"{static:.0f}"])
    return render(Table(head, rows, left=frozenset({"CHOICE", "VALUE"})))


def _value(value: Any) -> str:
    return "/".join(map(text, value)) if isinstance(value, list) else text(value)

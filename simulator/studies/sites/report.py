"""The report of the study: tables with the paper's numbers, claims, queues over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from simulator.experiment.tables import of_rows
from simulator.results.statistics import mean
from simulator.studies.papers import keyed
from simulator.studies.results import reported, titled
from simulator.studies.sites.claims import judge
from simulator.studies.sites.runs import PAPER, QUEUE_EVERY_S
from simulator.study.study import Report, Row

#: Numbers of a policy in the data of the report.
KEYS: Final = (
    "mean_bounded_slowdown", "sd_bounded_slowdown", "p95_bounded_slowdown", "mean_slowdown",
    "mean_wait_s", "sd_wait_s", "p95_wait_s", "jobs_by_centre", "cost", "p95_job_cost",
    "within_cost_limit_pct", "p95_processors", "utilization_pct",
)  # fmt: skip
COLUMNS: Final = {
    "BSLD": "mean_bounded_slowdown",
    "SD": "sd_bounded_slowdown",
    "P95": "p95_bounded_slowdown",
    "WAIT S": "mean_wait_s",
    "SD ": "sd_wait_s",
    "P95 ": "p95_wait_s",
    "COST M": "cost",
    "P95 COST": "p95_job_cost",
    "WITHIN %": "within_cost_limit_pct",
    "P95 CPUS": "p95_processors",
    "UTIL %": "utilization_pct",
}

DAY_S = 86400.0
ROW = 2.4  # inches of a centre in the picture
#: (scenario, policy) -> numbers, means over the seeds.
Numbers = dict[tuple[str, str], dict[str, Any]]


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables, claims, and queues over time as CSV and picture."""
    numbers = _numbers(rows)
    parts = [_table(scenario, numbers) for scenario in PAPER.scenarios]
    parts += [_errors_table(numbers), _separate_table(numbers), _jobs_table(numbers)]
    files = {
        "queues.csv": _queues_csv(numbers),
        "prediction-errors.csv": _errors_csv(numbers),
        **_picture(numbers),
    }
    data = {
        "trace": _trace_data(rows[0]),
        "scenarios": _data(numbers),
        "prediction_errors": _errors(numbers),
    }
    title = "Claims (ratios of the first to the second)"
    return reported(parts, data, judge(numbers), files, title)


def _numbers(rows: Sequence[Row]) -> Numbers:
    """Numbers by scenario and policy; those of several seeds are averaged."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        key = row.parameters["scenario"], row.parameters["policy"]
        groups.setdefault(key, []).append(dict(row.result))
    return {key: _averaged(results) for key, results in groups.items()}


def _averaged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The first result with means of the plain numbers over all."""
    averaged = dict(results[0])
    for name in KEYS:
        values = [result[name] for result in results]
        if isinstance(values[0], dict):
            averaged[name] = {key: mean([v[key] for v in values]) for key in values[0]}
        elif values[0] is not None:
            averaged[name] = mean(values)
    return averaged


def _data(groups: Numbers) -> dict[str, dict[str, Any]]:
    data: dict[str, dict[str, Any]] = {}
    for (scenario, policy), numbers in groups.items():
        data.setdefault(scenario, {})[policy] = {key: numbers[key] for key in KEYS}
    return data


def _trace_data(row: Row) -> dict[str, Any]:
    """What the merged trace is: files, jobs submitted and jobs simulated."""
    return {
        "files": row.parameters["merged"],
        "days": row.parameters["days"],
        "submitted": row.result["submitted"],
        "simulated": row.result["jobs"] + row.result["unstarted"],
    }


def _table(scenario: str, groups: Numbers) -> str:
    """Numbers of all policies of one scenario."""
    lines = []
    for (name, policy), numbers in groups.items():
        if name == scenario:
            values = [numbers[key] for key in COLUMNS.values()]
            values[6] = None if values[6] is None else values[6] / 1e6
            lines.append([policy, *map(_shown, values)])
    return titled(scenario, ["POLICY", *COLUMNS], lines)


def _separate_table(groups: Numbers) -> str:
    """Table 8.1: the separate centres, the paper's numbers in brackets."""
    lines = []
    for (centre, scenario), paper in keyed(PAPER.table_8_1).items():
        numbers = groups.get((scenario, "origin"), {}).get("by_origin", {}).get(centre)
        if numbers is not None:
            names = ("bounded_slowdown", "slowdown", "wait_s")
            ours = [numbers[f"{part}_{name}"] for name in names for part in ("mean", "sd", "p95")]
            pairs = zip(ours, paper, strict=True)
            lines.append([f"{centre} in {scenario}", *(f"{_shown(a)} ({b:g})" for a, b in pairs)])
    head = [f"{part}{name}" for name in ("BSLD", "SLD", "WAIT") for part in ("", "SD ", "P95 ")]
    return titled("Table 8.1, separate centres, ours (GUIM)", ["CENTRE", *head], lines)


def _jobs_table(groups: Numbers) -> str:
    """Table 8.3: jobs by centre in ALL-SJBF, the paper's numbers in brackets."""
    lines, centres = [], list[str]()
    for (scenario, policy), numbers in groups.items():
        if scenario == "ALL-SJBF":
            paper = PAPER.table_8_3.get(policy, {})
            cells = [
                f"{jobs:g}" + (f" ({paper[centre]})" if centre in paper else "")
                for centre, jobs in numbers["jobs_by_centre"].items()
            ]
            centres = [*numbers["jobs_by_centre"]]
            lines.append([policy, *cells])
    title = "Table 8.3, jobs by centre in ALL-SJBF, ours (GUIM)"
    return titled(title, ["POLICY", *centres], lines)


def _errors(groups: Numbers) -> dict[str, dict[str, Any]]:
    """Errors of predictions by scenario, policy and variable; see `prediction_errors`."""
    data: dict[str, dict[str, Any]] = {}
    for (scenario, policy), numbers in groups.items():
        if numbers["prediction_errors"]:
            data.setdefault(scenario, {})[policy] = numbers["prediction_errors"]
    return data


def _errors_table(groups: Numbers) -> str:
    """Table 8.5: errors of predictions in percent, the paper's numbers in brackets."""
    lines, errors = [], _errors(groups)
    for (scenario, policy, variable), paper in keyed(PAPER.table_8_5).items():
        ours = errors.get(scenario, {}).get(policy, {}).get(variable)
        if ours is not None:
            values = [ours[key] for key in ("p95", "median", "iqr")]
            cells = [f"{_shown(a)} ({b:g})" for a, b in zip(values, paper, strict=True)]
            tenths = [_shown(ours["medians"][i]) for i in (0, -1)]
            lines.append([scenario, policy, variable, *cells, *tenths])
    head = ["SCENARIO", "POLICY", "VARIABLE", "P95", "MEDIAN", "IQR", "FIRST TENTH", "LAST TENTH"]
    title = (
        "Table 8.5, errors of predictions in percent, ours (GUIM); medians of the first and the"
        " last tenth of the jobs"
    )
    return titled(title, head, lines, 3)


def _errors_csv(groups: Numbers) -> bytes:
    """Medians of the errors over time (figure 8.14), a line for each part of the jobs."""
    lines = (
        (scenario, policy, variable, part, f"{median:.6g}")
        for scenario, policies in _errors(groups).items()
        for policy, variables in policies.items()
        for variable, errors in variables.items()
        for part, median in enumerate(errors["medians"], 1)
    )
    return of_rows(("scenario", "policy", "variable", "part", "median_pct"), lines).csv()


def _queues_csv(groups: Numbers) -> bytes:
    """Queued jobs over time: one line for each scenario, policy, centre and time."""
    lines = (
        (scenario, policy, centre, f"{i * QUEUE_EVERY_S:g}", count)
        for (scenario, policy), numbers in groups.items()
        for centre, queued in numbers["queues"].items()
        for i, count in enumerate(queued)
    )
    return of_rows(("scenario", "policy", "centre", "time_s", "queued"), lines).csv()


def _picture(numbers: Numbers, scenario: str = "ALL-SJBF") -> dict[str, bytes]:
    """Draw queued jobs by centre, a line for each policy (figures 8.8 and 8.9), by file name.

    If the scenario was not run, the first one that was is drawn.
    """
    from scheduler.pictures import encode_all, new_figure, reduce_frame  # late: loads matplotlib

    names = [name for name, _ in numbers]
    chosen = scenario if scenario in names else names[0]
    policies = {policy: run["queues"] for (name, policy), run in numbers.items() if name == chosen}
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
    return encode_all({"queues": figure})


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"

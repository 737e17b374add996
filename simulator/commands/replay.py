"""``reshape replay``: the journal of a live run, replayed as it was or simulated under changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import click
import msgspec

from reshape.cli.options import WholeRange, example
from reshape.errors import ConfigError
from reshape.speedup import FORMS, Formula, Tabulated, parse
from scheduler.journal.journal_reader import Batch, reading
from scheduler.journal.replay import Comparison, compare
from scheduler.policies.scenarios import changed, scenario
from scheduler.text.formats import counted
from simulator import live_runs
from simulator.commands.options import given, json_option, set_fields
from simulator.engine.costs import Costs
from simulator.results.schedule import Metrics

#: A replay of this many batches shows a progress bar.
MANY = 20_000

#: Metrics in the text, with their labels.
_SHOWN = {
    "jobs": "jobs",
    "mean_turnaround_s": "mean turnaround, s",
    "mean_wait_s": "mean wait, s",
    "mean_execution_s": "mean execution, s",
    "makespan_s": "makespan, s",
    "utilization": "utilisation",
    "expansions": "expansions",
    "contractions": "contractions",
}


#: Metrics in the result, in this order.
_METRICS = (
    "jobs", "mean_wait_s", "mean_execution_s", "mean_turnaround_s", "mean_bounded_slowdown",
    "tau_s", "utilization", "makespan_s", "expansions", "contractions", "killed", "unstarted",
)  # fmt: skip

#: Steps whose time depends on the number of processes, with their labels.
_STEPS = {
    "start": "start of a job",
    "end": "end of a job",
    "point": "resize point",
    "group": "new group",
    "join": "join",
    "leave": "leave",
}


def _formula(text: str) -> Formula:
    """Read a speedup model that holds for every size."""
    try:
        model = parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if isinstance(model, Tabulated):
        raise click.BadParameter("sizes never run need a formula, not a table")
    return model


@click.command()
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--policy", help="Simulate the run under this scenario.")
@click.option(
    "--set",
    "fields",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Simulate the run with this field of its scenario changed.",
)
@click.option(
    "--predict",
    is_flag=True,
    help="Simulate the run from its submissions; only jobs whose command lines do not state their"
    " times use measured ones.",
)
@click.option(
    "--costs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Journal of another run that gives the times of starts, joins, moves and ends; may be"
    " repeated.  [default: JOURNAL]",
)
@click.option(
    "--runs",
    type=WholeRange(min=1),
    default=50,
    show_default=True,
    help="Number of simulations that are averaged; each draws its costs from the measured ones.",
)
@click.option(
    "--speedup",
    type=_formula,
    metavar="MODEL",
    default="prio",
    show_default=True,
    help=f"Speedup model for sizes on which a job never ran: {FORMS.partition(' or ')[0]}.",
)
@json_option
@example(
    "reshape replay ~/.reshape",
    "reshape replay journal.db --policy easy",
    "reshape replay journal.db --set resizing.min_benefit=0.2 --json",
)
def replay(
    journal: Path,
    policy: str | None,
    fields: tuple[str, ...],
    predict: bool,
    costs: tuple[Path, ...],
    runs: int,
    speedup: Formula,
    as_json: bool,
) -> None:
    """Replay JOURNAL, the journal of a service or its directory.

    The decision core handles the events again, and every order is compared with the recorded one.
    The exit code is 1 at the first difference, which is printed with the reasons.

    With --policy or --set the run is simulated from its submissions and the iteration times and
    resize costs measured in it; with --predict from its submissions and the times of starts,
    resizes and ends, measured in it or in the journals of --costs.
    """
    simulates = policy is not None or bool(fields) or predict
    for name, option in given().items():
        if not simulates and name in ("costs", "runs", "speedup"):
            raise click.UsageError(
                f"{option} applies to a simulation; give --policy, --set or --predict"
            )
    with reading(journal) as records:
        batches, damage = records.readable_batches()
        submissions = (
            {n: each.submission for n, each in records.launches().items()} if predict else {}
        )
    comparison = compare(_shown(batches))
    result = msgspec.to_builtins(comparison)
    result |= {"identical": comparison.difference is None, "damage": damage}
    if simulates:
        run = live_runs.RecordedRun.of(batches)
        base = run.core.scenario if policy is None else policy
        try:
            own = scenario(base) if isinstance(base, str) else base
            own_scenario = changed(own, set_fields(fields))
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        cost = live_runs.costs(*map(_other, costs)) if costs else live_runs.costs(run)
        simulated = {}
        if policy is not None or fields:
            jobs = live_runs.measured(run, speedup)
            simulated["what_if"] = live_runs.simulate(run, own_scenario, jobs, cost, runs)
        if predict:
            jobs = live_runs.submitted(run, submissions, cost, speedup)
            simulated["predicted"] = live_runs.simulate(run, own_scenario, jobs, cost, runs)
            result["as_measured"] = live_runs.as_measured(run, submissions)
        result |= {"scenario": own_scenario.name, "left_out": run.left_out, "runs": runs}
        result |= _outcomes(run.schedule.metrics(), simulated) | {"costs": _costs(cost)}
    click.echo(msgspec.json.encode(result).decode() if as_json else _text(comparison, result))
    if damage:
        click.echo(f"reshape: the journal's end is missing: {damage}", err=True)
    sys.exit(comparison.difference is not None)


def _shown(batches: list[Batch]) -> Iterator[Batch]:
    """Yield the batches, with a progress bar on a terminal if there are many."""
    if len(batches) < MANY or not sys.stderr.isatty():
        yield from batches
        return
    with click.progressbar(batches, label="replay", file=sys.stderr) as bar:
        yield from bar


def _other(journal: Path) -> live_runs.RecordedRun:
    with reading(journal) as records:
        return live_runs.RecordedRun.of(records.batches())


def _outcomes(live: Metrics, simulated: dict[str, tuple[Metrics, float]]) -> dict[str, Any]:
    """Metrics of the live run and means of the simulated ones, as plain data."""
    facts: dict[str, Any] = {"live": _named(live)}
    facts |= {name: _named(means) for name, (means, _) in simulated.items()}
    facts["spread_pct"] = {name: spread_pct for name, (_, spread_pct) in simulated.items()}
    if "predicted" in simulated:
        facts["error_pct"] = live_runs.error_pct(live, simulated["predicted"][0])
    return facts


def _named(metrics: Metrics) -> dict[str, Any]:
    """Metrics by their names in the result of a replay."""
    values = msgspec.structs.asdict(metrics)
    values["tau_s"] = values["tau"]
    return {name: values[name] for name in _METRICS}


def _costs(cost: Costs) -> dict[str, Any]:
    """Costs of the simulations as plain data, without the single measurements."""
    facts: dict[str, Any] = msgspec.to_builtins(cost)
    for step in facts.values():
        if isinstance(step, dict):
            del step["spread"]
    return facts


def _text(comparison: Comparison, result: dict[str, Any]) -> str:
    """Result as text."""
    first = comparison.difference
    identical = f"{counted(comparison.decisions, 'decision')} identical"
    if first is None:
        resizes = counted(comparison.resizes, "resize")
        lines = [f"{counted(comparison.events, 'event')}, {identical}, {resizes} among them"]
    else:
        lines = [f"after {identical} the first that is not (batch {first.batch}):", *first.lines]
    columns = [name for name in ("live", "what_if", "predicted") if name in result]
    if not columns:
        return "\n".join(lines)
    if result["left_out"]:
        jobs = ", ".join(map(str, result["left_out"]))
        lines.append(f"left out, as they never started or have not ended: jobs {jobs}")
    if result.get("as_measured"):
        jobs = ", ".join(map(str, result["as_measured"]))
        lines.append(f"predicted by measured times, as their command lines tell none: jobs {jobs}")
    lines += _cost_lines(result)
    lines.append(f"{'':20}" + "".join(f"{name.replace('_', '-'):>12}" for name in columns))
    for field, label in _SHOWN.items():
        values = [result[name][field] for name in columns]
        shown = [f"{v:12.3f}" if isinstance(v, float) else f"{v:12}" for v in values]
        lines.append(f"{label:20}" + "".join(shown))
    if "error_pct" in result:
        error = result["error_pct"]
        lines.append(f"error of the predicted mean turnaround: {error:+.1f} %")
    return "\n".join(lines)


def _cost_lines(result: dict[str, Any]) -> list[str]:
    """Costs of the simulations and their spread, as lines of text."""
    cost, times = result["costs"], "once" if result["runs"] == 1 else f"{result['runs']} times"
    lines = [f"simulated {times}: scenario {result['scenario']}; seconds that the machine takes:"]
    for name, label in _STEPS.items():
        step = cost[name]
        per_process = f" + {step['each_s']:.3f} a process" if step["each_s"] else ""
        lines.append(f"    {label:16}{step['fixed_s']:.3f}{per_process}")
    if cost["bytes_per_s"] < inf:
        lines.append(f"    {'move':16}{cost['bytes_per_s'] / 1e6:.0f} MB/s")
    for name, spread in result["spread_pct"].items():
        if result["runs"] > 1:
            what = name.replace("_", "-")
            lines.append(f"{what}: mean turnarounds of the simulations differ by {spread:.1f} %")
    return lines

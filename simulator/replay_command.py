"""``reshape replay``: a live run's journal through the core again, as it was or as it could be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import click
import msgspec

from reshape.errors import ReshapeError
from reshape.helptext import example
from reshape.speedup import FORMS, Formula, Tabulated, parse
from scheduler.policies.scenario import Scenario
from scheduler.replay.compare import Comparison, compare
from scheduler.replay.journal import Batch, reading
from simulator import recorded
from simulator.metrics import Result
from simulator.options import scenario_of, set_fields

#: A replay of so many batches takes long enough to show how far it is.
MANY = 20_000

#: What a re-simulated run is compared by, and how people call it.
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


class FormulaText(click.ParamType[Formula]):
    """A speedup model that holds for every size."""

    name = "MODEL"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Formula:
        """Read the text of an option."""
        try:
            model = parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if isinstance(model, Tabulated):
            self.fail("sizes never run need a formula, not a table", param, ctx)
        formula: Formula = model
        return formula


@click.command()
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--policy", help="What if this scenario had decided? Simulated anew.")
@click.option(
    "--set", "fields", multiple=True, metavar="FIELD=VALUE", help="What if, field by field."
)
@click.option("--predict", is_flag=True, help="Simulate what the submissions alone tell.")
@click.option(
    "--costs",
    type=click.Path(path_type=Path),
    help="Journal to measure starts, joins, moves and ends in, instead of this one.",
)
@click.option(
    "--speedup",
    type=FormulaText(),
    default="prio",
    show_default=True,
    help=f"For sizes a job never ran on: {FORMS.partition(' or ')[0]}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    costs: Path | None,
    speedup: Formula,
    as_json: bool,
) -> None:
    """Replay JOURNAL, the journal of a service or its directory.

    Its events go through the decision core again, and every order is compared with the one of
    then. The exit code is 1 at the first difference, which is printed with the reasons.

    With --policy or --set the run is simulated anew, from its submissions and the iteration times
    and resize costs measured in it; with --predict from its submissions alone.
    """
    with reading(journal) as records:
        batches, damage = records.salvaged()
        if damage and not batches:
            raise ReshapeError(damage)
        submissions = {job: its for job, _, its in records.jobs()} if predict else {}
    told = compare(_shown(batches))
    result = _facts(told, damage)
    if policy is not None or fields or predict:
        run = recorded.Recorded.of(batches)
        chosen = _chosen(run.core.scenario, policy, fields)
        cost = recorded.overheads(run if costs is None else _other(costs))
        runs = {"live": run.result()}
        if policy is not None or fields:
            jobs = recorded.measured(run, speedup)
            runs["what_if"] = recorded.simulate(run, chosen, jobs, cost)
        if predict:
            jobs = recorded.submitted(run, submissions, cost)
            runs["predicted"] = recorded.simulate(run, chosen, jobs, cost)
        result |= _outcomes(runs, run, chosen, cost)
    click.echo(msgspec.json.encode(result).decode() if as_json else _text(told, result))
    if damage:
        click.echo(f"reshape: the journal's end is missing: {damage}", err=True)
    sys.exit(told.difference is not None)


def _shown(batches: list[Batch]) -> Iterator[Batch]:
    """Give the batches, with a bar for people if there are many."""
    if len(batches) < MANY or not sys.stderr.isatty():
        yield from batches
        return
    with click.progressbar(batches, label="replay", file=sys.stderr) as bar:
        yield from bar


def _chosen(base: Scenario, policy: str | None, fields: tuple[str, ...]) -> Scenario:
    """Scenario of a run that is simulated anew: that of the journal, unless said otherwise."""
    return scenario_of(base if policy is None else policy, set_fields(fields))


def _other(journal: Path) -> recorded.Recorded:
    with reading(journal) as records:
        return recorded.Recorded.of(records.batches())


def _facts(told: Comparison, damage: str) -> dict[str, Any]:
    """What a replay found, for programs."""
    found = told.difference
    return {
        "events": told.events,
        "decisions": told.decisions,
        "resizes": told.resizes,
        "identical": found is None,
        "difference": None if found is None else {"batch": found.batch, "lines": found.lines},
        "damage": damage,
    }


def _outcomes(
    runs: dict[str, Result], run: recorded.Recorded, chosen: Scenario, cost: recorded.Overheads
) -> dict[str, Any]:
    """Metrics of the live and the simulated runs, and what they rest on, for programs."""
    metrics = {name: result.metrics() for name, result in runs.items()}
    facts: dict[str, Any] = {name: msgspec.to_builtins(its) for name, its in metrics.items()}
    facts |= {"scenario": chosen.name, "left_out": run.left_out}
    facts["costs"] = msgspec.to_builtins(cost)
    if "predicted" in metrics:
        facts["error_pct"] = recorded.error_pct(metrics["live"], metrics["predicted"])
    return facts


def _text(told: Comparison, result: dict[str, Any]) -> str:
    """Lines for people."""
    found = told.difference
    identical = f"{told.decisions} decisions identical"
    if found is None:
        lines = [f"{told.events} events, {identical}, {told.resizes} of them resizes"]
    else:
        lines = [f"after {identical} the first that is not (batch {found.batch}):", *found.lines]
    columns = [name for name in ("live", "what_if", "predicted") if name in result]
    if not columns:
        return "\n".join(lines)
    if result["left_out"]:
        jobs = ", ".join(map(str, result["left_out"]))
        lines.append(f"left out, as they never started or have not ended: jobs {jobs}")
    cost = result["costs"]
    rate = cost["resize"]["bytes_per_s"]
    lines.append(
        f"simulated: scenario {result['scenario']}; a start takes {cost['start_s']:.3f} s, an end"
        f" {cost['end_s']:.3f} s, a resize point {cost['point_s']:.3f} s,"
        f" a new group {cost['resize']['start_s']:.3f} s, a join {cost['resize']['join_s']:.3f} s"
        + (f", {rate / 1e6:.0f} MB/s" if rate < inf else "")
    )
    lines.append(f"{'':20}" + "".join(f"{name.replace('_', '-'):>12}" for name in columns))
    for field, label in _SHOWN.items():
        values = [result[name][field] for name in columns]
        shown = [f"{v:12.3f}" if isinstance(v, float) else f"{v:12}" for v in values]
        lines.append(f"{label:20}" + "".join(shown))
    if "error_pct" in result:
        error = result["error_pct"]
        lines.append(f"error of the predicted mean turnaround: {error:+.1f} %")
    return "\n".join(lines)

"""The options of ``reshape simulate``: which apply together, and the scenario they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from reshape.cli.options import FiniteRange, Seconds, WholeRange
from reshape.errors import nearest
from scheduler.model.sharing import PenaltyRule, Windows
from scheduler.policies.registry import known, name_of
from scheduler.policies.scenario import Scenario
from scheduler.policies.selection.first_fit import FirstFit
from simulator.commands.options import (
    F,
    first_option,
    json_option,
    lenient_option,
    processors_option,
    rule_options,
    scenario_of,
    set_fields,
)
from simulator.commands.pools import pool_options
from simulator.commands.resizable_options import resizable_options
from simulator.commands.statistics_options import statistics_options
from simulator.traces.normalise import Rules
from simulator.workloads.resizable_trace import Resizability

#: Options that apply to several centres; the others are refused.
APPLY_TO_CENTRES = frozenset(
    ("trace", "machine_file", "assign", "dispatch", "estimates", "first", "tau", "lenient", "out",
     "as_json", "statistic", "sample", "seed", *Resizability.__struct_fields__)
)  # fmt: skip
EXACT = "exact"  #: Estimates that are the run times.
COUNT = "count"  #: Selection of machines whose processors are counted.
#: Options for workload files; for several centres; for shared nodes; for resizable jobs of traces.
OF_FILES = frozenset(
    ("trace", "processors", "policy", "reservations", "queue_order", "backfill_order", "estimates",
     "kill_at_reservation", "fields", "tau", "out", "as_json", "seed", "statistic", "sample",
     "price", "pools", "pool_wait", "advance_file", "machine_file", "sharing", "penalty",
     "overtime", "demand_error", "event_order", "select", "contiguity_speedup",
     "dispersal_exponent", "dispersal", "paraver")
)  # fmt: skip
OF_CENTRES = frozenset(("assign", "dispatch"))
OF_SHARING = frozenset(("penalty", "overtime", "demand_error"))
WITH_RESIZABLE = frozenset(
    ("speedup", "iterations", "expand_most", "expand_step", "data_mib", "cost", "seed")
)

_SCENARIO = (
    processors_option,
    click.option(
        "--policy",
        default="easy",
        show_default=True,
        help="Name of a scenario, or of a resizing policy.",
    ),
    click.option(
        "--reservations",
        type=WholeRange(min=0),
        help="Number of queued jobs that hold a reservation.",
    ),
    click.option("--queue-order", help="Queue order: fcfs, sjf, lxwf, priority or another name."),
    click.option(
        "--backfill-order",
        help="Order in which EASY tries the jobs behind the head; names as for --queue-order.",
    ),
    click.option(
        "--estimates",
        help="Estimates of run times: user, exact (the run times), tsafrir or another name; see"
        " docs/predictions.md.",
    ),
    click.option(
        "--event-order",
        type=click.Choice(["batch", "sequential"]),
        default="batch",
        show_default=True,
        help="Run one scheduling pass for each instant, or one for each event.",
    ),
)
_PLACES = (
    click.option(
        "--select",
        default=COUNT,
        show_default=True,
        help="Processor selection: first-fit, tree, submesh or another name, see"
        " docs/machines.md; count does not distinguish processors.",
    ),
    click.option(
        "--machine",
        "machine_file",
        type=click.Path(path_type=Path),
        help="Machine file: nodes and network (docs/machines.md), or several centres"
        " (docs/sites.md).",
    ),
    click.option(
        "--assign",
        default="less-waittime",
        show_default=True,
        help="Task assignment policy, which chooses the centre of each job; see docs/sites.md.",
    ),
    click.option(
        "--dispatch",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Set a field of the dispatcher, such as ask=2; see docs/sites.md.",
    ),
    click.option(
        "--contiguity-speedup",
        type=FiniteRange(min=0, max=1, max_open=True),
        help="Share by which contiguous processors shorten the run time of a job.",
    ),
    click.option(
        "--dispersal-exponent",
        type=FiniteRange(min=0),
        help="Exponent with which this share falls as processors are farther apart; see"
        " docs/machines.md.",
    ),
    click.option(
        "--dispersal",
        is_flag=True,
        help="Measure how far apart the processors of each job are.",
    ),
)
_SHARING = (
    click.option(
        "--sharing",
        type=click.Choice(get_args(Windows)),
        help="Prolong jobs that share nodes; shared windows come from a table, or are computed"
        " again at all changes; see docs/sharing.md.",
    ),
    click.option(
        "--penalty",
        type=click.Choice(get_args(PenaltyRule)),
        help="Penalty of a shared window: demand / capacity - 1 (excess), or demand / capacity"
        " (ratio).  [default: as the machine file says, else excess]",
    ),
    click.option(
        "--overtime",
        type=click.Choice(["kill", "allow"]),
        default="kill",
        show_default=True,
        help="End jobs that sharing prolongs beyond their estimates, or let them run.",
    ),
    click.option(
        "--demand-error",
        type=FiniteRange(min=0, max=1),
        default=0.0,
        help="Largest relative error of the declared demands; --seed draws the errors.",
    ),
)
_JOBS = (
    click.option(
        "--kill-at-reservation",
        is_flag=True,
        help="End overdue backfilled jobs at the time of the head's reservation.",
    ),
    click.option(
        "--set",
        "fields",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Set a field of the scenario, such as backfill.max_jobs=100.",
    ),
    click.option(
        "--advance-reservations",
        "advance_file",
        type=click.Path(path_type=Path),
        help="YAML file of advance reservations; see docs/reservations.md.",
    ),
    first_option,
    click.option(
        "--tau",
        type=Seconds(),
        default=60.0,
        show_default=True,
        help="Bound of the bounded slowdown, in seconds or such as 1min.",
    ),
)
_RESULTS = (
    click.option("--out", type=click.Path(path_type=Path), help="Directory for all results."),
    click.option(
        "--swf",
        "swf_file",
        type=click.Path(path_type=Path),
        help="File for the trace with the simulated waits.",
    ),
    click.option(
        "--paraver",
        is_flag=True,
        help="Also write a Paraver trace to --out; it may be large.",
    ),
    json_option,
)


def simulate_options(command: F) -> F:
    """Add all options of ``reshape simulate`` to a command."""
    for add in reversed(
        (*_SCENARIO, *_PLACES, *_SHARING, *_JOBS, statistics_options, pool_options,
         resizable_options, rule_options, lenient_option, *_RESULTS)
    ):  # fmt: skip
        command = add(command)
    return command


def given() -> dict[str | None, str]:
    """Options on the command line: name of the parameter -> option."""
    context = click.get_current_context()
    return {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    }


def check_centres() -> None:
    """Refuse options that do not apply to a machine of several centres."""
    for name, option in given().items():
        if name not in APPLY_TO_CENTRES and not (name or "").startswith("rule_"):
            raise click.UsageError(
                f"{option} does not apply to several centres; leave it out, or set it for each"
                " centre in the machine file"
            )


def check_kind(of_file: bool, made_resizable: bool) -> None:
    """Refuse options that do not apply to this kind of workload."""
    on_line = given()
    for name, option in on_line.items():
        if name in OF_CENTRES and "machine_file" not in on_line:
            raise click.UsageError(f"{option} needs --machine with several centres")
        if of_file and name not in OF_FILES:
            raise click.UsageError(f"{option} does not apply to a workload file; leave it out")
        if name in OF_SHARING and "sharing" not in on_line:
            raise click.UsageError(f"{option} needs --sharing; give it as well")
        if name == "pool_wait" and "pools" not in on_line:
            raise click.UsageError(f"{option} needs --pool; give it as well")
        if name == "seed" and on_line.keys() & {"demand_error", "pools"}:
            continue
        if not of_file and not made_resizable and name in WITH_RESIZABLE:
            raise click.UsageError(f"{option} needs --resizable; give it as well")


def estimates_name(name: str) -> str:
    """Name of the class of estimates that ``--estimates`` names; exact ones are walltimes.

    Raises
    ------
    click.UsageError : there are no such estimates.
    """
    names = known("estimates")
    if name != EXACT and name not in names and ":" not in name:
        raise click.UsageError(f"unknown estimates {name!r}{nearest(name, (EXACT, *names))}")
    return "user" if name == EXACT else name


def chosen_scenario(options: dict[str, Any], rules: Rules) -> Scenario:
    """Scenario that the options describe.

    Raises
    ------
    click.UsageError : a wrong name or value, or options that contradict each other.
    """
    changes: dict[str, Any] = {}
    named = {"scenario": "--policy"}
    for option, field in (
        ("reservations", "backfill.reservations"),
        ("queue_order", "order"),
        ("backfill_order", "backfill_order"),
        ("select", "selection"),
    ):
        if options[option] is not None and (option, options[option]) != ("select", COUNT):
            changes[field] = options[option]
            named[field] = f"--{option.replace('_', '-')}"
    if options["estimates"] is not None:
        changes["estimates"] = estimates_name(options["estimates"])
        named["estimates"] = "--estimates"
    if options["kill_at_reservation"]:
        changes["backfill.kill_at_reservation"] = True
    base, fields = scenario_of(options["policy"], {}, named), set_fields(options["fields"])
    named = {field: option for field, option in named.items() if field not in fields}
    chosen = scenario_of(base, changes | fields, named)
    _check_contradictions(options, rules, base, chosen)
    return chosen


def _check_contradictions(
    options: dict[str, Any], rules: Rules, base: Scenario, chosen: Scenario
) -> None:
    """Refuse options that contradict each other or would be ignored."""
    asked, named = options["reservations"], base.backfill.reservations
    if asked is not None and named != 1 and asked != named:
        raise click.UsageError(
            f"--policy {options['policy']} is backfilling of "
            f"{'all' if named is None else named} reservations, not of {asked};"
            " give --policy easy with --reservations"
        )
    if options["processors"] is not None and options["machine_file"] is not None:
        raise click.UsageError("--machine names the number of processors; leave --processors out")
    if options["contiguity_speedup"] is not None and options["select"] == COUNT:
        raise click.UsageError(
            "--contiguity-speedup with --select count: jobs have no places; give --select tree or"
            " another that allocates individual processors"
        )
    if options["dispersal"] and (options["select"] == COUNT or options["machine_file"] is None):
        raise click.UsageError(
            "--dispersal: jobs have no places in a network; give --machine FILE and --select"
        )
    if chosen.selection.topology and options["machine_file"] is None:
        raise click.UsageError(
            f"--select {options['select']} needs a machine with a network; give --machine FILE"
        )
    if chosen.backfill.kills_overdue and rules.overrun != "keep":
        field = "--set backfill.kill_at_reservation=true"
        option = "--kill-at-reservation" if options["kill_at_reservation"] else field
        raise click.UsageError(
            f"{option} with --overrun {rules.overrun}: no job exceeds its estimate;"
            " give --overrun keep"
        )
    if options["select"] == COUNT and "select" in given() and chosen.selection != FirstFit():
        raise click.UsageError(
            f"--select count: the selection {name_of('selection', chosen.selection)} would have no"
            " effect; leave --select out"
        )

"""The options of ``reshape simulate``, and the experiment that they describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from reshape.cli.options import FiniteRange, Seconds, WholeRange
from reshape.errors import ConfigError
from scheduler.model.sharing import PenaltyRule, Windows
from scheduler.policies.registry import name_of
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.policies.selection.first_fit import FirstFit
from simulator.commands.options import (
    F,
    first_option,
    json_option,
    lenient_option,
    processors_option,
    rule_options,
    set_fields,
)
from simulator.commands.resizable_options import OF_RESIZABLE, resizable_options
from simulator.commands.statistics_options import statistics_options
from simulator.experiment.experiment import Experiment
from simulator.experiment.jobs import Jobs

COUNT = "count"  #: Selection of machines whose processors are counted.
#: Option -> field of an experiment, or of its jobs, for messages.
_FIELDS = {
    "--policy": "scenario",
    "--queue-order": "queue_order",
    "--backfill-order": "backfill_order",
    "--estimates": "estimates",
    "--select": "select",
    "--event-order": "event_order",
    "--processors": "processors",
    "--machine": "machine",
    "--assign": "assign",
    "--dispatch": "dispatch",
    "--contiguity-speedup": "contiguity",
    "--dispersal": "dispersal",
    "--sharing": "sharing",
    "--advance-reservations": "advance_reservations",
    "--pool": "pool",
    "--pool-wait": "pool_wait",
    "--seed": "seed",
    "--tau": "tau_s",
    "--jobs": "first",
    "--lenient": "lenient",
    "--resizable": "resizable",
}

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


_POOLS = (
    click.option(
        "--pool",
        "pools",
        multiple=True,
        metavar="NAME=VALUE,...",
        help="The nodes come from an elastic pool: nodes=1-8,time_limit=2:00:00,processors=4, "
        "...; several pools are compared. See docs/pool.md.",
    ),
    click.option(
        "--pool-wait",
        default="0",
        metavar="TIME|TRACE",
        show_default=True,
        help="Wait of an allocation in the batch system, or a trace with waits; see --seed.",
    ),
)


def simulate_options(command: F) -> F:
    """Add all options of ``reshape simulate`` to a command."""
    for add in reversed(
        (*_SCENARIO, *_PLACES, *_SHARING, *_JOBS, statistics_options, *_POOLS,
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


def described(source: Path, options: Mapping[str, Any], pool: str | None) -> Experiment:
    """Experiment that the options describe.

    Parameters
    ----------
    source : trace or workload file.
    pool : one of the pools that are compared; None: there is none.

    Raises
    ------
    click.UsageError : a wrong name or value, or options that do not go together.
    """
    on_line = given()
    for whole, parts in (
        ("sharing", ("penalty", "overtime", "demand_error")),
        ("resizable", tuple(OF_RESIZABLE)),
        ("contiguity_speedup", ("dispersal_exponent",)),
    ):
        for name in parts:
            if name in on_line and whole not in on_line:
                option = f"--{whole.replace('_', '-')}"
                raise click.UsageError(f"{on_line[name]} needs {option}; give it as well")
    scenario = _scenario(options)
    fields: dict[str, Any] = {
        "scenario": scenario if "policy" in on_line or len(scenario) > 1 else "easy",
        "select": None if options["select"] == COUNT else options["select"],
        "machine": options["machine_file"],
        "advance_reservations": options["advance_file"],
        "assign": options["assign"] if "assign" in on_line else None,
        "pool": pool,
        "pool_wait": options["pool_wait"] if "pool_wait" in on_line else 0,
        "dispatch": set_fields(options["dispatch"]),
        "tau_s": options["tau"],
    }
    for name in (
        "processors", "queue_order", "backfill_order", "estimates", "event_order", "dispersal",
        "seed",
    ):  # fmt: skip
        fields[name] = options[name]
    if options["contiguity_speedup"]:
        fields["contiguity"] = {"speedup": options["contiguity_speedup"]}
        if options["dispersal_exponent"] is not None:
            fields["contiguity"]["exponent"] = options["dispersal_exponent"]
    if options["sharing"] is not None:
        fields["sharing"] = {
            "windows": options["sharing"],
            "penalty": options["penalty"],
            "overtime": options["overtime"],
            "demand_error": options["demand_error"],
        }
    with options_named(options):
        made = Experiment(_jobs(source, options), **fields)
    _check_counted(made, options)
    return made


def _jobs(source: Path, options: Mapping[str, Any]) -> Jobs:
    """Jobs that the options describe."""
    on_line = given()
    jobs = Jobs.read(source, lenient=options["lenient"])
    rules = {
        name.removeprefix("rule_"): value
        for name, value in options.items()
        if name.startswith("rule_") and name in on_line
    }
    if rules:
        jobs = jobs.with_rules(**rules)
    if options["first"] is not None:
        jobs = jobs.first(options["first"])
    if options["resizable"]:
        how = {name: options[name] for name in OF_RESIZABLE}
        jobs = jobs.with_resizable(options["resizable"], **how)
    return jobs


def _scenario(options: Mapping[str, Any]) -> dict[str, Any]:
    """Name of the scenario, and the fields that options change."""
    name, fields = options["policy"], set_fields(options["fields"])
    changes: dict[str, Any] = {"name": name}
    asked = options["reservations"]
    if asked is not None:
        named = _base(name).backfill.reservations
        if named not in (1, asked):
            raise click.UsageError(
                f"--policy {name} is backfilling of {'all' if named is None else named}"
                f" reservations, not of {asked}; give --policy easy with --reservations"
            )
        changes["backfill.reservations"] = asked
    if options["kill_at_reservation"]:
        changes["backfill.kill_at_reservation"] = True
    return changes | fields


def _base(name: str) -> Scenario:
    try:
        return scenario(name)
    except ConfigError as error:
        raise click.UsageError(f"--policy: {error.message}") from None


def _check_counted(made: Experiment, options: Mapping[str, Any]) -> None:
    """Refuse ``--select count`` where it would have no effect."""
    if options["select"] != COUNT or "select" not in given():
        return
    if made.single_jobs:
        raise click.UsageError(
            "--select count: resizable jobs get individual processors; give --select first-fit, or"
            " leave it out"
        )
    if made.centres is None and made.chosen.selection != FirstFit():
        name = name_of("selection", made.chosen.selection)
        raise click.UsageError(
            f"--select count: the selection {name} would have no effect; leave --select out"
        )


@contextmanager
def options_named(options: Mapping[str, Any]) -> Iterator[None]:
    """Let errors of an experiment name the option in place of the field.

    Raises
    ------
    click.UsageError : in place of an error that names a field and no file.
    """
    try:
        yield
    except ConfigError as error:
        field, on_line = error.field or "", given()
        if error.file is not None or not field:
            raise
        option = {name: option for option, name in _FIELDS.items()}.get(field, "")
        if field == "rules":
            option = next(o for name, o in on_line.items() if (name or "").startswith("rule_"))
        elif field == "pool":
            option = f"--pool {' '.join(options['pools'])}"
        text = f"{option}: {error.message}" if option else str(error)
        raise click.UsageError(text) from None

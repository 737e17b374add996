"""The options of ``reshape simulate``, and the experiment that they describe."""

from __future__ import annotations

import json
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
from scheduler.policies.scenarios import by_partition, scenario
from scheduler.policies.selection.first_fit import FirstFit
from scheduler.text.located import FieldPath, Located, Origin
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
from simulator.experiment.jobs import field_of
from simulator.experiment.settings import Settings
from simulator.traces.normalise import Rules
from simulator.traces.partitions import PartitionField
from simulator.workloads import workload_file

COUNT = "count"  #: Selection of machines whose processors are counted.
#: Parameter of the command -> path in the data of an experiment that it sets.
_PATHS: dict[str, FieldPath] = {
    "policy": ("scenario", "name"),
    "reservations": ("scenario", "backfill", "reservations"),
    "kill_at_reservation": ("scenario", "backfill", "kill_at_reservation"),
    "machine_file": ("machine",),
    "advance_file": ("advance_reservations",),
    "tau": ("tau_s",),
    "contiguity_speedup": ("contiguity", "speedup"),
    "dispersal_exponent": ("contiguity", "exponent"),
    "sharing": ("sharing", "windows"),
    "first": ("jobs", "first"),
    "lenient": ("jobs", "lenient"),
    "resizable": ("jobs", "resizable", "share"),
    **{name: ("sharing", name) for name in ("penalty", "overtime", "demand_error")},
    **{name: ("jobs", "resizable", name) for name in OF_RESIZABLE},
    **{f"rule_{name}": ("jobs", "rules", name) for name in Rules.__struct_fields__},
    **{
        name: (name,)
        for name in (
            "processors", "queue_order", "backfill_order", "estimates", "select", "event_order",
            "assign", "dispersal", "pool_wait", "load", "seed", "partition_field",
        )
    },
}  # fmt: skip
#: Fields of an experiment that ``--set`` names; other names are fields of the scenario.
_OWN_FIELDS = frozenset(Settings.__struct_fields__) - frozenset(Scenario.__struct_fields__)
#: Path that must be set -> the options that need it, and the option that sets it.
_NEEDED: dict[FieldPath, tuple[tuple[str, ...], str]] = {
    ("sharing", "windows"): (("penalty", "overtime", "demand_error"), "--sharing"),
    ("jobs", "resizable", "share"): (OF_RESIZABLE, "--resizable"),
    ("contiguity", "speedup"): (("dispersal_exponent",), "--contiguity-speedup"),
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
        "--partition-field",
        type=click.Choice(get_args(PartitionField)),
        default="partition",
        show_default=True,
        help="Field of the trace whose number n stands for the nth partition of the machine file.",
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
        help="Set a field of the scenario, such as backfill.max_jobs=100, or of the experiment,"
        " such as sharing.penalty=ratio.",
    ),
    click.option(
        "--advance-reservations",
        "advance_file",
        type=click.Path(path_type=Path),
        help="YAML file of advance reservations; see docs/reservations.md.",
    ),
    first_option,
    click.option(
        "--load",
        type=FiniteRange(min=0, min_open=True),
        help="Offered load to which the times between submissions are stretched or shortened.",
    ),
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
        "--save",
        type=click.Path(path_type=Path),
        help="File for the experiment, which simulate reads in place of TRACE.",
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
    """Experiment that a file and the options describe.

    Parameters
    ----------
    source : trace, workload file, or experiment file, of which options change fields.
    pool : one of the pools that are compared; None: there is none.

    Raises
    ------
    click.UsageError : a wrong name or value, or options that do not go together.
    """
    tree, folder = _contents(source)
    on_line = given()
    for name, option in on_line.items():
        value = options.get(name or "")
        if name in _PATHS and (name, value) not in (("select", COUNT), ("resizable", 0.0)):
            value = str(value) if isinstance(value, Path) else value
            tree.override(_PATHS[name], value, Origin(option))
    if pool is not None:
        tree.override(("pool",), pool, Origin(f"--pool {pool}"))
    for field, value in set_fields(options["dispatch"]).items():
        tree.override(("dispatch", field), value, Origin(f"--dispatch {field}"))
    for field, value in set_fields(options["fields"]).items():
        path = tuple(field.split("."))
        is_own = path[0] in _OWN_FIELDS
        tree.override(
            path if is_own else ("scenario", *path), _value(value), Origin(f"--set {field}")
        )
    for needed, (names, option) in _NEEDED.items():
        for name in names:
            if name in on_line and tree.get(needed) is None:
                raise click.UsageError(f"{on_line[name]} needs {option}; give it as well")
    _check_reservations(tree)
    with options_named():
        made = Experiment.of_tree(tree, folder)
    if options["select"] == COUNT and "select" in on_line:
        _check_counted(made)
    return made


def _contents(source: Path) -> tuple[Located, Path]:
    """Contents of an experiment file, or those that name another file, and their folder."""
    if source.suffix in workload_file.ENDINGS:
        tree = Located.read(source)
        if "jobs" in tree.values and not isinstance(tree.values["jobs"], list):
            if isinstance(tree.values["jobs"], str):
                jobs = field_of(Path(tree.values["jobs"]))
                tree.override(("jobs",), {jobs: tree.values["jobs"]}, tree.origin(("jobs",)))
            return tree, source.parent
    tree = Located()
    tree.override(("jobs", field_of(source)), str(source), Origin(str(source)))
    return tree, Path()


def _value(text: str) -> Any:
    """Value of ``--set``: a number, true, false, null, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_reservations(tree: Located) -> None:
    """Refuse a number of reservations for a policy that is defined by another one."""
    asked = tree.get(("scenario", "backfill", "reservations"))
    name = tree.get(("scenario", "name"))
    if asked is None or not isinstance(name, str) or ":" in name:
        return
    with options_named():
        named = scenario(name).backfill.reservations
    if named not in (1, asked):
        raise click.UsageError(
            f"--policy {name} is backfilling of {'all' if named is None else named} reservations,"
            f" not of {asked}; give --policy easy with --reservations"
        )


def _check_counted(made: Experiment) -> None:
    """Refuse ``--select count`` where it would have no effect."""
    if made.single_jobs:
        raise click.UsageError(
            "--select count: resizable jobs get individual processors; give --select first-fit, or"
            " leave it out"
        )
    chosen = [] if made.centres is not None else [*by_partition(made.chosen).values()]
    own = next((own.selection for own in chosen if own.selection != FirstFit()), None)
    if own is not None:
        name = name_of("selection", own)
        raise click.UsageError(
            f"--select count: the selection {name} would have no effect; leave --select out"
        )


@contextmanager
def options_named() -> Iterator[None]:
    """Let errors of an experiment be errors of the options that set the wrong fields.

    Raises
    ------
    click.UsageError : in place of an error that names an option, or a field and no file.
    """
    try:
        yield
    except ConfigError as error:
        if error.file is None and error.field:
            field, on_line = tuple(error.field.split(".")), given()
            setters = [
                on_line[name]
                for name, path in _PATHS.items()
                if name in on_line and path[: len(field)] == field
            ]
            text = f"{setters[0]}: {error.message}" if setters else str(error)
            raise click.UsageError(text) from None
        if error.file is None or not error.file.startswith("--"):
            raise
        raise click.UsageError(f"{error.file}: {error.message}") from None

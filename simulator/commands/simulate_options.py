"""The options of ``reshape simulate``, and the experiment that they describe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from reshape.cli.options import FiniteRange, WholeRange, completed
from reshape.errors import ConfigError, nearest
from reshape.speedup import FORMS
from scheduler.policies.assignment.dispatcher import DispatchRules
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.redirection import Redirection
from scheduler.policies.registry import known
from scheduler.policies.scenario import Scenario
from scheduler.text.located import FieldPath, Located, Origin, dotted
from simulator.commands.options import (
    F,
    first_option,
    json_option,
    lenient_option,
    processors_option,
    set_fields,
)
from simulator.engine.costs import ResizeCost
from simulator.engine.physics import ContiguityGain, SharingRules
from simulator.experiment.experiment import Experiment
from simulator.experiment.jobs import JobFields, field_of
from simulator.experiment.settings import QuoteRules, Settings
from simulator.traces.files import is_file
from simulator.traces.normalise import Rules
from simulator.workload_models import workload_file
from simulator.workload_models.workload import Resizable

#: Field that has fields of its own -> their type.
_BELOW: dict[str, Any] = {
    "jobs": JobFields,
    "jobs.rules": Rules,
    "jobs.resizable": Resizable,
    "jobs.resizable.cost": ResizeCost,
    "contiguity": ContiguityGain,
    "sharing": SharingRules,
    "quotes": QuoteRules,
    "dispatch": DispatchRules,
    "backfill": Backfill,
    "redirection": Redirection,
}
#: Fields that --set does not change: the name of the scenario is --policy.
_LEFT_OUT = frozenset({"name", "jobs.columns"})
_OF_EXPERIMENT, _OF_SCENARIO = Settings.__struct_fields__, Scenario.__struct_fields__


def paths() -> list[str]:
    """Names of all fields that ``--set`` takes, without the parameters of policies."""
    return _paths_of((*_OF_EXPERIMENT, *(f for f in _OF_SCENARIO if f not in _OF_EXPERIMENT)))


def _paths_of(names: tuple[str, ...], above: str = "") -> list[str]:
    made: list[str] = []
    for name in names:
        path = above + name
        if path in _BELOW:
            made += _paths_of(_BELOW[path].__struct_fields__, f"{path}.")
        elif path not in _LEFT_OUT:
            made.append(path)
    return made


def assignments(texts: tuple[str, ...]) -> list[tuple[str, FieldPath, Any]]:
    """Read the texts of ``--set``.

    Returns
    -------
    name, path in the data of an experiment and value of each field; a field comes before those
    below it, so that ``sharing=table`` and ``sharing.penalty=ratio`` go together in either order.

    Raises
    ------
    click.UsageError : a text has no field or no value, or no experiment has such a field.
    """
    read = [(name, _path(name), _value(text)) for name, text in set_fields(texts).items()]
    return sorted(read, key=lambda item: len(item[1]))


def _path(name: str) -> FieldPath:
    """Path of a field; those of the scenario are named without it."""
    steps = tuple(name.split("."))
    if steps[0] in _OF_EXPERIMENT:
        return steps
    if steps[0] in _OF_SCENARIO and name not in _LEFT_OUT:
        return ("scenario", *steps)
    ends = {path.rpartition(".")[2]: path for path in paths()}
    close = get_close_matches(steps[-1], ends, n=1)
    if close:
        hint = f"; did you mean {ends[close[0]]}?"
    else:
        hint = nearest(steps[0], {path.partition(".")[0] for path in paths()})
    raise click.UsageError(f"--set {name}: unknown field{hint}")


def _value(text: str) -> Any:
    """Value of a field: a number, true, false, null, other JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


#: Heading of the help -> parameters of the command.
HEADINGS = {
    "Scenario": (
        "policy", "queue_order", "backfill_order", "estimates", "select", "fields",
    ),
    "Machine": ("processors", "machine", "pools"),
    "Jobs": ("first", "lenient", "resizable", "speedup", "seed"),
    "Results": ("out", "swf_file", "save", "as_json"),
}  # fmt: skip
#: Parameter of the command -> path in the data of an experiment that it sets.
_PATHS: dict[str, FieldPath] = {
    "policy": ("scenario", "name"),
    "first": ("jobs", "first"),
    "lenient": ("jobs", "lenient"),
    "resizable": ("jobs", "resizable", "share"),
    "speedup": ("jobs", "resizable", "speedup"),
    **{
        name: (name,)
        for name in (
            "queue_order", "backfill_order", "estimates", "select", "processors", "machine", "seed",
        )
    },
}  # fmt: skip
#: Field that may be a name or a number -> the field below it for which that stands.
_SHORT = {
    "scenario": "name",
    "sharing": "windows",
    "contiguity": "speedup",
    **dict.fromkeys(("queue_order", "backfill_order", "estimates", "select"), "policy"),
}

_OPTIONS = (
    click.option(
        "--policy",
        metavar="NAME",
        shell_complete=completed(lambda: known("scenario")),
        default="easy",
        show_default=True,
        help="Scenario: fcfs, easy, conservative, easy++, malleable, fcfs-pr, ..., or module:Class"
        " (docs/policies.md).",
    ),
    click.option(
        "--queue-order",
        metavar="ORDER",
        help="Order: fcfs, sjf, lxwf, priority, aging or module:Class.",
    ),
    click.option(
        "--backfill-order", metavar="ORDER", help="Order in which EASY tries jobs behind the head."
    ),
    click.option(
        "--estimates",
        metavar="NAME",
        help="Run times: user, exact, or a predictor such as tsafrir (docs/predictions.md).",
    ),
    click.option(
        "--select",
        metavar="NAME",
        help="Processor selection: first-fit, tree, submesh, ... (docs/machines.md); count: do not"
        " distinguish processors.  [default: count if possible]",
    ),
    click.option(
        "--set",
        "fields",
        metavar="PATH=VALUE",
        shell_complete=completed(lambda: [f"{path}=" for path in paths()]),
        multiple=True,
        help="Set a field of the scenario, such as backfill.max_jobs=100, or of the experiment,"
        " such as sharing.penalty=ratio; repeatable.",
    ),
    processors_option,
    click.option(
        "--machine",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Nodes and network (docs/machines.md), or several centres (docs/sites.md).",
    ),
    click.option(
        "--pool",
        "pools",
        multiple=True,
        metavar="NAME=VALUE,...",
        help="Nodes from an elastic pool (docs/pool.md); several are compared.",
    ),
    first_option,
    click.option(
        "--resizable",
        metavar="SHARE",
        type=FiniteRange(0, 1),
        help="Share of the jobs of a trace that are made resizable.",
    ),
    click.option(
        "--speedup",
        metavar="MODEL",
        help=f"Speedup of the resizable jobs: {FORMS}.  [default: downey]",
    ),
    click.option(
        "--seed", type=WholeRange(min=0), metavar="NUMBER", help="Seed of all random draws."
    ),
    lenient_option,
    click.option(
        "--out", metavar="DIR", type=click.Path(path_type=Path), help="Directory for all results."
    ),
    click.option(
        "--swf",
        "swf_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Trace with the simulated waits.",
    ),
    click.option(
        "--save",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The experiment, which simulate reads in place of TRACE.",
    ),
    json_option,
)


def simulate_options(command: F) -> F:
    """Add all options of ``reshape simulate`` to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


class Described:
    """The data of an experiment: contents of a file, and what the command line changes.

    Parameters
    ----------
    source : trace, workload file, or experiment file.
    options : of the command.
    pool : one of the pools that are compared; None: there is none.

    Raises
    ------
    click.UsageError : a wrong name or value, or options that do not go together.
    """

    def __init__(self, source: Path, options: Mapping[str, Any], pool: str | None) -> None:
        self._tree, folder = _contents(source)
        self._set: dict[str, str] = {}  # option -> field that it set
        with self.errors():
            for name, option in given().items():
                if name in _PATHS:
                    value = options[name]
                    self._put(_PATHS[name], str(value) if name == "machine" else value, option)
            if pool is not None:
                self._put(("pool",), pool, f"--pool {pool}")
            for field, path, value in assignments(options["fields"]):
                self._put(path, value, f"--set {field}")
            self.experiment = Experiment.of_tree(self._tree, folder)

    def _put(self, path: FieldPath, value: Any, option: str) -> None:
        """Set a value; a field on its way that has the short form becomes a mapping."""
        top = path[:1]
        held, main = self._tree.get(top), _SHORT.get(str(path[0]))
        if len(path) > 1 and main is not None and isinstance(held, str | int | float):
            self._tree.override(top, {main: held}, self._tree.origin(top))
        self._tree.override(path, value, Origin(option))
        self._set[option] = dotted(path)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Let errors of an experiment be errors of the options that set the wrong fields.

        Raises
        ------
        click.UsageError : in place of an error that names an option, or a field and no file.
        """
        try:
            yield
        except ConfigError as error:
            option = error.file
            if option is None and error.field:
                option = self._tree.origin(tuple(error.field.split("."))).source
            if option is None:
                raise click.UsageError(str(error)) from None
            if option not in self._set:
                raise
            within = f"{self._set[option]}.".startswith(f"{error.field}.")
            where = "" if within else f"{error.field}: "
            raise click.UsageError(f"{option}: {where}{error.message}") from None


def given() -> dict[str, str]:
    """Options on the command line: name of the parameter -> option."""
    context = click.get_current_context()
    return {
        str(parameter.name): parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    }


def _contents(source: Path) -> tuple[Located, Path]:
    """Contents of an experiment file, or those that name another file, and their folder."""
    if source.suffix in workload_file.ENDINGS:
        tree = Located.read(source)
        if "jobs" in tree.values and not isinstance(tree.values["jobs"], list):
            if isinstance(tree.values["jobs"], str):
                jobs = field_of(Path(tree.values["jobs"]))
                tree.override(("jobs",), {jobs: tree.values["jobs"]}, tree.origin(("jobs",)))
            return tree, source.parent
    if not is_file(source):
        raise ConfigError("cannot be read: No such file", file=str(source))
    tree = Located()
    tree.override(("jobs", field_of(source)), str(source), Origin(str(source)))
    return tree, Path()

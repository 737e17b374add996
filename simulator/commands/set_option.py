"""``--set PATH=VALUE``: a field of an experiment or of its scenario, with names to complete."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from reshape.errors import nearest
from scheduler.policies.assignment.dispatcher import DispatchRules
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.redirection import Redirection
from scheduler.policies.scenario import Scenario
from scheduler.text.located import FieldPath
from simulator.commands.options import set_fields
from simulator.engine.costs import ResizeCost
from simulator.engine.physics import ContiguityGain, SharingRules
from simulator.experiment.jobs import JobFields, Resizable
from simulator.experiment.settings import Settings
from simulator.predictions.quote_rules import QuoteRules
from simulator.traces.normalise import Rules

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


class FieldText(click.ParamType[str]):
    """The text PATH=VALUE, of which a shell completes the path."""

    name = "PATH=VALUE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text; `assignments` reads it together with the others."""
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Paths that begin with what was typed."""
        return [CompletionItem(f"{path}=") for path in paths() if path.startswith(incomplete)]

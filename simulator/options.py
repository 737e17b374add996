"""Options of the normalisation rules, shared by the commands that read traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_type_hints

import click
import msgspec

from simulator.normalise import Rules

F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "processors": "Which number of processors counts where both are known.",
    "larger": "Jobs larger than the machine.",
    "overrun": "Runs longer than requested.",
    "without_request": "Jobs without requested time.",
    "without_run": "Jobs without run time.",
    "duplicates": "Jobs with a number seen before.",
    "ties": "Order of jobs submitted in the same second.",
    "priority": "Where a job's priority comes from.",
}


def rule_options(command: F) -> F:
    """Add an option for each rule of `Rules`."""
    hints = get_type_hints(Rules)
    for name, text in reversed(_HELP.items()):
        flag = "--size" if name == "processors" else f"--{name.replace('_', '-')}"
        option = click.option(
            flag,
            f"rule_{name}",
            type=click.Choice(get_args(hints[name])),
            default=getattr(Rules(), name),
            show_default=True,
            help=text,
        )
        command = option(command)
    return command


def rules_of(options: dict[str, Any], *, exact: bool = False) -> Rules:
    """Rules that the options name."""
    return msgspec.convert(
        {name: options[f"rule_{name}"] for name in _HELP} | {"exact": exact}, Rules
    )

"""Options of ``reshape simulate`` that make the jobs of a trace resizable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from reshape.cli.options import FiniteRange, WholeRange
from reshape.errors import ConfigError
from reshape.key_values import key_values
from reshape.speedup import FORMS, named, parse
from scheduler.text.located import converted
from simulator.engine.costs import ResizeCost
from simulator.experiment.jobs import Resizable

#: Options besides --resizable, which they need: fields of `simulator.experiment.jobs.Resizable`.
OF_RESIZABLE = tuple(name for name in Resizable.__struct_fields__ if name != "share")
F = TypeVar("F", bound=Callable[..., Any])


class ModelText(click.ParamType[str]):
    """The text of a speedup model, which is checked."""

    name = "MODEL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check the text of an option."""
        try:
            parse(value)
            return value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class CostText(click.ParamType[dict[str, str]]):
    """The cost of a resize, as fields of `ResizeCost`, which are checked."""

    name = "COST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read ``start_s=0.4,join_s=0.05,bytes_per_s=1e9``, each of which may be left out."""
        try:
            fields = value if isinstance(value, dict) else key_values(value.split(","))
            converted(fields, ResizeCost)
            return fields
        except (ConfigError, ValueError) as error:
            names = ", ".join(ResizeCost.__struct_fields__)
            self.fail(f"{value!r}: {error}; it has {names}, as in start_s=0.4,join_s=0.05", param)


def _check_performance(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """Check that a text names a performance model."""
    try:
        if text:
            named(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return text


_OPTIONS = (
    click.option(
        "--resizable",
        type=FiniteRange(0, 1),
        default=0.0,
        help="Share of the jobs of the trace that are made resizable.  [default: 0]",
    ),
    click.option(
        "--speedup",
        type=ModelText(),
        default="downey",
        show_default=True,
        help=f"Speedup model of the resizable jobs: {FORMS}.",
    ),
    click.option(
        "--performance",
        default="",
        callback=_check_performance,
        metavar="MODEL",
        help="Performance model that the scheduler uses for resizable jobs, as --speedup or"
        " module:Class,KEY=VALUE.  [default: a fit to the measurements]",
    ),
    click.option(
        "--iterations",
        type=WholeRange(min=1),
        default=10,
        show_default=True,
        help="Iterations of a resizable job, with a resize point between any two.",
    ),
    click.option(
        "--expand-most",
        type=FiniteRange(min=1),
        default=4.0,
        show_default=True,
        help="Largest size of a resizable job, in multiples of the processors requested.",
    ),
    click.option(
        "--expand-step",
        type=FiniteRange(min=0),
        default=0.25,
        show_default=True,
        help="Processors that an expansion adds, as a share of those requested.",
    ),
    click.option(
        "--data-mib",
        type=FiniteRange(min=0),
        default=0.0,
        help="Data that a resize moves, MiB for each requested processor.  [default: 0]",
    ),
    click.option(
        "--cost",
        type=CostText(),
        default="start_s=0",
        help="Cost of a resize, as start_s=0.4,join_s=0.05,bytes_per_s=1e9."
        "  [default: resizes cost nothing]",
    ),
    click.option(
        "--seed",
        type=WholeRange(min=0),
        help="Seed that draws the resizable jobs, or the jobs of a generator.",
    ),
)


def resizable_options(command: F) -> F:
    """Add the options that make a trace resizable."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command

"""What several commands share: types of options, examples and headings in help texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from math import inf, isfinite
from typing import Any, TypeAlias, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from reshape.errors import ReshapeError
from reshape.times import parse_duration

T = TypeVar("T")


def example(*lines: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add examples below the docstring that click shows as the help of a command."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        text = "\n".join(f"  {line}" for line in lines)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExample:\n{text}"
        return function

    return add


#: Largest whole number of an option, which arrays and messages hold.
MOST = 2**31 - 1


class WholeRange(click.IntRange):
    """A whole number within limits, at most `MOST`; the type of click has no largest number."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the text of an option."""
        if isinstance(value, str) and "_" in value:  # Python reads 1_000 as a number
            self.fail(f"{value!r} is not a whole number", param, ctx)
        number: int = super().convert(value, param, ctx)
        if number > MOST:
            self.fail(f"{number} is too large: at most {MOST}", param, ctx)
        return number


class FiniteRange(click.FloatRange):
    """A finite number within limits; the type of click accepts nan and inf."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the text of an option."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"must be a finite number, got {value!r}", param, ctx)
        return number


class ParsedText(click.ParamType[T]):
    """A value that a function reads from a text.

    Parameters
    ----------
    name : of the type in help texts.
    parse : raises a ValueError or a ReshapeError whose message says what is wrong.
    kinds : types of values that are read already, and taken as they are.
    """

    def __init__(self, name: str, parse: Callable[[str], T], *kinds: type) -> None:
        self.name, self._parse, self._kinds = name, parse, kinds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Read the text of an option."""
        if isinstance(value, self._kinds):
            return cast(T, value)
        try:
            return self._parse(str(value))
        except (ValueError, ReshapeError) as error:
            self.fail(str(error), param, ctx)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise ValueError(f"{error}, or a number of seconds") from None
    if not 0 < seconds < inf:
        raise ValueError(f"must be a time above 0, got {text!r}")
    return seconds


#: A time above 0: a number of seconds, or with a unit or a colon such as 2h or 2:00:00.
SECONDS = ParsedText("SECONDS", _seconds, int, float)
#: Why an empty text is refused.
_EMPTY = "it is empty, as a variable that is not set: give a value, or leave the option out"


#: Type of an option for which the empty text has a meaning.
ANY_TEXT = click.types.StringParamType()


def refuse_empty(command: click.Command) -> click.Command:
    """Let a command, and its subcommands, refuse empty texts and names of files.

    A shell passes an empty word for a variable that is not set. It would name the current
    directory, or mean the same as no option at all. Only options of the type `ANY_TEXT` take it.
    """
    for parameter in command.params:
        kind = parameter.type
        is_text = kind is click.STRING or type(kind) is click.Path
        if is_text and "convert" not in vars(kind):  # it refuses them already
            parameter.type = copy(kind)
            vars(parameter.type)["convert"] = _unless_empty(kind.convert)
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            refuse_empty(subcommand)
    return command


_Convert: TypeAlias = Callable[[Any, click.Parameter | None, click.Context | None], Any]


def _unless_empty(convert: _Convert) -> _Convert:
    """Let the method of a type that reads a text refuse the empty one, unless it is a default."""
    defaults = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)

    def read(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        source = None
        if ctx is not None and param is not None and param.name is not None:
            source = ctx.get_parameter_source(param.name)
        if value == "" and source not in defaults:
            raise click.BadParameter(_EMPTY, ctx, param)
        return convert(value, param, ctx)

    return read


def completed(
    names: Callable[[], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what lets a shell complete a value that is one of some names.

    Parameters
    ----------
    names : returns them; called when the shell asks.
    """

    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]

    return complete


class HeadedCommand(click.Command):
    """A command whose help shows the options under headings.

    Parameters
    ----------
    headings : heading -> names of its parameters, in their order; all others come last.
    """

    def __init__(
        self,
        *args: Any,
        headings: Mapping[str, Sequence[str]],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.headings = headings

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        records = {
            parameter.name: record
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            and (record := parameter.get_help_record(ctx)) is not None
        }
        for heading, names in self.headings.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section("Other"):
            formatter.write_dl([*records.values()])

"""What several commands share: types of options, and examples in help texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any

import click
from click.shell_completion import CompletionItem

from reshape.times import parse_duration


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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the text of an option."""
        number: int = super().convert(value, param, ctx)
        if number > MOST:
            self.fail(f"{number} is too large: at most {MOST}", param, ctx)
        return number


class FiniteRange(click.FloatRange):
    """A finite number within limits; the type of click accepts nan and inf."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the text of an option."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"must be a finite number, got {value!r}", param, ctx)
        return number


class Seconds(FiniteRange):
    """A time above 0: a number of seconds, or with a unit or a colon such as 2h or 2:00:00."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the text of an option."""
        if isinstance(value, str) and not _is_number(value):
            try:
                value = parse_duration(value)
            except ValueError as error:
                self.fail(f"{error}, or a number of seconds", param, ctx)
        return super().convert(value, param, ctx)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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

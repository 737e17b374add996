"""Types of options that several commands share."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click

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

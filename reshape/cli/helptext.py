"""Help texts of the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def example(*lines: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add examples below the docstring that click shows as the help of a command."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        text = "\n".join(f"  {line}" for line in lines)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExample:\n{text}"
        return function

    return add

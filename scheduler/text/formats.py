"""Counts, durations, moments and JSON as text; durations are written as in Slurm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Any


def grouped(number: int) -> str:
    """Write a number with spaces between thousands, such as ``12 345``."""
    return f"{number:,}".replace(",", " ")


def noun(number: int, thing: str) -> str:
    """Select singular or plural: ``job`` for 1, ``jobs`` or ``processes`` for any other number."""
    if number == 1:
        return thing
    return f"{thing}es" if thing.endswith("s") else f"{thing}s"


def counted(number: int, thing: str) -> str:
    """Write a number with its noun: ``1 job``, ``0 jobs``, ``12 345 jobs``."""
    return f"{grouped(number)} {noun(number, thing)}"


def listed(thing: str, numbers: Sequence[int]) -> str:
    """Write numbers with their noun: ``job 3``, ``jobs 3, 5``."""
    return f"{noun(len(numbers), thing)} {', '.join(map(str, numbers))}"


def format_time(seconds: float | None) -> str:
    """Write a duration as ``[D-]HH:MM:SS``, rounded down, or ``-``; negative ones become 0."""
    if seconds is None:
        return "-"
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def format_moment(at: float | None) -> str:
    """Write a Unix time as local date and time with a resolution of one second, or ``-``.

    A time beyond the years 1 to 9999, which a message may have, is written as a number of seconds.
    """
    if at is None:
        return "-"
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at:g} s after 1970"


def json_text(data: Any, *, indent: int | None = None) -> str:
    """Write plain data as JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_finite(data), indent=indent, allow_nan=False)


def _finite(data: Any) -> Any:
    """Copy plain data with None for every number that is not finite."""
    if isinstance(data, float):
        return data if isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data

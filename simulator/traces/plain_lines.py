"""Blocks of lines of plain numbers, read at once into columns.

Comparing bytes shows where the tokens begin and end; a column is then computed digit by digit over
all lines. The functions report that a block has something odd in it, but not what.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.int64] | NDArray[np.float64]

#: Largest number of a trace. Sums of times below it stay exact to an eighth of a second in float64.
LARGEST = 10**15
DIGITS = 15  # of an integer below it


def columns_of(
    block: bytes, wanted: Sequence[int], width: int, fractions: Collection[int]
) -> list[Column] | None:
    """Read the columns of a block of lines that all have `width` fields.

    Parameters
    ----------
    block : ends in a newline.
    wanted : indices of the fields to read.
    fractions : indices of the fields that need not be whole numbers.

    Returns
    -------
    one column for each wanted index; None if something is odd, such as a number above `LARGEST`.
    """
    text = np.frombuffer(block, dtype=np.uint8)
    blank = text <= 32
    edges = np.flatnonzero(blank[1:] != blank[:-1])
    edges += 1
    if not blank[0]:
        edges = np.concatenate([[0], edges])
    starts, stops = edges[0::2], edges[1::2]
    if len(starts) == 0 or len(starts) % width:
        return None
    ends = np.flatnonzero(text == 10)
    if len(ends) * width != len(starts) or (
        np.any(stops[width - 1 :: width] > ends) or np.any(starts[width::width] < ends[:-1])
    ):
        return None
    columns: list[Column] = []
    for field in wanted:
        column: Column | None = _integers(text, starts[field::width], stops[field::width])
        if column is None:
            column = _numbers(block, starts[field::width], stops[field::width])
            if column is None or (column.dtype != np.int64 and field not in fractions):
                return None
        columns.append(column)
    return columns


def _integers(
    text: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Decimal integers at these places, (n,) int64; None if a token is anything else."""
    negative = text[starts] == ord("-")
    first = starts + negative
    length = int((stops - first).max())
    if length > DIGITS or (stops - first).min() < 1:
        return None
    values = np.zeros(len(starts), dtype=np.int64)
    at, unit = stops - 1, np.int64(1)
    for _ in range(length):  # last digit first
        digit = text[np.maximum(at, first)] - np.uint8(ord("0"))
        if digit.max() > 9:  # characters below "0" wrap around
            return None
        values += digit * (at >= first) * unit
        at, unit = at - 1, unit * 10
    return np.where(negative, -values, values)


def _numbers(block: bytes, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Column | None:
    """Decimal numbers at these places, (n,); None if a token is anything else."""
    tokens = [block[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    if b"_" in b" ".join(tokens):  # allowed in Python, but not in SWF
        return None
    try:
        column = np.array(list(map(float, tokens)))
    except ValueError:
        return None
    return whole(column) if (np.abs(column) <= LARGEST).all() else None  # False for nan


def whole(column: NDArray[np.float64]) -> Column:
    """Convert a column to int64 if all its numbers are whole."""
    if np.abs(column).max() > 2**53:
        return column
    integers = column.astype(np.int64)
    return integers if np.array_equal(integers, column) else column

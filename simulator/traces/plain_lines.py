"""Lines of plain numbers, a whole block of them read at once into columns.

Where the tokens begin and end is found by comparing bytes, and a column is put together digit by
digit over all lines. Whoever reads is told if anything is odd, and not what.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


def columns_of(
    block: bytes, wanted: Sequence[int], width: int, fractions: Collection[int]
) -> list[Column] | None:
    """Columns of a block of lines that all have so many fields.

    Parameters
    ----------
    block : ends in a newline.
    wanted : indices of the fields to read.
    fractions : indices of those that need not be whole numbers.

    Returns
    -------
    one column for each index wanted; None if something is odd.
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
    """Decimal integers between these places; None if one of them is something else."""
    negative = text[starts] == ord("-")
    first = starts + negative
    length = int((stops - first).max())
    if length > 18 or (stops - first).min() < 1:
        return None
    values = np.zeros(len(starts), dtype=np.int64)
    at, unit = stops - 1, np.int64(1)
    for _ in range(length):  # from the last digit on
        digit = text[np.maximum(at, first)] - np.uint8(ord("0"))
        if digit.max() > 9:  # what is below "0" wraps around
            return None
        values += digit * (at >= first) * unit
        at, unit = at - 1, unit * 10
    return np.where(negative, -values, values)


def _numbers(block: bytes, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Column | None:
    """Decimal numbers between these places; None if one of them is something else."""
    tokens = [block[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    if b"_" in b" ".join(tokens):  # Python's own way to write numbers
        return None
    try:
        column = np.array(list(map(float, tokens)))
    except ValueError:
        return None
    return whole(column) if np.isfinite(column).all() else None


def whole(column: NDArray[np.float64]) -> Column:
    """Turn into int64 what has only whole numbers."""
    if np.abs(column).max() > 2**53:
        return column
    integers = column.astype(np.int64)
    return integers if np.array_equal(integers, column) else column

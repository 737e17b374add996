"""Tables of variables, read back from the files of ``reshape simulate --out``."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from simulator.traces.swf import LARGEST

#: Column -> numbers, nan where there is none, or texts.
Columns: TypeAlias = dict[str, NDArray[Any]]
#: Columns of texts.
TEXTS = ("job_id", "selection", "centre")


def read_columns(path: Path, needed: Iterable[str]) -> Columns | None:
    """Read a table; None if there is no such file.

    Parameters
    ----------
    needed : columns that must be there.

    Raises
    ------
    ReshapeError : it cannot be read, lacks a column or has one twice, or a field is no number up to
        `LARGEST`; the message names file, line and column.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        return None
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise ReshapeError(f"{path}: cannot be read: {error}") from None
    for line, row in rows:
        if len(row) != len(header):
            raise ReshapeError(f"{path}:{line}: {len(row)} fields, the header has {len(header)}")
    for name in needed:
        if header.count(name) != 1:
            what = "no column" if name not in header else "more than one column"
            raise ReshapeError(f"{path}: {what} {name:.80}; write it with reshape simulate --out")
    columns: Columns = {}
    for index, name in enumerate(header):
        fields = [(line, row[index]) for line, row in rows]
        if name in TEXTS:
            columns[name] = np.array([text for _, text in fields])
        else:
            columns[name] = np.array([_number(path, line, name, text) for line, text in fields])
    return columns


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        number = float(text) if text else np.nan
    except ValueError:
        number = np.inf
    if abs(number) > LARGEST:
        raise ReshapeError(f"{path}:{line}: {column:.80}: {text[:80]!r} is not a number up to 1e15")
    return number

"""The Standard Workload Format, version 2.2: eighteen numbers in a line, comments after ``;``.

A block of lines is read at once (`simulator.traces.swf`). A block with anything irregular
(a comment between the jobs, a line that has not 18 fields, a token that is not a plain integer) is
read line by line instead, and only that path detects errors, with file, line, field and value.

An extension for further resources: a header comment ``; Resources: memory=1024 licences=8`` names
them and their amounts on the machine; a line then has a 19th, 20th, ... number, the demand of the
job for each (-1 or missing: none). The first eighteen fields stay where they are. In the same way
``; Shared: memory_bandwidth=6000`` names resources that the processes of a node share, with their
capacities; the numbers are then demands of each process (`scheduler.model.sharing`). Columns come
in the order of the two header lines.
"""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from reshape.key_values import amounts
from scheduler.text.formats import counted
from simulator.traces.files import replace_all

Column: TypeAlias = NDArray[np.int64] | NDArray[np.float64]

#: Largest number of a trace. Sums of times below it stay exact to an eighth of a second in float64.
LARGEST = 10**15
DIGITS = 15  # of an integer below it


def columns_of(
    block: bytes, indices: Sequence[int], width: int, fractions: Collection[int]
) -> list[Column] | None:
    """Read the columns of a block of lines that all have `width` fields.

    Parameters
    ----------
    block : ends in a newline.
    indices : indices of the fields to read.
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
    for field in indices:
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


FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "requested_processors",
    "requested_time", "requested_memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding", "think",
)  # fmt: skip
#: What the fields are called in the standard, for messages.
NAMES = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "CPU time",
    "used memory", "requested processors", "requested time", "requested memory", "status",
    "user", "group", "executable", "queue", "partition", "preceding job", "think time",
)  # fmt: skip
REQUIRED = 5  # fields a line must have at least: those that say what ran, when and how large
WIDTH = len(FIELDS)
FRACTIONS = (FIELDS.index("cpu"), FIELDS.index("memory"))  # fields that need not be whole
RESOURCE = "resource:"  # what the name of a column begins with that tells of a further resource
SHARED = "shared:"  # the same for a shared resource
_EXTENSIONS = {"resources": RESOURCE, "shared": SHARED}
BLOCK = 1 << 18  # bytes read at once: larger blocks leave the caches of a core
#: Bytes. Once glibc has freed an array of this size it keeps the memory of smaller ones. If it gave
#: it back to the kernel, that would clear the same pages again for each block.
KEPT = 2_000_000

#: Bytes of comment lines together, at most, and bytes of a token that messages show.
MOST_COMMENTS, SHOWN = 1 << 24, 80
#: Further resources that a header names, at most.
MOST_RESOURCES = 100

#: First bytes of packed files that are not read -> their form.
_OTHER_FORMS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd"}
_BLANKS = bytes.maketrans(b"\t\r\v\f,", b"     ")


class Oddities(msgspec.Struct, kw_only=True):
    """Irregularities of the lines of a trace.

    Parameters
    ----------
    comments_inside : comment lines after the first job.
    blank_lines : lines with nothing in them.
    short_lines : lines in which fields are missing; they count as -1.
    fractions : fractions in fields of whole numbers; they are kept.
    skipped_lines : malformed lines skipped by `lenient`.
    """

    comments_inside: int = 0
    blank_lines: int = 0
    short_lines: int = 0
    fractions: int = 0
    skipped_lines: int = 0


class Trace(msgspec.Struct):
    """The contents of a trace file.

    Parameters
    ----------
    path : of the file, for messages.
    header : comment lines, without line ends, in their order.
    columns : field -> (n,) int64, or float64 if some value is not a whole number; -1 is unknown.
        Those of further resources are called ``resource:NAME``, of shared ones ``shared:NAME``.
    is_table : whether a program gave the columns, so that messages name rows from 0.
    first_skipped : error of the first skipped line; empty if none was skipped.
    """

    path: str
    header: list[str]
    columns: dict[str, Column]
    oddities: Oddities = msgspec.field(default_factory=Oddities)
    is_table: bool = False
    first_skipped: str = ""

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.columns["job"])

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Column as float64; -1 everywhere if it was not read.

        Raises
        ------
        ReshapeError : a number is beyond the bounds of a file; a program has changed the column.
        """
        if name not in self.columns:
            return np.full(len(self), -1.0)
        column = self.columns[name].astype(np.float64)
        wrong = ~(np.abs(column) <= LARGEST)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ReshapeError(
                f"{self.path}: column {name}: row {row}: must be a number up to {LARGEST:g}, got"
                f" {column[row]:g}"
            )
        return column

    def declared(self, name: str) -> int | None:
        """First number in a header field such as ``MaxProcs``, up to `LARGEST`; None: none."""
        digits = (self.field(name) or "").split("(")[0].split()
        if not digits or not digits[0].isdecimal() or len(digits[0]) > DIGITS:
            return None
        return int(digits[0])

    def field(self, name: str) -> str | None:
        """Text of a header field such as ``MaxProcs``; None if there is no such field."""
        return next(
            (value for key, value in map(header_field, self.header) if key == name.lower()), None
        )

    def capacities(self, kind: str = RESOURCE) -> dict[str, int]:
        """How much of each further resource the machine has, by the header.

        Parameters
        ----------
        kind : of the columns; `SHARED`: how much of each shared resource a node has.
        """
        for line in self.header:
            line_kind, amounts_of = _extension(line)
            if line_kind == kind and amounts_of:
                return amounts_of
        return {}


def header_field(line: str) -> tuple[str, str]:
    """Name, in lower case, and text of a field of the header; "" and "" of another comment."""
    key, colon, value = line.lstrip("; \t").partition(":")
    return (key.strip().lower(), value.strip()) if colon else ("", "")


def read(path: str | Path, *, fields: Collection[str] = FIELDS, lenient: bool = False) -> Trace:
    """Read a trace, plain or gz.

    Parameters
    ----------
    fields : columns to keep (``job`` always is): a reader of few is faster and smaller.
    lenient : leave out malformed lines and count them, instead of an error.

    Raises
    ------
    ReshapeError : there is no such file, it is empty or holds no job, it ends too early, or a line
        is malformed; the message names file, line, field and value.
    """
    indices = [i for i, field in enumerate(FIELDS) if field in fields or i == 0]
    reader = _Reader(str(path), indices, lenient)
    np.empty(KEPT, np.uint8)
    for block in _blocks(path):
        reader.take(block)
    return reader.finish()


def write(path: str | Path, trace: Trace, note: str = "") -> None:
    """Write a trace as SWF, gz if the name says so; the file is written completely or not at all.

    Parameters
    ----------
    trace : missing columns are written as -1.
    note : a comment line put behind the header.

    Raises
    ------
    ReshapeError : it cannot be written; an old file stays.
    """
    replace_all({Path(path): encode(trace, note)})


def encode(trace: Trace, note: str = "") -> bytes:
    """Text of a trace in SWF, see `write`."""
    header = [line if line.startswith(";") else f"; {line}" for line in trace.header]
    header += [f"; Note: {note}"] if note else []
    columns = [
        _texts(trace.columns[field]) if field in trace.columns else ["-1"] * len(trace)
        for field in FIELDS
    ]
    columns += [
        _texts(column)
        for name, column in trace.columns.items()
        if name.startswith((RESOURCE, SHARED))
    ]
    lines = [*header, *map(" ".join, zip(*columns, strict=True))]
    return ("\n".join(lines) + "\n").encode()


def _texts(column: Column) -> list[str]:
    if column.dtype == np.int64:
        return list(map(str, column.tolist()))
    return [str(int(v)) if v == int(v) else f"{v:.15g}" for v in column.tolist()]


def _blocks(path: str | Path) -> Iterator[bytes]:
    """Bytes of a file, unpacked, in blocks of whole lines."""
    try:
        with open(path, "rb") as raw:
            start = raw.read(6)
            for mark, form in _OTHER_FORMS.items():
                if start.startswith(mark):
                    raise ReshapeError(f"{path}: is packed as {form}; unpack it, or use gzip")
            packed = start.startswith(b"\x1f\x8b")
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                mark = file.read(len(BOM_UTF8))  # which some editors put before the text
                rest = b"" if mark == BOM_UTF8 else mark
                while block := file.read(BLOCK):
                    end = block.rfind(b"\n") + 1
                    if end:
                        yield rest + block[:end]
                        rest = b""
                    rest += block[end:]
                    if len(rest) >= BLOCK:
                        raise ReshapeError(f"{path}: no line ends in {BLOCK} bytes; is it a trace?")
            if rest:
                yield rest + b"\n"
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ReshapeError(f"{path}: the packed data is damaged or cut off ({error})") from None
    except OSError as error:
        raise ReshapeError(f"{path}: cannot be read: {error.strerror or error}") from None


class _Reader:
    """Puts a trace together from blocks of lines."""

    def __init__(self, path: str, indices: Sequence[int], lenient: bool) -> None:
        self.path, self.wanted, self.lenient = path, indices, lenient
        self.names = list(FIELDS)
        self.lines = self.comments = 0  # lines, and bytes of comments, read so far
        self.header: list[str] = []
        self.parts: list[list[Column]] = []
        self.oddities, self.first_skipped = Oddities(), ""

    def take(self, block: bytes) -> None:
        """Read some lines."""
        if b";" not in block:
            self._take_plain(block)
            return
        runs = groupby(block.split(b"\n")[:-1], lambda line: b";" in line)
        for has_comment, lines in runs:
            if has_comment:
                self._odd([*lines])
            else:
                self._take_plain(b"\n".join([*lines, b""]))

    def finish(self) -> Trace:
        """Give the trace, which must have a job."""
        if not sum(len(part[0]) for part in self.parts):
            what = "has no jobs, only comments" if self.header else "is empty"
            if skipped := self.oddities.skipped_lines:
                what += (
                    f" ({skipped} malformed lines were skipped, the first: {self.first_skipped})"
                )
            raise ReshapeError(f"{self.path}: the trace {what}")
        columns = {
            self.names[field]: np.concatenate([part[i] for part in self.parts])
            for i, field in enumerate(self.wanted)
        }
        first_skipped = self.first_skipped
        return Trace(self.path, self.header, columns, self.oddities, first_skipped=first_skipped)

    def _take_plain(self, text: bytes) -> None:
        """Read lines without comments: all at once if they are regular, else one by one."""
        columns = columns_of(text, self.wanted, len(self.names), FRACTIONS)
        if columns is None:
            self._odd(text.split(b"\n")[:-1])
        else:
            self.parts.append(columns)
            self.lines += text.count(b"\n")

    def _odd(self, lines: Sequence[bytes]) -> None:
        """Look at each line."""
        rows: list[list[float]] = []
        for number, line in enumerate(lines, self.lines + 1):
            stripped = line.strip()
            if stripped.startswith(b";"):
                self._comment(line, number, bool(rows))
            elif not stripped:
                self.oddities.blank_lines += 1
            else:
                self._line(stripped, number, rows)
        self.lines += len(lines)
        if rows:
            table = np.array(rows, dtype=np.float64)
            self.parts.append([whole(table[:, field]) for field in self.wanted])

    def _comment(self, line: bytes, number: int, inside: bool) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        self.comments += len(line)
        if self.comments > MOST_COMMENTS:
            most = f"more than {MOST_COMMENTS >> 20} MiB of comments"
            raise ReshapeError(f"{self.path}:{number}: {most}; is it a trace?")
        self.header.append(text)
        if inside or self.parts:
            self.oddities.comments_inside += 1
            return
        try:
            kind, columns = _extension(text)
        except ValueError as error:
            raise ReshapeError(f"{self.path}:{number}: {error}") from None
        if columns and not any(name.startswith(kind) for name in self.names):
            width = len(self.names)
            self.wanted = [*self.wanted, *range(width, width + len(columns))]
            self.names += [kind + name for name in columns]

    def _line(self, line: bytes, number: int, rows: list[list[float]]) -> None:
        """Read one line, or say what is wrong with it."""
        try:
            rows.append(self._fields(line))
        except ValueError as error:
            message = f"{self.path}:{number}: {error}"
            if not self.lenient:
                what = "" if rows or self.parts else " is it a trace?"  # of its first line
                raise ReshapeError(f"{message};{what} --lenient leaves such lines out") from None
            self.oddities.skipped_lines += 1
            self.first_skipped = self.first_skipped or message

    def _fields(self, line: bytes) -> list[float]:
        before, semicolon, _ = line.partition(b";")
        tokens = before.translate(_BLANKS).split()
        width = len(self.names)
        if not REQUIRED <= len(tokens) <= width:
            raise ValueError(f"{counted(len(tokens), 'field')}, not {width}")
        values = []
        for i, token in enumerate(tokens):
            try:
                value = float(token)
            except ValueError:
                value = np.nan
            is_number = np.isfinite(value) and b"_" not in token
            if not is_number or (abs(value) > LARGEST and i in self.wanted):
                text = token[:SHOWN].decode("utf-8", "replace")
                name = NAMES[i] if i < WIDTH else self.names[i]
                why = f"is beyond {LARGEST:g}" if is_number else "is not a number"
                raise ValueError(f"field {i + 1} ({name}): {text!r} {why}")
            values.append(value)
        odd = self.oddities
        odd.comments_inside += bool(semicolon)
        odd.short_lines += len(values) < width
        odd.fractions += sum(v != int(v) for i, v in enumerate(values) if i not in FRACTIONS)
        return values + [-1.0] * (width - len(values))


def _extension(line: str) -> tuple[str, dict[str, int]]:
    """Kind of the columns that a header line names (`RESOURCE`, `SHARED`), and the amount of each.

    Raises
    ------
    ValueError : it means to and is malformed.
    """
    key, value = header_field(line)
    kind = _EXTENSIONS.get(key)
    if kind is None:
        return "", {}
    try:
        named = amounts(value.split())
        if len(named) > MOST_RESOURCES:
            raise ValueError(f"{len(named)} resources are named, at most {MOST_RESOURCES} may be")
        return kind, named
    except ValueError as error:
        example = "Resources: memory=1024 licences=8"
        if kind == SHARED:
            example = "Shared: memory_bandwidth=6000"
        raise ValueError(f"{error}; an example is ; {example}") from None

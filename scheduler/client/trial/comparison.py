"""Compares a run with resizes and one without: output, facts and files.

Sums of floating-point numbers depend on the number of processes. Numbers that differ by less than a
tolerance are therefore reported as rounding, not as a mistake. Integers and all other text must be
equal.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
#: Stands for a number in the text of a line; no line has it.
_NUMBER = "\n"
_MOST_SHOWN = 5
_MOST_WIDTH = 200
#: Lines from the first to the last difference of two texts that are searched for lines that only
#: one text has; the time grows with the square of their number, to a second.
_MOST_ALIGNED = 2000


class TrialResults(NamedTuple):
    """What a run has left.

    Attributes
    ----------
    lines : all lines that its processes have printed.
    facts : what it has reported (`app.report`).
    folder : its working directory.
    files : files there that it has written, relative to the folder.
    """

    lines: Sequence[str]
    facts: Mapping[str, object]
    folder: Path
    files: frozenset[Path]


@dataclass
class TrialComparison:
    """A comparison of a run with resizes and one without.

    Parameters
    ----------
    rtol : largest relative difference of two floating numbers that is rounding.
    ignore : lines, facts (``name=value``) and names of files with a match are not compared.
    once : whether equal lines count once; a job that restarts from a checkpoint repeats some.

    Attributes
    ----------
    mistakes : what differs by more than rounding, each one line.
    rounding : what differs by rounding, each one line.
    """

    rtol: float
    ignore: Sequence[re.Pattern[str]] = ()
    once: bool = False
    mistakes: list[str] = field(default_factory=list)
    rounding: list[str] = field(default_factory=list)

    def compare(self, plain: TrialResults, resized: TrialResults) -> None:
        """Compare a run without resizes and one with them."""
        outputs = [set(run.lines) if self.once else run.lines for run in (plain, resized)]
        self._compare_lines("output", outputs[0], outputs[1])
        facts, others = ([f"{k}={v!r}" for k, v in r.facts.items()] for r in (plain, resized))
        self._compare_lines("fact", facts, others)
        for file in sorted(plain.files | resized.files):
            if not self._keeps(str(file)):
                continue
            if file not in resized.files or file not in plain.files:
                runs = ("without", "with") if file in plain.files else ("with", "without")
                self.mistakes.append(
                    f"file {file}: written {runs[0]} resizes, and not {runs[1]} them"
                )
            else:
                self._compare_files(f"file {file}", plain.folder / file, resized.folder / file)

    def _keeps(self, text: str) -> bool:
        """Whether a line, a fact or a name is compared."""
        return not any(pattern.search(text) for pattern in self.ignore)

    def _compare_lines(self, what: str, plain: Iterable[str], resized: Iterable[str]) -> None:
        """Compare lines in any order."""
        kept = [Counter(filter(self._keeps, lines)) for lines in (plain, resized)]
        gone, come = list((kept[0] - kept[1]).elements()), list((kept[1] - kept[0]).elements())
        by_text: defaultdict[str, list[str]] = defaultdict(list)
        for line in come:
            by_text[_FLOAT.sub(_NUMBER, line)].append(line)
        others = {text: _LinesOfText(lines) for text, lines in by_text.items()}
        distances, left = list[float](), list[str]()
        for line in gone:
            same = others.get(_FLOAT.sub(_NUMBER, line))
            distance = None if same is None else same.take(line, self.rtol)
            if distance is None:
                left.append(line)
            else:
                distances.append(distance)
        if close := len(distances):
            lines = f"{close} line{'s' * (close > 1)}"
            self.rounding.append(
                f"{what}: numbers of {lines} differ by {max(distances):.1e} at most"
            )
        extra = [line for same in others.values() for line in same.left]
        for word, rest in (("only without resizes", left), ("only with resizes", extra)):
            self.mistakes += [f"{what} {word}: {_short(line)}" for line in rest[:_MOST_SHOWN]]
            if len(rest) > _MOST_SHOWN:
                self.mistakes.append(f"{what} {word}: {len(rest) - _MOST_SHOWN} more lines")

    def _compare_files(self, name: str, plain: Path, resized: Path) -> None:
        if plain.read_bytes() == resized.read_bytes():
            return
        arrays = [_arrays(path) for path in (plain, resized)]
        if arrays[0] and arrays[1]:
            if arrays[0].keys() != arrays[1].keys():
                self.mistakes.append(f"{name}: other arrays: {sorted(arrays[1])}")
                return
            for key, array in arrays[0].items():
                self._compare_arrays(f"{name}{key}", array, arrays[1][key])
            return
        try:
            texts = [path.read_text().splitlines() for path in (plain, resized)]
        except UnicodeDecodeError:
            self.mistakes.append(f"{name}: other bytes")
            return
        kept = [list(filter(self._keeps, lines)) for lines in texts]
        self._compare_lines(name, *_numbered_apart(*kept))

    def _compare_arrays(self, name: str, a: NDArray[Any], b: NDArray[Any]) -> None:
        """Compare two arrays; the tolerance is relative to the largest element."""
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            kinds = f"{a.dtype} {a.shape} without resizes, {b.dtype} {b.shape} with them"
            self.mistakes.append(f"{name}: {kinds}")
            return
        is_float = np.issubdtype(a.dtype, np.inexact)
        differs = (a != b) & ~(np.isnan(a) & np.isnan(b)) if is_float else np.asarray(a != b)
        if not differs.any():
            return
        count = f"{np.count_nonzero(differs)} of {a.size} elements differ"
        if is_float:
            with np.errstate(invalid="ignore"):
                scale = np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
                largest = float(np.max(np.abs(a - b)[differs]) / scale) if scale else np.inf
            if largest <= self.rtol:
                self.rounding.append(f"{name}: {count}, by {largest:.1e} of the largest at most")
                return
        place = tuple(int(k[0]) for k in np.nonzero(differs))
        values = f"{a[place]!s} without resizes, {b[place]!s} with them"
        self.mistakes.append(f"{name}: {count}, the first at {list(place)}: {values}")


class _LinesOfText:
    """Lines that differ in their floating numbers only, each of which is paired at most once."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._numbers = np.array([_numbers(line) for line in lines])  # (lines, numbers)
        self._is_left = np.ones(len(lines), np.bool_)
        columns = self._numbers.T
        #: The number that differs between the most lines, by which they are searched; None without.
        self._key: int | None = max(
            range(len(columns)), key=lambda k: len(np.unique(columns[k])), default=None
        )
        keys = columns[self._key] if self._key is not None else np.zeros(len(lines))
        self._order = np.argsort(keys, kind="stable")
        self._sorted_keys = keys[self._order]

    def take(self, line: str, rtol: float) -> float | None:
        """Pair a line with the closest one that is left; return their distance, None if too large.

        It is the largest relative difference of their numbers.
        """
        numbers = _numbers(line)
        near = self._near(numbers, rtol)
        one, all_ = np.array(numbers), self._numbers[near]
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.abs(one - all_) / np.maximum(np.abs(one), np.abs(all_))
        distances = np.where(one == all_, 0.0, apart).max(axis=1, initial=0.0)
        fits = self._is_left[near] & (distances <= rtol)
        if not fits.any():
            return None
        best = int(np.where(fits, distances, np.inf).argmin())
        self._is_left[near[best]] = False
        return float(distances[best])

    def _near(self, numbers: Sequence[float], rtol: float) -> NDArray[np.intp]:
        """Lines in their order, among them all whose key differs by `rtol` at most."""
        key = numbers[self._key] if self._key is not None else 0.0
        if not isfinite(key) or rtol >= 0.5:
            return np.arange(len(self._lines))
        # |a - b| <= rtol max(|a|, |b|) and |b| <= |a| + |a - b|; the sum covers the rounding.
        width = abs(key) * (rtol / (1 - rtol) + 1e-12)
        low = np.searchsorted(self._sorted_keys, key - width, "left")
        high = np.searchsorted(self._sorted_keys, key + width, "right")
        return np.sort(self._order[low:high])

    @property
    def left(self) -> list[str]:
        """Lines that were not paired."""
        return [line for line, is_left in zip(self._lines, self._is_left, strict=True) if is_left]


def _numbered_apart(plain: Sequence[str], resized: Sequence[str]) -> tuple[list[str], list[str]]:
    """Lines of two texts that differ, with their numbers.

    A line that only one text has does not shift those behind it. Lines that stand for each other
    have one number, so that they can be compared.
    """
    apart: tuple[list[str], list[str]] = [], []
    for _, begin, end, other, other_end in _differences(plain, resized):
        apart[0].extend(f"line {k + 1}: {plain[k]}" for k in range(begin, end))
        shift = begin - other if end > begin else 0
        apart[1].extend(f"line {k + shift + 1}: {resized[k]}" for k in range(other, other_end))
    return apart


def _differences(
    plain: Sequence[str], resized: Sequence[str]
) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the spans of two texts that differ, as difflib does; many differences by number."""
    both = min(len(plain), len(resized))
    begin = next((k for k in range(both) if plain[k] != resized[k]), both)
    most = both - begin  # lines after which the equal ones at the end begin
    end = next((k for k in range(most) if plain[-k - 1] != resized[-k - 1]), most)
    a, b = plain[begin : len(plain) - end], resized[begin : len(resized) - end]
    if max(len(a), len(b)) <= _MOST_ALIGNED:
        for tag, *span in SequenceMatcher(None, a, b).get_opcodes():
            if tag != "equal":
                first, last, other, other_last = (begin + k for k in span)
                yield tag, first, last, other, other_last
        return
    for k in range(begin, both):
        if plain[k] != resized[k]:
            yield "replace", k, k + 1, k, k + 1
    if len(plain) != len(resized):
        yield "replace", both, len(plain), both, len(resized)


def _numbers(line: str) -> list[float]:
    return [float(text) for text in _FLOAT.findall(line)]


def _short(line: str) -> str:
    return line if len(line) <= _MOST_WIDTH else f"{line[:_MOST_WIDTH]}..."


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of a .npy or .npz file by their names in messages; none if it is another file."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {f" {key!r}": loaded[key] for key in loaded.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        return {}

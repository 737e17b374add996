"""What counts as a difference between a run with resizes and one without."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.client.trial.comparison import TrialComparison, TrialResults

RTOL = 1e-12


def compared(
    runs: list[TrialResults], rtol: float = RTOL, ignore: Sequence[re.Pattern[str]] = ()
) -> TrialComparison:
    found = TrialComparison(rtol, ignore)
    found.compare(*runs)
    return found


def of_lines(plain: list[str], resized: list[str], rtol: float = RTOL) -> TrialComparison:
    runs = [TrialResults(lines, {}, Path(), frozenset()) for lines in (plain, resized)]
    return compared(runs, rtol)


def test_the_order_of_lines_does_not_count_and_their_number_does() -> None:
    assert of_lines(["a", "b 1.5", "b 1.5"], ["b 1.5", "b 1.5", "a"]) == TrialComparison(RTOL)
    found = of_lines(["a", "b"], ["a", "a", "b"])
    assert found.mistakes == ["output only with resizes: a"]


def test_the_last_bits_of_a_sum_are_rounding() -> None:
    total = sum([0.1] * 10)
    found = of_lines([f"sum {total!r}, 3 ranks"], ["sum 1.0, 3 ranks"])
    assert found.mistakes == []
    assert found.rounding == ["output: numbers of 1 line differ by 1.1e-16 at most"]
    exact = of_lines([f"sum {total!r}"], ["sum 1.0"], 0.0)
    assert len(exact.mistakes) == 2
    other = of_lines([f"sum {total!r}, 3 ranks"], ["sum 1.0, 4 ranks"])
    assert len(other.mistakes) == 2


def test_numbers_are_paired_with_the_closest() -> None:
    found = of_lines(["x 1.0", "x 2.0"], ["x 2.0000000000000004", "x 0.9999999999999999"])
    assert found.mistakes == []


def test_thousands_of_lines_that_differ() -> None:
    """A program that prints a residual in each iteration; a pair at a time takes minutes."""
    plain = [f"residual {1.0 / (1 + k)!r} of {k}.5" for k in range(6000)]
    resized = [f"residual {1.0 / (1 + k) * (1 + 2e-16)!r} of {k}.5" for k in reversed(range(6000))]
    assert of_lines(plain, resized).mistakes == []
    wrong = of_lines(plain, [f"residual {2.0 / (1 + k)!r} of {k}.5" for k in range(6000)])
    assert wrong.mistakes[5] == "output only without resizes: 5995 more lines"


Numbers: TypeAlias = tuple[float, float]


def distance(one: Numbers, other: Numbers) -> float:
    """Largest relative difference of the numbers of two lines."""
    pairs = zip(one, other, strict=True)
    return max(0.0 if a == b else abs(a - b) / max(abs(a), abs(b)) for a, b in pairs)


FACTORS = (0.0, 1.0, -1.0, 1.0 + 1e-9, 1.0 + 1e-6, 1.0 - 1e-9, 2.5, 2.5 + 1e-8, 1e300)
NUMBERS = st.tuples(st.sampled_from(FACTORS), st.sampled_from(FACTORS))


@examples(200)
@given(
    st.lists(NUMBERS, max_size=8),
    st.lists(NUMBERS, max_size=8),
    st.sampled_from([0.0, 1e-9, 1e-8, 1e-3, 0.4, 0.6, 1.0]),
)
def test_each_line_takes_the_closest_of_those_that_are_left(
    plain: list[Numbers], resized: list[Numbers], rtol: float
) -> None:
    """As a search through all lines finds it; equal lines are not among those that are paired."""
    counts = Counter(plain), Counter(resized)
    gone, left = ([*(counts[k] - counts[1 - k]).elements()] for k in (0, 1))
    alone = 0
    for line in gone:
        best = min(left, key=lambda other: distance(line, other), default=None)
        if best is None or distance(line, best) > rtol:
            alone += 1
        else:
            left.remove(best)
    texts = [[f"at {a!r} is {b!r}" for a, b in lines] for lines in (plain, resized)]
    found = of_lines(*texts, rtol)
    shown = [
        sum(word in mistake for mistake in found.mistakes)
        for word in ("only without resizes", "only with resizes")
    ]
    assert [min(count, 6) for count in (alone, len(left))] == shown


def test_lines_with_more_numbers_are_others() -> None:
    assert len(of_lines(["x 1.5"], ["x 1.5.5"]).mistakes) == 2
    found = of_lines(["time 0.25"], ["# 0.5", "0.25 0.5"])
    assert found.mistakes == [
        "output only without resizes: time 0.25",
        "output only with resizes: # 0.5",
        "output only with resizes: 0.25 0.5",
    ]


def test_patterns_leave_lines_and_facts_out() -> None:
    runs = [
        TrialResults([f"took {x} s"], {"ranks": x, "error": 0.5}, Path(), frozenset())
        for x in (1, 2)
    ]
    ignore = [re.compile("^took"), re.compile("^ranks=")]
    assert compared(runs, 0.0, ignore) == TrialComparison(0.0, ignore)
    assert compared(runs, 0.0, ignore[:1]).mistakes == [
        "fact only without resizes: ranks=1",
        "fact only with resizes: ranks=2",
    ]


def test_many_differences_are_counted() -> None:
    found = of_lines([], [f"line {k}" for k in range(8)])
    assert found.mistakes[-1] == "output only with resizes: 3 more lines"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of results."""
    plain, resized = tmp_path / "plain", tmp_path / "resized"
    plain.mkdir()
    resized.mkdir()
    return plain, resized


def of_files(folders: tuple[Path, Path]) -> TrialComparison:
    runs = [
        TrialResults([], {}, folder, frozenset(p.relative_to(folder) for p in folder.iterdir()))
        for folder in folders
    ]
    return compared(runs)


def test_arrays_are_compared_by_elements(folders: tuple[Path, Path]) -> None:
    u = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    v = u.copy()
    v[0, 0] = 1e-17  # the tolerance is relative to the largest element
    np.save(folders[0] / "u.npy", u)
    np.save(folders[1] / "u.npy", v)
    found = of_files(folders)
    assert found.mistakes == []
    assert found.rounding == [
        "file u.npy: 1 of 12 elements differ, by 1.0e-17 of the largest at most"
    ]
    v[1, 2] = 7.0
    np.save(folders[1] / "u.npy", v)
    assert of_files(folders).mistakes == [
        "file u.npy: 2 of 12 elements differ, the first at [0, 0]: 0.0 without resizes, "
        "1e-17 with them"
    ]


def test_archives_of_arrays(folders: tuple[Path, Path]) -> None:
    np.savez(folders[0] / "u.npz", a=np.arange(3), b=np.array([1.0, np.nan]))
    np.savez(folders[1] / "u.npz", a=np.array([0, 1, 3]), b=np.array([1.0, np.nan]))
    assert of_files(folders).mistakes == [
        "file u.npz 'a': 1 of 3 elements differ, the first at [2]: 2 without resizes, 3 with them"
    ]


def test_texts_are_compared_line_by_line(folders: tuple[Path, Path]) -> None:
    for folder, text in zip(folders, ("x 0.3\ny 2\n", f"x {0.1 + 0.2!r}\ny 2\n"), strict=True):
        (folder / "out.txt").write_text(text)
    found = of_files(folders)
    assert found.rounding == ["file out.txt: numbers of 1 line differ by 1.9e-16 at most"]
    assert found.mistakes == []
    (folders[1] / "out.txt").write_text("x 0.3\ny 3\n")
    assert of_files(folders).mistakes == [
        "file out.txt only without resizes: line 2: y 2",
        "file out.txt only with resizes: line 2: y 3",
    ]


def test_a_repeated_line_of_a_text_does_not_shift_the_others(folders: tuple[Path, Path]) -> None:
    rows = [f"{k} {k / 7!r}" for k in range(300)]
    close = [*rows[:100], f"100 {100 / 7 * (1 + 1e-15)!r}", *rows[101:]]
    (folders[0] / "out.txt").write_text("\n".join(rows))
    (folders[1] / "out.txt").write_text("\n".join([*close[:43], *close[41:250], *close[251:]]))
    found = of_files(folders)
    assert found.mistakes == [
        f"file out.txt only without resizes: line 251: {rows[250]}",
        f"file out.txt only with resizes: line 44: {rows[41]}",
        f"file out.txt only with resizes: line 45: {rows[42]}",
    ]
    assert found.rounding == ["file out.txt: numbers of 1 line differ by 1.1e-15 at most"]


def test_a_repeated_line_of_a_long_text_does_not_shift_the_others(
    folders: tuple[Path, Path],
) -> None:
    rows = [f"x {k}" for k in range(50_000)]
    (folders[0] / "out.txt").write_text("\n".join(rows))
    (folders[1] / "out.txt").write_text("\n".join([*rows[:43], *rows[42:]]))
    assert of_files(folders).mistakes == ["file out.txt only with resizes: line 44: x 42"]


def test_long_texts_with_many_differences_are_compared_by_the_numbers_of_their_lines(
    folders: tuple[Path, Path],
) -> None:
    rows = [f"x {k % 3}" for k in range(50_000)]
    (folders[0] / "out.txt").write_text("\n".join(rows))
    (folders[1] / "out.txt").write_text("\n".join(["w", *rows[1:-2], "y", *rows[-1:], "z"]))
    assert of_files(folders).mistakes == [
        f"file out.txt only without resizes: line 1: {rows[0]}",
        f"file out.txt only without resizes: line 49999: {rows[-2]}",
        "file out.txt only with resizes: line 1: w",
        "file out.txt only with resizes: line 49999: y",
        "file out.txt only with resizes: line 50001: z",
    ]


def test_other_files_are_compared_by_bytes_and_missing_ones_named(
    folders: tuple[Path, Path],
) -> None:
    (folders[0] / "raw").write_bytes(b"\xff\x00\x01")
    (folders[1] / "raw").write_bytes(b"\xff\x00\x02")
    (folders[1] / "part-3").write_text("")
    assert of_files(folders).mistakes == [
        "file part-3: written with resizes, and not without them",
        "file raw: other bytes",
    ]

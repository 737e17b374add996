"""Reading and writing SWF: plain blocks, odd lines, errors with their place."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import SMALL_TRACE

from reshape.errors import ReshapeError
from simulator.traces import swf

GOOD = "1 0 -1 100 4 -1 -1 4 200 -1 1 7 1 -1 2 -1 -1 -1"
SMALL = SMALL_TRACE


def read_text(tmp_path: Path, text: str, **options: bool) -> swf.Trace:
    path = tmp_path / "a.swf"
    path.write_text(text)
    return swf.read(path, **options)


def test_the_small_trace() -> None:
    trace = swf.read(SMALL)
    assert len(trace) == 400
    assert trace.declared("MaxProcs") == 64
    assert trace.declared("maxnodes") is None
    assert list(trace.columns) == list(swf.FIELDS)
    assert trace.columns["job"].tolist() == list(range(1, 401))


def test_only_some_columns() -> None:
    trace = swf.read(SMALL, fields=("run", "submit"))
    assert list(trace.columns) == ["job", "submit", "run"]
    assert np.array_equal(trace.columns["run"], swf.read(SMALL).columns["run"])


def test_packed_is_the_same(tmp_path: Path) -> None:
    packed = tmp_path / "small.swf.gz"
    packed.write_bytes(gzip.compress(SMALL.read_bytes()))
    one, two = swf.read(SMALL), swf.read(packed)
    assert all(np.array_equal(one.columns[f], two.columns[f]) for f in swf.FIELDS)


def test_what_is_odd_is_counted(tmp_path: Path) -> None:
    text = f"; MaxProcs: 8 (of 16)\n{GOOD}\n\n ; in between\n2 5 -1 10.5 1\n{GOOD} ; behind\n"
    trace = read_text(tmp_path, text.replace("4 200", "4\t200"))
    assert trace.columns["run"].tolist() == [100, 10.5, 100]
    assert trace.columns["requested_time"].tolist() == [200, -1, 200]
    odd = trace.oddities
    assert (odd.blank_lines, odd.comments_inside, odd.short_lines, odd.fractions) == (1, 2, 1, 1)
    assert trace.declared("MaxProcs") == 8


def test_windows_and_a_missing_last_newline(tmp_path: Path) -> None:
    trace = read_text(tmp_path, f"; x\r\n{GOOD}\r\n2{GOOD[1:]}")
    assert trace.columns["job"].tolist() == [1, 2]
    marked = read_text(tmp_path, f"\ufeff; MaxProcs: 8\n{GOOD}\n")
    assert (len(marked), marked.declared("MaxProcs")) == (1, 8)
    assert len(read_text(tmp_path, GOOD)) == 1


def test_blocks_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"; MaxProcs: 8\n{GOOD}\n2{GOOD[1:]}\n3{GOOD[1:]}"  # the last line has no end
    for size in range(len(GOOD) + 2, len(text) + 2):
        monkeypatch.setattr(swf, "BLOCK", size)
        assert read_text(tmp_path, text).columns["job"].tolist() == [1, 2, 3]
    monkeypatch.setattr(swf, "BLOCK", len(GOOD) // 2)
    with pytest.raises(ReshapeError, match="no line ends in"):
        read_text(tmp_path, text)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("2 5 x 10 1" + " -1" * 13, r"a.swf:3: field 3 \(wait time\): 'x' is not a number"),
        ("2 5 1_0 10 1" + " -1" * 13, r"field 3 \(wait time\): '1_0' is not a number"),
        ("2 5 nan 10 1" + " -1" * 13, r"field 3 \(wait time\): 'nan' is not a number"),
        (
            f"{2**63} 5 -1 10 1" + " -1" * 13,
            rf"a.swf:3: field 1 \(job number\): '{2**63}' is beyond",
        ),
        ("2 5 -1 1e308 1" + " -1" * 13, r"field 4 \(run time\): '1e308' is beyond 1e\+15"),
        (f"2 {10**18} -1 10 1" + " -1" * 13, rf"field 2 \(submit time\): '{10**18}' is beyond"),
        (f"2 {-(10**18)} -1 10 1" + " -1" * 13, r"field 2 \(submit time\): '-1000000000000000000'"),
        ("2 5 -1", "a.swf:3: 3 fields, not 18"),
        (GOOD + " 4", "a.swf:3: 19 fields, not 18"),
    ],
)
def test_a_malformed_line(tmp_path: Path, line: str, says: str) -> None:
    text = f"; x\n{GOOD}\n{line}\n{GOOD}\n"
    with pytest.raises(ReshapeError, match=says) as error:
        read_text(tmp_path, text)
    assert "--lenient" in str(error.value)
    trace = read_text(tmp_path, text, lenient=True)
    assert len(trace) == 2
    assert trace.oddities.skipped_lines == 1
    assert "a.swf:3" in trace.first_skipped


def test_a_malformed_line_behind_a_comment_amid_the_jobs(tmp_path: Path) -> None:
    text = f"; x\n{GOOD}\n; y\n2 5 -1\n{GOOD}\n"
    with pytest.raises(ReshapeError, match=r"a.swf:4: 3 fields, not 18"):
        read_text(tmp_path, text)


def test_a_file_that_begins_with_something_else(tmp_path: Path) -> None:
    with pytest.raises(ReshapeError, match=r"a.swf:2: 3 fields, not 18; is it a trace\? --len"):
        read_text(tmp_path, '; x\njobs = "t.swf"\n')


def test_a_number_beyond_the_bound_in_a_field_that_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(f"{GOOD}\n{GOOD.replace('-1', str(10**18), 1)}\n")
    assert len(swf.read(path, fields=("run",))) == 2
    with pytest.raises(ReshapeError, match=r"a.swf:2: field 3 \(wait time\)"):
        swf.read(path)


def test_the_line_of_an_error_far_inside(tmp_path: Path) -> None:
    lines = [GOOD] * 60_000
    lines[59_000] = GOOD.replace("200", "2oo")
    with pytest.raises(ReshapeError, match=r"a.swf:59001: field 9 \(requested time\): '2oo'"):
        read_text(tmp_path, "\n".join(lines))


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    with pytest.raises(ReshapeError, match=r"nowhere\.swf: cannot be read: No such file"):
        swf.read(tmp_path / "nowhere.swf")
    with pytest.raises(ReshapeError, match=r"a\.swf: the trace is empty"):
        read_text(tmp_path, "")
    with pytest.raises(ReshapeError, match=r"a\.swf: the trace has no jobs, only comments"):
        read_text(tmp_path, "; nothing\n")
    for form, pack in (("bzip2", bz2.compress), ("xz", lzma.compress)):
        other = tmp_path / "small.swf.other"
        other.write_bytes(pack(SMALL.read_bytes()))
        with pytest.raises(ReshapeError, match=f"is packed as {form}; unpack it, or use gzip"):
            swf.read(other)
    cut = tmp_path / "cut.swf.gz"
    cut.write_bytes(gzip.compress(SMALL.read_bytes())[:-2000])
    with pytest.raises(ReshapeError, match=r"cut\.swf\.gz: the packed data is damaged or cut off"):
        swf.read(cut)


numbers = st.one_of(
    st.integers(-1, 10**9),
    st.integers(-(10**6), 10**6).map(lambda n: n / 4),
    st.sampled_from([-1, 0, 10**15]),
)


@examples(60)
@given(
    rows=st.lists(st.lists(numbers, min_size=18, max_size=18), min_size=1, max_size=8),
    blanks=st.lists(st.sampled_from([" ", "  ", "\t"]), min_size=1, max_size=3),
    comments=st.booleans(),
)
def test_equals_a_reader_that_goes_line_by_line(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[float]],
    blanks: list[str],
    comments: bool,
) -> None:
    path = tmp_path_factory.mktemp("swf") / "a.swf"
    lines = [blanks[i % len(blanks)].join(map(str, row)) for i, row in enumerate(rows)]
    path.write_text(("\n;\n" if comments else "\n").join(lines) + "\n")
    trace = swf.read(path)
    for i, field in enumerate(swf.FIELDS):
        assert trace.columns[field].tolist() == [float(row[i]) for row in rows]
    again = path.with_name("b.swf.gz")
    swf.write(again, trace, "written again")
    copy = swf.read(again)
    for field in swf.FIELDS:
        np.testing.assert_allclose(copy.columns[field], trace.columns[field], rtol=1e-14)
    assert copy.header[-1] == "; Note: written again"


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(swf.ReshapeError, match="cannot be written"):
        swf.write(tmp_path / "no" / "a.swf", swf.read(SMALL))

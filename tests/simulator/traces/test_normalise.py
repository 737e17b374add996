"""Rules of normalisation: what each does, and that every job it touches is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import SMALL_TRACE

from reshape.errors import ReshapeError
from simulator.traces import swf
from simulator.traces.normalise import CleaningReport, Rules, machine_size, normalise
from simulator.traces.trace_jobs import TraceJobs

SMALL = SMALL_TRACE
#: job, submit, run, allocated, requested processors, requested time, user, queue
ROWS = [
    (1, 10, 100, 4, 4, 200, 1, 1),
    (2, 5, 300, 4, -1, 200, 1, 3),  # out of order, no requested processors, too long
    (3, 20, -1, 4, 4, 200, 2, 1),  # no run time
    (4, 20, 50, 8, 40, -1, 2, 1),  # larger than the machine, no requested time
    (1, 20, 50, 2, 3, 60, -1, 1),  # a number again
    (6, -1, 50, 2, 3, 60, 1, 1),  # no submit time
    (7, 30, 50, -1, 0, 60, 1, 1),  # no processors
]


def trace_of(tmp_path: Path, rows: list[tuple[int, ...]]) -> swf.Trace:
    lines = []
    for job, at, run, held, size, asked, user, queue in rows:
        fields = [job, at, -1, run, held, -1, -1, size, asked, -1, 1, user, -1, -1, queue]
        lines.append(" ".join(map(str, [*fields, -1, -1, -1])))
    path = tmp_path / "odd.swf"
    path.write_text("\n".join(lines) + "\n")
    return swf.read(path)


def kept(tmp_path: Path, **rules: object) -> TraceJobs:
    return normalise(trace_of(tmp_path, ROWS), 16, Rules(**rules))[0]  # type: ignore[arg-type]


def test_defaults(tmp_path: Path) -> None:
    jobs, report = normalise(trace_of(tmp_path, ROWS), 16)
    assert jobs.numbers.tolist() == [2, 1, 1]
    assert jobs.submitted.tolist() == [5, 10, 20]
    assert jobs.processors.tolist() == [4, 4, 3]
    assert jobs.run.tolist() == [200, 100, 50]
    assert jobs.cut.tolist() == [True, False, False]
    assert [spec.user for spec in jobs.specs()] == ["1", "1", ""]
    assert report == CleaningReport(
        jobs=7, kept=3, without_time=1, without_size=1, without_run=1, without_request=1,
        without_requested_processors=2, overrun=1, larger=1, duplicates=1, unsorted=2,
        comments_inside=0, blank_lines=0, short_lines=0, fractions=0, skipped_lines=0,
    )  # fmt: skip
    assert report.sentence.startswith("7 jobs: 1 without requested time, 2 without requested proc")
    assert report.sentence.endswith("2 out of order; 3 kept")


def test_each_rule(tmp_path: Path) -> None:
    assert kept(tmp_path, processors="allocated").processors.tolist() == [4, 4, 8, 2]
    capped = kept(tmp_path, larger="cap")
    assert capped.processors.tolist() == [4, 4, 16, 3]
    assert capped.estimate.tolist() == [200, 200, 50, 60]
    assert kept(tmp_path, larger="cap", without_request="drop").numbers.tolist() == [2, 1, 1]
    assert kept(tmp_path, overrun="extend").estimate.tolist() == [300, 200, 60]
    both = kept(tmp_path, overrun="keep")
    assert (both.run.tolist(), both.estimate.tolist()) == ([300, 100, 50], [200, 200, 60])
    zero = kept(tmp_path, without_run="keep", exact=True)
    assert zero.run.tolist() == [200, 100, 0, 50]
    assert zero.estimate.tolist() == [200, 100, 1, 50]
    assert kept(tmp_path, duplicates="drop").numbers.tolist() == [2, 1]
    assert kept(tmp_path, without_run="keep", ties="number").numbers.tolist() == [2, 1, 1, 3]
    assert kept(tmp_path, priority="queue").priorities.tolist() == [3, 1, 1]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            Rules(larger="error"),
            "job 4 asks for 40 processors, the machine has 16; the rule larger=drop",
        ),
        (
            Rules(duplicates="error"),
            "job 1 is in the trace more than once; the rule duplicates=keep",
        ),
    ],
)
def test_refusals(tmp_path: Path, rules: Rules, says: str) -> None:
    with pytest.raises(ReshapeError, match=says):
        normalise(trace_of(tmp_path, ROWS), 16, rules)


def test_nothing_left_and_no_machine(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, ROWS[3:4])
    with pytest.raises(
        ReshapeError, match="none of 1 job can run on 2 processors by these rules: 1 w"
    ):
        normalise(trace, 2)
    with pytest.raises(ReshapeError, match=r"give --processors N .the largest job asks for 40"):
        machine_size(trace)
    trace.header[:] = ["; MaxProcs: eight"]
    with pytest.raises(ReshapeError, match="the header says MaxProcs: eight, no number above 0;"):
        machine_size(trace)
    assert machine_size(swf.read(SMALL)) == 64

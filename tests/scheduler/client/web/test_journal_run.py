"""A recorded journal as a run: segments, stories and advice."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from paths import ROOT

from reshape.errors import ReshapeError
from scheduler.client.web.journal_run import JournalRun, recorded_run, story
from scheduler.client.web.run_data import Kind, RunData
from scheduler.journal.explanations import allocation
from scheduler.journal.journal_reader import reading
from scheduler.model.procset import ProcSet

JOURNAL = ROOT / "tests" / "scheduler" / "journal" / "recorded_run.sqlite"


def test_segments_cover_what_each_job_held() -> None:
    with reading(JOURNAL) as journal:
        run = recorded_run(journal, "recorded")
        numbers = [row.number for row in run.jobs]
        held = {n: allocation(journal.events_of(n), journal.orders_of(n)) for n in numbers}
    assert [job.state for job in run.jobs] == ["COMPLETED"] * 5 + ["CANCELLED", "FAILED"]
    assert run.processors == 8
    rows = run.segments
    for row, number in enumerate(numbers):
        for (begin, text), (end, _) in zip(held[number], held[number][1:], strict=False):
            middle = (begin + end) / 2 - (run.origin or 0)
            now = rows[(rows["job"] == row) & (rows["begin"] <= middle) & (middle < rows["end"])]
            drawn = ProcSet.union(
                ProcSet.span(first, count)
                for first, count in zip(now["first"].tolist(), now["count"].tolist(), strict=True)
            )
            assert str(drawn) == text
    resized = rows[rows["job"] == 0]
    assert set(resized["kind"].tolist()) == {Kind.COMPUTING, Kind.STARTING, Kind.LEAVING}


def test_a_journal_that_grows_gives_the_same_run(tmp_path: Path) -> None:
    copy = Path(shutil.copy(JOURNAL, tmp_path / "journal.db"))
    with closing(sqlite3.connect(copy)) as db:
        later = {
            table: db.execute(f"SELECT * FROM {table} WHERE batch>60").fetchall()
            for table in ("events", "orders")
        }
        for table in later:
            db.execute(f"DELETE FROM {table} WHERE batch>60")
        db.commit()
        with reading(copy) as journal:
            followed = JournalRun("r")
            assert followed.update(journal)
            assert not followed.update(journal)
            before = followed.data()
            for table, rows in later.items():
                marks = ",".join("?" * len(rows[0]))
                db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            db.commit()
            assert followed.update(journal)
    with reading(JOURNAL) as journal:
        whole = recorded_run(journal, "r")
    assert 0 < len(before.segments) < len(whole.segments)
    assert sorted(followed.data().segments.tolist()) == sorted(whole.segments.tolist())
    assert followed.rows == whole.jobs


def test_the_jobs_that_ended_first_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(JOURNAL) as journal:
        whole = recorded_run(journal, "r")
        monkeypatch.setattr("scheduler.client.web.journal_run.MOST_JOBS", 6)
        few = recorded_run(journal, "r")
    assert [row.number for row in few.jobs] == [4, 5, 7]
    assert few.jobs == [whole.jobs[row] for row in (3, 4, 6)]

    def drawn(run: RunData) -> list[tuple[int, float, float]]:
        rows = run.segments.tolist()
        return sorted((run.jobs[row[0]].number, row[3], row[4]) for row in rows)

    assert drawn(few) == [each for each in drawn(whole) if each[0] in (4, 5, 7)]


def test_a_story_has_sentences_sizes_and_pauses() -> None:
    with reading(JOURNAL) as journal:
        told = story(journal, 1)
        run = recorded_run(journal, "r")
    text = "\n".join(line for _, line, _ in told["lines"])
    assert "starts on processors 0-1" in text
    assert "is to expand to" in text
    heads, *resizes = told["resizes"]
    assert (heads[2], resizes[0][2]) == ("SIZE", "2-3")
    assert {row[-1] for row in resizes} == {"done"}
    assert told["facts"]["Command"].startswith("python -m apps.synthetic")
    assert [size for _, size in told["sizes"]][:2] == [2, 3]
    assert dict(told["iterations"]).keys() >= {2, 3}
    assert [row.gained_s is None for row in run.jobs] == [False] + [True] * 6
    assert run.jobs[0].gained_s == pytest.approx(told["gained_s"])
    times, gained = run.curves(0.0, run.end)["gained"]
    assert (gained[0], gained.max()) == (0.0, pytest.approx(told["gained_s"]))
    assert times[gained.argmax()] == pytest.approx(run.jobs[0].ended)


def test_a_job_that_gains_nothing_gets_advice() -> None:
    with reading(JOURNAL) as journal:
        told = {number: story(journal, number)["advice"] for number in range(1, 8)}
        times = dict(story(journal, 1)["iterations"])
    best = min(times.values())
    enough = min(size for size, seconds in times.items() if seconds <= 1.05 * best)
    expected = [] if enough == max(times) else [f"It gains nothing beyond {enough} processors"]
    assert [text.partition(":")[0] for text in told[1] if "beyond" in text] == expected


def test_a_job_that_is_not_there_is_an_error() -> None:
    with reading(JOURNAL) as journal, pytest.raises(ReshapeError, match="there is no job 99"):
        story(journal, 99)

"""Retention: old resize points go, old jobs go, and what is left is consistent."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import msgspec
import pytest

from reshape.errors import ReshapeError
from scheduler.config.settings import JournalConfig, NodeConfig, ServeConfig
from scheduler.core.core import Core
from scheduler.journal.ended_jobs import ended_info, page
from scheduler.journal.journal import Journal
from scheduler.journal.journal_reader import reading
from scheduler.journal.recovery import policy_errors, recover
from scheduler.journal.replay import compare
from scheduler.journal.retention import Retention, prune
from scheduler.model.events import JobEnded, JobSpec, JobStarted, JobSubmitted, NodeJoined
from scheduler.model.events import ResizePoint as Point
from scheduler.protocol import messages as m
from scheduler.protocol.messages import Submission, decode
from scheduler.service.reader_process import ExplainQuestion, answer

CONFIG = ServeConfig(nodes=(NodeConfig("local", 4),), scenario="fcfs-pr")
POINTS = 500


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """A journal without descriptions: job 1 has ended after many resize points, job 2 runs."""
    journal = Journal(path)
    core = Core(CONFIG.composed(), CONFIG.machine())
    points = [[Point(3.0 + i, 1, 1 + i, 0.5)] for i in range(POINTS)]
    for events in (
        [NodeJoined(0.0, "local", 4)],
        [JobSubmitted(1.0, 1, JobSpec(4, 6000.0, 5))],
        [JobStarted(2.0, 1)],
        *points,
        [JobEnded(1000.0, 1)],
        [JobSubmitted(1001.0, 2, JobSpec(1, 6000.0, 1))],
        [JobStarted(1002.0, 2)],
        *([Point(1003.0 + i, 2, 1 + i, 0.25)] for i in range(10)),
    ):
        journal.record(events, core.handle(events))
    for job in (1, 2):
        submission = Submission(["true"], 1, 600.0, environment={"LONG": "text"})
        journal.add_job(job, "token", submission)
        journal.note_job(core.jobs[job])
    journal.note_core(core.record())
    journal.commit()
    yield journal
    journal.close()


def count(journal: Journal, what: str) -> int:
    return int(next(journal.rows(f"SELECT count(*) FROM {what}"))[0])


def test_old_resize_points_are_removed_in_small_steps(journal: Journal) -> None:
    before = count(journal, "events")
    retention = Retention(journal, JournalConfig(keep_resize_points=100))
    steps = 0
    while retention.step(0.0):
        steps += 1
        if steps == 1:
            assert count(journal, "events WHERE kind='ResizePoint'") > 200
    assert steps > 4
    journal.commit()
    kept = count(journal, "events WHERE kind='ResizePoint'")
    assert 80 < kept <= 100
    assert count(journal, "events") <= 100 + 7 < before
    assert count(journal, "orders WHERE kind='Continue'") == kept


def test_what_is_left_is_recovered_and_explained(journal: Journal, path: Path) -> None:
    Retention(journal, JournalConfig(keep_resize_points=0)).finish()
    core, launches = recover(journal, CONFIG, policy_errors())
    journal.commit()
    assert list(core.jobs) == list(launches) == [2]
    assert core.now == 1012.0
    explanation = decode(answer(journal, 1, ExplainQuestion(1, [])))
    assert isinstance(explanation, m.Explanation)
    texts = [line.text for line in explanation.lines]
    removed = "what was decided at its resize points before 1970-01-01T00:16:40Z is not kept"
    assert texts[-2] == removed
    assert texts[-1].startswith("ended with exit code 0:0")
    with reading(path) as reader, pytest.raises(ReshapeError, match="cannot be replayed, since"):
        compare(reader.batches())


def test_an_ended_job_without_a_description_is_described_by_its_record(journal: Journal) -> None:
    job = journal.recorded_job(1)
    assert job is not None
    info = ended_info(journal, job)
    assert info.processor_seconds == pytest.approx(4 * 999.0)
    assert info.processor_seconds_by_size == [(4, pytest.approx(4 * 999.0))]
    listed, _ = page(journal, m.ListJobs(ended=True))
    assert msgspec.msgpack.decode(listed[1], type=m.JobInfo) == info


def test_pruned_jobs_are_gone_and_their_numbers_are_not_used_again(journal: Journal) -> None:
    assert prune(journal, 1000.0) == 0
    assert prune(journal, 1000.5) == 1
    assert prune(journal, inf) == 0
    assert journal.recorded_job(1) is None
    assert page(journal, m.ListJobs(ended=True)) == ({}, None)
    for table in ("records", "jobs"):
        assert count(journal, table) == 1
    assert count(journal, "orders WHERE job=1") == 0
    assert journal.last_job() == 2


def test_jobs_are_removed_after_their_days(journal: Journal) -> None:
    config = JournalConfig(keep_days=1.0)
    Retention(journal, config, lambda: 1000.0 + 86399.0).finish()
    assert count(journal, "records") == 2
    Retention(journal, config, lambda: 1000.0 + 86401.0).finish()
    assert count(journal, "records") == 1

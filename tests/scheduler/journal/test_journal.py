"""The journal refuses what cannot be read back, and reading survives records that are damaged."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path

import pytest
from msgspec.structs import replace

from reshape.errors import ReshapeError
from scheduler.config.settings import NodeConfig, ServeConfig
from scheduler.core.core import Core
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import SIZES_TOGETHER
from scheduler.journal.journal_reader import DamagedJournalError, reading
from scheduler.journal.opening import refusing_damage
from scheduler.journal.recovery import policy_errors, recover
from scheduler.journal.replay import settings_of
from scheduler.model.events import (
    JobEnded,
    JobSpec,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    ResizePoint,
)
from scheduler.model.job import FINAL, Job, JobState
from scheduler.model.orders import Continue, Reason
from scheduler.protocol.messages import Submission

CONFIG = ServeConfig(nodes=(NodeConfig("local", 4),), scenario="fcfs-pr")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """A journal of two jobs: the first has ended, the second runs."""
    journal = Journal(path)
    core = Core(CONFIG.composed(), CONFIG.machine())
    journal.add_settings(settings_of(core))
    spec = JobSpec(2, 600.0, 4)
    for events in (
        [NodeJoined(0.0, "local", 4)],
        [JobSubmitted(1.0, 1, spec)],
        [JobStarted(2.0, 1)],
        [ResizePoint(3.0, 1, 1, 0.5)],
        [JobSubmitted(4.0, 2, JobSpec(1, 600.0, 2))],
        [JobEnded(5.0, 1)],
        [JobStarted(6.0, 2)],
    ):
        journal.record(events, core.handle(events))
    for job in (1, 2):
        journal.add_job(job, "token", Submission(argv=["true"], processors=1, walltime_s=600.0))
        journal.note_job(core.jobs[job])
    journal.note_core(core.record())
    journal.commit()
    yield journal
    journal.close()


def recovered(path: Path) -> tuple[dict[int, JobState], list[str]]:
    """Recover; return the states of the jobs in the core and of the ended jobs in the journal."""
    journal = Journal(path)
    try:
        core, _ = recover(journal, CONFIG, policy_errors())
        ended = [journal.recorded_job(number) for number in {1, 2} - core.jobs.keys()]
        assert all(job.state not in FINAL for job in core.jobs.values())
    finally:
        journal.close()
    jobs = [*core.jobs.values(), *filter(None, ended)]
    return {job.id: job.state for job in jobs}, journal.unreadable


def damage(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        assert db.execute(statement).rowcount == 1


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_number_that_is_not_finite_is_refused(journal: Journal, value: float) -> None:
    with pytest.raises(ValueError, match="cannot be written to a journal"):
        journal.record([ResizePoint(7.0, 2, 1, value)], [])
    with pytest.raises(ReshapeError, match="residual must be a finite number"):
        journal.add_facts(2, {"residual": value})
    assert journal.facts(2) == {}
    assert len(list(journal.batches())) == 7


def test_a_reason_with_a_number_that_is_not_finite_can_be_read_back(journal: Journal) -> None:
    order = Continue(2, Reason("rule", "the rate is {rate}", {"rate": nan}))
    journal.record([ResizePoint(7.0, 2, 1, 0.5)], [order])
    (_, found), *_ = journal.orders_of(2, routine=True)[-1:]
    assert str(found.reason) == "the rate is nan [rule]"


def test_an_undamaged_journal_is_recovered_whole(journal: Journal, path: Path) -> None:
    states, unreadable = recovered(path)
    assert states == {1: JobState.COMPLETED, 2: JobState.RUNNING}
    assert unreadable == []


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE site SET record=CAST('x' AS BLOB)", "it has no checksum"),
        ("DELETE FROM site", "it has jobs and no state of the scheduler"),
    ],
)
def test_without_the_state_of_the_scheduler_nothing_is_recovered(
    journal: Journal, path: Path, statement: str, why: str
) -> None:
    damage(path, statement)
    with pytest.raises(ReshapeError, match=rf"is damaged \(.*{why}"), refusing_damage(path):
        recovered(path)


def test_a_job_whose_record_cannot_be_read_is_left_out(journal: Journal, path: Path) -> None:
    damage(path, "UPDATE records SET record=CAST('x' AS BLOB) WHERE job=2")
    states, unreadable = recovered(path)
    assert states == {1: JobState.COMPLETED}
    assert unreadable == ["the record of job 2 was left out: it has no checksum"]


def test_a_submission_that_cannot_be_read_keeps_its_job(journal: Journal, path: Path) -> None:
    damage(path, "UPDATE jobs SET submission=CAST('{' AS BLOB) WHERE job=2")
    journal = Journal(path)
    core, launches = recover(journal, CONFIG, policy_errors())
    assert core.jobs[2].state is JobState.RUNNING
    assert launches[2].token == "token"
    assert "submission of job 2" in journal.unreadable[0]
    journal.close()


def test_facts_without_a_value_are_dropped(journal: Journal, path: Path) -> None:
    journal.add_facts(2, {"verified": True})
    journal.commit()
    damage(path, """UPDATE facts SET facts=CAST('{"verified":true,"residual":null}' AS BLOB)""")
    assert journal.facts(2) == {"verified": True}


def test_the_latest_agent_of_a_node_is_known_to_the_next_service(path: Path) -> None:
    first = Journal(path)
    assert first.meta("agent local") is None
    first.note_meta("agent local", "a7")
    first.close()
    second = Journal(path)
    assert second.meta("agent local") == "a7"
    second.close()


def test_files_belong_to_their_owner_alone(journal: Journal, path: Path) -> None:
    modes = {part.name: part.stat().st_mode & 0o777 for part in path.parent.iterdir()}
    names = ["journal.db", "journal.db-wal", "journal.db-shm", "journal.mark"]
    assert modes == dict.fromkeys(names, 0o600)


def test_recovery_records_the_measurements_that_only_events_hold(journal: Journal) -> None:
    """A second death must find them although later records hide these events."""
    core, _ = recover(journal, CONFIG, policy_errors())
    point = [ResizePoint(7.0, 2, 1, 0.25)]
    journal.record(point, core.handle(point))
    journal.commit()
    assert journal.points_after_records() == point
    core, _ = recover(journal, CONFIG, policy_errors())
    journal.commit()
    assert not journal.points_after_records()
    (job,) = journal.recorded_jobs()
    assert job.history.time_s(1) == core.jobs[2].history.time_s(1) == 0.25


def test_the_job_of_a_submission_key_is_known_within_the_turn_and_after_it(
    journal: Journal,
) -> None:
    journal.add_key(1, "ann", "k")
    journal.add_key(2, "bob", "k")
    asked = [("ann", "k"), ("bob", "k"), ("ann", "other"), ("eve", "k")]
    assert [journal.job_of_key(*key) for key in asked] == [1, 2, None, None]
    journal.commit()
    assert [journal.job_of_key(*key) for key in asked] == [1, 2, None, None]


def test_the_record_of_a_job_that_resizes_often_does_not_grow(path: Path) -> None:
    """Each change of its size is written once, and not again with each later one."""
    journal, job = Journal(path), Job(7, JobSpec(1, 600.0, 2), 0.0)
    job.state, job.started_at = JobState.RUNNING, 0.0
    lengths = []
    for i in range(1000):
        job.sizes += ((float(i), 1 + i % 2),)
        job.committed += 1
        journal.note_job(job)
        journal.commit()
        [(length,)] = journal.rows("SELECT length(record) FROM records")
        lengths.append(length)
    assert max(lengths[500:]) < max(lengths[:500]) + 20  # larger numbers have more bytes
    [(rows, written)] = journal.rows("SELECT count(*), sum(length(sizes)) FROM sizes")
    assert rows == 1000 // SIZES_TOGETHER
    assert written < 20 * 1000
    journal.close()

    journal = Journal(path)
    [again] = journal.recorded_jobs()
    assert again.sizes == job.sizes
    again.sizes += ((1000.0, 2),)
    journal.note_job(again)
    journal.commit()
    found = journal.recorded_job(7)
    assert found is not None
    assert found.sizes == again.sizes
    again.state, again.ended_at = JobState.COMPLETED, 1001.0
    journal.note_job(again)
    journal.commit()
    assert list(journal.rows("SELECT * FROM sizes")) == []
    [found] = journal.recorded_jobs("ended_at IS NOT NULL")
    assert found.sizes == again.sizes
    journal.close()


def test_a_record_whose_earlier_sizes_are_damaged_is_reported(path: Path) -> None:
    journal, job = Journal(path), Job(7, JobSpec(1, 600.0, 2), 0.0)
    job.state, job.started_at = JobState.RUNNING, 0.0
    job.sizes = tuple((float(i), 1 + i % 2) for i in range(2 * SIZES_TOGETHER))
    journal.note_job(job)
    journal.commit()
    journal.write("DELETE FROM sizes WHERE place=?", SIZES_TOGETHER)
    journal.commit()
    assert journal.recorded_jobs() == []
    [report] = journal.unreadable
    assert f"it has {SIZES_TOGETHER} of its {2 * SIZES_TOGETHER} first changes" in report
    journal.close()


def test_a_changed_scenario_is_logged_by_its_fields(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    recover(journal, replace(CONFIG, parameters={"max_restarts": 5}), policy_errors())
    (line,) = [each for each in caplog.messages if each.startswith("scenario")]
    assert line == "scenario changed since the last run: scenario.max_restarts was 3, is 5"


def test_a_log_that_a_reader_has_created_again_is_not_that_of_the_service(
    journal: Journal, path: Path
) -> None:
    log = path.with_name("journal.db-wal")
    log.unlink()
    with pytest.raises(DamagedJournalError), reading(path) as reader:
        reader.sequence()
    assert log.exists()
    assert journal.restore_files()
    assert not journal.restore_files()
    assert recovered(path) == ({1: JobState.COMPLETED, 2: JobState.RUNNING}, [])


def test_a_journal_behind_a_link_stays_there(tmp_path: Path) -> None:
    """It may be on another file system than the directory of the service."""
    link, target = tmp_path / "journal.db", tmp_path / "other" / "journal.db"
    target.parent.mkdir()
    link.symlink_to(target)
    journal = Journal(link)
    try:
        journal.note_meta("agent local", "a7")
        journal.commit()
        assert not journal.restore_files()
        target.unlink()
        assert journal.restore_files()
    finally:
        journal.close()
    assert link.is_symlink()
    second = Journal(target)
    assert second.meta("agent local") == "a7"
    second.close()


def test_a_copy_that_cannot_be_written_leaves_nothing(journal: Journal, path: Path) -> None:
    """On a full disk it would take the room that the next attempt needs."""
    path.unlink()
    draft = path.with_name("journal.db.draft")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(sqlite3.Error):
            journal.restore_files()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not draft.exists()
    assert journal.restore_files()

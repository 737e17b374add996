"""The commands of `reshape journal` on the journal of a service that has ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from desk import Desk
from msgspec.structs import replace

from reshape.errors import ReshapeError
from scheduler.client.administration.journal import journal
from scheduler.model.events import JobSpec
from scheduler.protocol import messages as m
from scheduler.service.permissions import owner


def run(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(journal, list(map(str, arguments)))
    if done.exit_code != code:
        raise AssertionError(done.output) from done.exception
    return done


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory in which one job has ended and one waits."""
    desk = Desk(tmp_path / "service")
    for _ in range(2):
        submission = m.Submission(argv=["true"], processors=1, walltime_s=60.0)
        desk.ask(b"x", m.Submit(submission=submission))
    desk.ask(b"x", m.ChangeJobs.one(1, m.CancelJob()))
    desk.turn()
    desk.components.journal.close()
    return tmp_path / "service"


def test_info_shows_rows_and_times(directory: Path) -> None:
    facts = json.loads(run("info", "--json", directory).output)
    assert facts["format"] == "5"
    assert facts["rows"]["records"] == 2
    assert facts["ended_jobs"] == 1
    assert facts["first_end_at"] == facts["last_end_at"] > 0
    assert facts["incomplete_up_to_batch"] is None
    assert "incomplete up to batch: -" in run("info", directory).output


@pytest.fixture
def snapshot(directory: Path) -> Iterator[Path]:
    """The directory on a file system to which nobody can write."""
    bind = ["mount", "--bind", str(directory), str(directory)]
    if os.geteuid() != 0 or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("mounting a folder read-only needs root")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(directory)], check=True)
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_journal_on_a_read_only_file_system_is_read(snapshot: Path, tmp_path: Path) -> None:
    assert "ended jobs:             1" in run("info", snapshot).output
    assert "complete and undamaged" in run("check", snapshot).output
    assert '"JobSubmitted"' in run("export", snapshot).output
    assert "up to job 2" in run("backup", snapshot, tmp_path / "copy").output


def test_compact_leaves_the_other_jobs(directory: Path) -> None:
    assert "removed" not in run("compact", directory).output
    assert json.loads(run("info", "--json", directory).output)["ended_jobs"] == 1
    assert "removed 0 jobs" in run("compact", "--before", "2000-01-01", directory).output
    words = ("--before", "2200-01-01", "--keep-resize-points", 0)
    told = run("compact", *words, directory).output
    assert "MiB, now" in told
    assert "removed 1 job" in told
    facts = json.loads(run("info", "--json", directory).output)
    assert (facts["rows"]["records"], facts["ended_jobs"], facts["free_bytes"]) == (1, 0, 0)
    assert facts["incomplete_up_to_batch"] > 0
    desk = Desk(directory)
    (answer,) = desk.ask(b"x", m.ListJobs())
    desk.components.journal.close()
    assert isinstance(answer, m.JobListing)
    assert [job.job for job in answer.jobs] == [2]


def test_export_prints_jobs_events_and_orders(directory: Path) -> None:
    lines = [json.loads(line) for line in run("export", directory).output.splitlines()]
    assert [line["job"]["state"] for line in lines if "job" in line] == ["CANCELLED"]
    assert [line["kind"] for line in lines if "event" in line].count("JobSubmitted") == 2
    spec = next(line["event"]["spec"] for line in lines if line.get("kind") == "JobSubmitted")
    assert set(spec) == set(JobSpec.__struct_fields__), "defaults are printed"


def test_jobs_are_cancelled_while_no_service_runs(directory: Path) -> None:
    desk = Desk(directory)
    submission = m.Submission(argv=["true"], processors=1, walltime_s=60.0)
    for user in ("ann", "bob", "ann"):
        desk.ask(b"x", m.Submit(submission=submission), owner(user))
    following = replace(submission, dependency="afterany:2")
    desk.ask(b"x", m.Submit(submission=following))
    desk.components.journal.close()
    assert "jobs not ended:         ann 2, bob 1, root 2" in run("info", directory).output

    done = run("cancel", directory, 2, 7, code=1)
    assert "job 7 has ended, or is not in the journal" in str(done.exception)
    assert "user eve has no job" in str(run("cancel", "--user", "eve", directory, code=1).exception)
    assert "no job is named" in run("cancel", directory, code=2).output
    told = run("cancel", directory, 2).output
    assert "1 job will be cancelled when the service starts: 2" in told
    told = run("cancel", "--user", "ann", directory).output
    assert "3 jobs will be cancelled when the service starts: 2, 3, 5" in told

    for _ in range(2):  # they are cancelled once
        desk = Desk(directory)
        assert queued(desk) == [4, 6]
        (answer,) = desk.ask(b"x", m.ListJobs(job=5))
        assert isinstance(answer, m.JobListing)
        assert answer.jobs[0].state == "CANCELLED"
        assert answer.jobs[0].reason.endswith("while the service did not run")
        assert "Dependency" not in desk.components.core.reason_pending(6).rule
        desk.components.journal.close()


def test_a_task_is_no_number_of_a_job(directory: Path) -> None:
    refused = run("cancel", directory, "1_2", code=2)
    assert "'1_2' is not a whole number" in refused.output


def test_a_running_service_keeps_its_journal_to_itself(directory: Path) -> None:
    from scheduler.node.directory import ServiceDirectory

    with ServiceDirectory(directory).lock():
        done = run("compact", "--before", "2200-01-01", directory, code=1)
    assert "a service runs in" in str(done.exception)


def submit(desk: Desk) -> int:
    job = m.Submission(argv=["true"], processors=1, walltime_s=60.0)
    (answer,) = desk.ask(b"x", m.Submit(submission=job))
    assert isinstance(answer, m.Submitted)
    return answer.job


def queued(desk: Desk) -> list[int]:
    (answer,) = desk.ask(b"x", m.ListJobs())
    assert isinstance(answer, m.JobListing)
    return [job.job for job in answer.jobs]


def test_a_copy_of_a_running_service_is_restored(directory: Path, tmp_path: Path) -> None:
    """As docs/backup.md says: the journal alone in place of the lost one, or the whole folder."""
    desk, copy = Desk(directory), tmp_path / "copies" / "monday"
    assert submit(desk) == 3
    assert "complete and undamaged, up to job 3" in run("backup", directory, copy).output
    assert "exists: name a new folder" in str(run("backup", directory, copy, code=1).exception)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (copy, *copy.iterdir())}
    assert modes.pop("monday") == 0o700
    assert modes == dict.fromkeys(["journal.db", "journal.mark", "secret", "memory-folder"], 0o600)
    assert [submit(desk), submit(desk)] == [4, 5]
    desk.components.journal.close()

    for part in directory.glob("journal.db*"):
        part.unlink()
    shutil.copy(copy / "journal.db", directory)
    with pytest.raises(ReshapeError, match="with the submission of jobs 4 to 5: restore"):
        Desk(directory)
    desk = Desk(directory, accept_loss=True)
    assert queued(desk) == [2, 3]
    assert submit(desk) == 6
    desk.components.journal.close()

    whole = Desk(copy)
    assert queued(whole) == [2, 3]
    assert whole.components.directory.read_secret() == desk.components.directory.read_secret()
    whole.components.journal.close()

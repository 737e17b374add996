"""A journal that lacks what was acknowledged is refused, with a sentence on what is missing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import invoke
from desk import Desk
from paths import ROOT

from reshape.errors import ReshapeError
from scheduler.journal.journal import Journal
from scheduler.journal.opening import JournalFullError, Mark
from scheduler.model.events import JobSpec, JobSubmitted, ResizePoint
from scheduler.protocol.messages import Submission, Submit


def submit(journal: Journal, *numbers: int, durable: bool = True) -> None:
    """Write one transaction for each submission."""
    for number in numbers:
        submitted = JobSubmitted(float(number), number, JobSpec(1, 60.0))
        journal.record([submitted], [], durable=durable)
        journal.add_job(number, "token", Submission(["true"], 1, 60.0))
        journal.commit()


def die(journal: Journal) -> None:
    """Leave the files as they are when the service is killed, and let go of them."""
    folder = journal.path.parent
    shutil.copytree(folder, folder / "killed")
    journal.close()
    for part in (folder / "killed").iterdir():
        shutil.move(part, folder / part.name)
    (folder / "killed").rmdir()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def killed(path: Path) -> Path:
    """The journal of a service that was killed after three submissions."""
    journal = Journal(path)
    submit(journal, 1, 2, 3)
    die(journal)
    return path


def mark_of(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(path.with_suffix(".mark").read_text())
    return found


def test_the_mark_follows_every_transaction(path: Path) -> None:
    journal = Journal(path)
    submit(journal, 1, 2)
    journal.record([ResizePoint(3.0, 1, 1, 0.5)], [])
    journal.commit()
    journal.commit()  # with nothing to write
    mark = mark_of(path)
    assert (mark["sequence"], mark["synced"], mark["job"]) == (3, 2, 2)
    assert set(mark) == set(Mark.__struct_fields__)
    journal.close()


def test_a_death_between_the_journal_and_its_mark_is_no_loss(path: Path) -> None:
    journal = Journal(path)
    submit(journal, 1)
    before = path.with_suffix(".mark").read_bytes()
    submit(journal, 2)
    die(journal)
    path.with_suffix(".mark").write_bytes(before)
    again = Journal(path)
    assert again.last_job() == 2
    again.close()


def flip_the_end_of_the_log(path: Path) -> None:
    log = path.with_name("journal.db-wal")
    data = bytearray(log.read_bytes())
    data[-100] ^= 1
    log.write_bytes(data)


def remove_the_database(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "missing", "kept"),
    [
        (flip_the_end_of_the_log, "transaction 3, with the submission of job 3", [1, 2]),
        (remove_the_database, "transactions 1 to 3, with the submission of jobs 1 to 3", []),
    ],
)
def test_a_loss_is_refused_unless_it_is_accepted_and_no_number_is_used_again(
    killed: Path, damage: Callable[[Path], None], missing: str, kept: list[int]
) -> None:
    damage(killed)
    before = {part.name: part.read_bytes() for part in killed.parent.glob("journal.db*")}
    for _ in range(2):  # a refusal changes nothing
        with pytest.raises(ReshapeError, match=rf"journal\.db lacks {missing}: .* --accept-loss"):
            Journal(killed)
    after = {part.name: part.read_bytes() for part in killed.parent.glob("journal.db*")}
    assert after.items() >= {(n, b) for n, b in before.items() if not n.endswith("-shm")}
    accepted = Journal(killed, accept_loss=True)
    assert [*accepted.launches()] == kept
    assert accepted.last_job() == 3
    die(accepted)
    again = Journal(killed)  # it was accepted once and for all
    assert again.last_job() == 3
    again.close()


def test_the_jobs_of_a_service_go_on_after_those_that_were_lost(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    job = Submit(submission=Submission(["true"], 1, 60.0))
    assert [desk.ask(b"peer", job)[0].job for _ in range(3)] == [1, 2, 3]
    desk.components.journal.close()
    for part in tmp_path.glob("journal.db*"):
        part.unlink()
    with pytest.raises(ReshapeError, match="with the submission of jobs 1 to 3"):
        Desk(tmp_path)
    desk = Desk(tmp_path, accept_loss=True)
    assert desk.ask(b"peer", job)[0].job == 4
    desk.components.journal.close()


def test_an_earlier_copy_and_the_journal_of_another_service_are_refused(
    path: Path, tmp_path: Path
) -> None:
    journal = Journal(path)
    submit(journal, 1)
    with closing(sqlite3.connect(tmp_path / "copy")) as copy, closing(sqlite3.connect(path)) as db:
        db.backup(copy)
    submit(journal, 2)
    journal.close()
    shutil.copy(tmp_path / "copy", path)
    with pytest.raises(ReshapeError, match="lacks transaction 2, with the submission of job 2"):
        Journal(path)
    (tmp_path / "other").mkdir()
    other = Journal(tmp_path / "other" / "journal.db")
    submit(other, 1, 2, 3, 4)
    other.close()
    shutil.copy(other.path, path)
    with pytest.raises(ReshapeError, match="lacks transactions 1 to 2, with the submission of"):
        Journal(path)


@pytest.mark.parametrize(("synced", "is_refused"), [(2, False), (3, True)])
def test_the_death_of_the_machine_may_lose_what_was_not_synced(
    killed: Path, synced: int, is_refused: bool
) -> None:
    flip_the_end_of_the_log(killed)  # transaction 3 is lost
    mark = mark_of(killed) | {"synced": synced, "boot": "an earlier one"}
    killed.with_suffix(".mark").write_text(json.dumps(mark))
    if is_refused:
        with pytest.raises(ReshapeError, match="lacks transaction 3"):
            Journal(killed)
        return
    journal = Journal(killed)
    assert journal.sequence() == 2
    journal.close()


def test_a_mark_that_cannot_be_read_is_told(killed: Path) -> None:
    killed.with_suffix(".mark").write_bytes(b"")
    with pytest.raises(ReshapeError, match=r"journal\.mark cannot be read .*: restore this file"):
        Journal(killed)
    killed.with_suffix(".mark").unlink()
    journal = Journal(killed)
    assert mark_of(killed)["sequence"] == 3
    journal.close()


def test_a_damaged_record_of_an_ended_job_is_named_and_can_be_gone_without(path: Path) -> None:
    journal = Journal(path)
    for number in (1, 2):
        journal.note_summary(number, b"description")
    journal.commit()
    journal.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "UPDATE summaries SET summary=CAST(replace(summary, 'd', 'D') AS BLOB) WHERE job=2"
        )
    with pytest.raises(ReshapeError, match="lacks the description of job 2: restore"):
        Journal(path)
    refused = invoke("journal", "check", path.parent, code=1)
    assert "lacks the description of job 2" in refused.stderr
    accepted = Journal(path, accept_loss=True)
    assert [number for (number,) in accepted.rows("SELECT job FROM summaries")] == [1]
    accepted.close()
    assert "complete and undamaged" in invoke("journal", "check", path.parent).stdout
    Journal(path).close()


@pytest.mark.parametrize("accepts", [False, True])
def test_a_permission_that_nothing_needs_is_named_in_the_log(
    path: Path, caplog: pytest.LogCaptureFixture, accepts: bool
) -> None:
    Journal(path).close()
    Journal(path, accept_loss=accepts).close()
    assert ("lacks nothing that --accept-loss" in caplog.text) == accepts


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_an_intact_journal_on_a_full_disk_lacks_nothing_but_room(small_disk: Path) -> None:
    path = small_disk / "journal.db"
    journal = Journal(path)
    submit(journal, 1)
    journal.close()
    with (small_disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    with pytest.raises(JournalFullError, match=r"no room on the disk .*: make room and start"):
        Journal(path)
    (small_disk / "filler").unlink()
    journal = Journal(path)
    assert journal.last_job() == 1
    journal.close()


def test_thirty_damages_are_refused_or_harm_nothing() -> None:
    program = ROOT / "benchmarks" / "reliability" / "damages.py"
    done = subprocess.run(
        [sys.executable, program, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads(done.stdout)
    assert len(table["rows"]) == 30
    assert table["totals"]["refused"] >= 20
    assert table["totals"]["complete"] >= 3
    reasons = [row["why"] for row in table["rows"] if row["outcome"] == "refused"]
    assert all("journal" in why and "restore" in why for why in reasons), reasons

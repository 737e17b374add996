"""Recovery takes over what was decided, whatever the code would decide now."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from told import WAITS
from waiting import wait_until

from reshape.errors import ReshapeError
from scheduler.journal.journal_reader import reading
from scheduler.journal.replay import compare
from scheduler.protocol import messages as m

ORDER = """
import msgspec
from scheduler.policies.api import QueueOrder

class Order(QueueOrder, msgspec.Struct, frozen=True):
    ages = False

    def key(self, job, now):
        return {key}
"""
#: It goes on until it is cancelled. Its iterations get so much shorter on more processors that the
#: policies see it on a loaded machine, too.
GROWS = ["python", "-m", "apps.synthetic", "--iterations", "100000", "--seconds", "0.6"]
GROWS += ["--speedup", "amdahl:serial=0"]
APPEND = 'import sys; open("runs", "a").write(sys.argv[1] + "\\n")'


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a user-defined queue order, on the path of the service."""
    folder = tmp_path / "policies"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    file = folder / "recovery_order.py"
    file.write_text(ORDER.format(key="job.id"))
    return file


def test_an_edited_policy_changes_no_decision_of_the_past(served: Any, order: Path) -> None:
    served.start("--processors", "1", "--set", "order=recovery_order:Order")
    first = served.submit(WAITS)
    later = [served.submit([sys.executable, "-c", APPEND, f"job {n}"]) for n in (2, 3, 4)]
    running = served.submit(["sleep", "600"])
    served.let_end(first)
    assert all(served.wait(job).state == "COMPLETED" for job in (first, *later))
    served.until(running, "RUNNING")
    waiting = served.submit([sys.executable, "-c", APPEND, "job 6"])
    story = served.story(later[0])
    served.kill()

    order.write_text(ORDER.format(key="-job.id"))
    served.start()
    assert [served.job(job).state for job in (first, *later)] == ["COMPLETED"] * 4
    assert served.story(later[0]) == story
    assert served.job(running).state == "RUNNING"
    assert served.job(waiting).state == "PENDING"
    log = served.place.log("serve").read_text()
    assert "policies changed since the last run" in log
    assert f"job={first} starts on processors " in log
    assert f"job={first} ended with exit code 0:0" in log
    served.ask(m.ChangeJobs.one(running, m.CancelJob()))
    assert served.wait(waiting).state == "COMPLETED"
    ran = (served.work / "runs").read_text().splitlines()
    assert sorted(ran) == ["job 2", "job 3", "job 4", "job 6"], "each once"


def test_recovery_needs_no_events(served: Any) -> None:
    """The time of a recovery depends on the jobs there are, not on the length of the past."""
    served.start("--processors", "4", "--scenario", "fcfs-pr")
    ended = served.submit(["true"])
    assert served.wait(ended).state == "COMPLETED"
    growing = served.submit(
        GROWS,
        2,
        max_processors=4,
    )
    served.when(growing, lambda job: job.size == 4)
    served.kill()
    with contextlib.closing(sqlite3.connect(served.place.journal)) as journal, journal:
        journal.execute("DELETE FROM events")
        journal.execute("DELETE FROM orders")
    served.start()
    assert served.job(ended).state == "COMPLETED"
    job = served.job(growing)
    assert (job.state, job.size) == ("RUNNING", 4)
    assert [size for _, size in job.sizes] == [2, 3, 4]
    served.ask(m.ChangeJobs.one(growing, m.CancelJob()))
    assert served.wait(growing).state == "CANCELLED"


def test_a_replay_follows_a_run_through_its_recoveries(served: Any) -> None:
    served.start("--processors", "4", "--scenario", "pba-pr")
    growing = served.submit(
        GROWS,
        2,
        max_processors=4,
    )
    served.when(growing, lambda job: job.size == 4)
    rigid = served.submit(["true"], 2)
    for _ in range(2):
        served.kill()
        served.start()
    assert served.wait(rigid).state == "COMPLETED", "the job that grew made room"
    served.ask(m.ChangeJobs.one(growing, m.CancelJob()))
    served.wait(growing)
    with reading(served.place.journal) as records:
        found = compare(records.batches())
    assert found.difference is None, "\n".join(found.difference.lines)
    assert found.resizes >= 2


def test_a_damaged_record_is_left_out_if_its_loss_is_accepted(served: Any) -> None:
    served.start("--processors", "2")
    kept, lost = served.submit(["sleep", "600"]), served.submit(["sleep", "600"])
    for job in (kept, lost):
        served.until(job, "RUNNING")
    served.kill()
    with contextlib.closing(sqlite3.connect(served.place.journal)) as journal, journal:
        journal.execute("UPDATE records SET record=X'00' WHERE job=?", (lost,))
    with pytest.raises(ReshapeError, match=f"the record of job {lost} was left out"):
        served.start()
    served.start(*served.options, "--accept-loss")
    assert served.job(kept).state == "RUNNING"
    with pytest.raises(ReshapeError, match=f"job {lost} is not in the journal any more"):
        served.job(lost)
    wait_until(lambda: [process.name() for process in served.processes()].count("sleep") == 1)


def test_a_journal_of_a_later_release_is_not_touched(served: Any) -> None:
    served.start("--processors", "2")
    served.end()
    journal = served.place.journal
    with contextlib.closing(sqlite3.connect(journal)) as db, db:
        db.execute("UPDATE meta SET value='99' WHERE key='format'")
    subprocess.run(["sync", str(journal)], check=True)
    before = journal.read_bytes()
    with pytest.raises(ReshapeError, match="journal format 99"):
        served.start()
    assert journal.read_bytes() == before

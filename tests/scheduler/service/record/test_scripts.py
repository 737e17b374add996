"""Texts of job scripts in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.protocol.messages import Submission
from scheduler.service.record.journal import Journal
from scheduler.service.record.opening import JournalFullError
from scheduler.service.record.scripts import Scripts

TEXT = "#!/bin/sh\necho \u00e9\n"


def submission(text: str = TEXT) -> Submission:
    return Submission(argv=["job.sh"], processors=1, walltime_s=1.0, script=True, text=text)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def test_a_text_is_kept_once_until_its_last_job_has_ended(journal: Journal) -> None:
    scripts = Scripts(journal, {})
    first, second = scripts.keep(1, submission()), scripts.keep(2, submission())
    other = scripts.keep(3, submission("#!/bin/sh\n"))
    assert first == second == scripts.named(submission())
    assert len(first.text) == 64  # what memory and journal have of it for each job
    assert journal.scripts() == {first.text, other.text}
    assert (scripts.text(first), scripts.text(other)) == (TEXT, "#!/bin/sh\n")
    for _ in range(2):  # an end may be noted again
        scripts.drop(1, first)
        assert scripts.text(second) == TEXT
    scripts.drop(2, second)
    assert journal.scripts() == {other.text}


def test_a_restart_keeps_the_texts_of_jobs_that_have_not_ended(
    journal: Journal, tmp_path: Path
) -> None:
    scripts = Scripts(journal, {})
    named = scripts.keep(1, submission())
    scripts.keep(2, submission("#!/bin/sh\n"))
    journal.close()
    again = Journal(tmp_path / "journal.db")
    scripts = Scripts(again, {1: named, 3: submission("")})
    assert again.scripts() == {named.text}
    assert scripts.text(named) == TEXT
    scripts.drop(3, submission(""))
    scripts.drop(1, named)
    assert not again.scripts()
    again.close()


@pytest.mark.parametrize("damage", ["DELETE FROM scripts", "UPDATE scripts SET text=x'2321ff'"])
def test_a_text_that_is_lost_or_damaged_is_noticed(journal: Journal, damage: str) -> None:
    scripts = Scripts(journal, {})
    named = scripts.keep(1, submission())
    journal.write(damage)
    with pytest.raises(LookupError, match="does not have its script any more"):
        scripts.text(named)


def test_there_must_be_room_for_a_text(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.service.record.journal.free_bytes", lambda _path: 9 << 20)
    journal.check_room()
    with pytest.raises(JournalFullError, match=r"is full \(9437184 bytes are free\)"):
        journal.check_room("x" * (2 << 20))

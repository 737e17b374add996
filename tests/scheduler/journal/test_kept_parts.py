"""Scripts, environments and long commands in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import MOST_COMMAND, KeptSubmission, kept
from scheduler.journal.kept_parts import KeptParts
from scheduler.journal.opening import JournalFullError
from scheduler.protocol.messages import Submission

TEXT = "#!/bin/sh\necho \u00e9\n"


def submission(text: str = TEXT) -> Submission:
    return Submission(argv=["job.sh"], processors=1, walltime_s=1.0, script=True, text=text)


def keep(parts: KeptParts, job: int, given: Submission) -> KeptSubmission:
    small, large = kept(given)
    parts.keep(job, large)
    return small


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def test_a_text_is_kept_once_until_its_last_job_has_ended(journal: Journal) -> None:
    parts = KeptParts(journal, {})
    first, second = keep(parts, 1, submission()), keep(parts, 2, submission())
    other = keep(parts, 3, submission("#!/bin/sh\n"))
    assert first == second
    assert len(first.text) == 64  # what memory and journal have of it for each job
    assert journal.parts() == {first.text, other.text}
    assert (parts.whole(1, first).text, parts.whole(3, other).text) == (TEXT, "#!/bin/sh\n")
    for _ in range(2):  # an end may be noted again
        parts.drop(1, first)
        assert parts.whole(2, second) == submission()
    parts.drop(2, second)
    assert journal.parts() == {other.text}


def test_a_restart_keeps_the_texts_of_jobs_that_have_not_ended(
    journal: Journal, tmp_path: Path
) -> None:
    parts = KeptParts(journal, {})
    small = keep(parts, 1, submission())
    keep(parts, 2, submission("#!/bin/sh\n"))
    journal.close()
    again = Journal(tmp_path / "journal.db")
    plain = kept(submission(""))[0]
    parts = KeptParts(again, {1: small, 3: plain})
    assert again.parts() == {small.text}
    assert parts.whole(1, small) == submission()
    parts.drop(3, plain)
    parts.drop(1, small)
    assert not again.parts()
    again.close()


@pytest.mark.parametrize("damage", ["DELETE FROM scripts", "UPDATE scripts SET text=x'2321ff'"])
def test_a_part_that_is_lost_or_damaged_is_noticed(
    journal: Journal, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts = KeptParts(journal, {})
    small = keep(parts, 1, submission())
    journal.write(damage)
    assert parts.whole(1, small) == msgspec.structs.replace(submission(""), argv=["false"])
    assert "job 1: the journal has lost its script, environment or command" in caplog.text


WORDS = st.lists(st.text(max_size=9) | st.just("w" * 3000), max_size=4)


@given(WORDS, WORDS, st.dictionaries(st.text(max_size=3), st.text(max_size=9)), st.text(max_size=9))
@examples(100)
def test_what_is_kept_is_small_and_whole(
    wrapper: list[str], argv: list[str], environment: dict[str, str], text: str
) -> None:
    given = Submission(argv, 1, 1.0, wrapper=wrapper, environment=environment, text=text)
    small, large = kept(given)
    assert sum(map(len, (*small.argv, *small.wrapper, small.text))) <= MOST_COMMAND + 3 + 64
    assert small.environment == {}
    assert sorted(large) == sorted(set(small.parts))
    decoded = json.decode(json.encode(small), type=KeptSubmission)

    class Held:
        """The parts of a journal, in memory."""

        part = staticmethod(large.get)

        def parts(self) -> set[str]:
            return set()

    assert KeptParts(Held(), {}).whole(1, decoded) == given  # type: ignore[arg-type]


def test_there_must_be_room_for_a_part(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.journal.journal.free_bytes", lambda _path: 9 << 20)
    journal.check_room()
    with pytest.raises(JournalFullError, match=r"is full \(9437184 bytes are free\)"):
        journal.check_room(5 << 20)

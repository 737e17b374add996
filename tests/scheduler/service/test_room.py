"""A full disk, without a service: the journal loses nothing, and messages are held or refused."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape.errors import ReshapeError
from reshape.wire.codec import encode
from scheduler.journal.journal import Journal
from scheduler.journal.opening import JournalFullError
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode
from scheduler.service.limits import LEAST_BYTES, LIMIT_BYTES, Received, RoomForJournal
from scheduler.service.permissions import owner

OWNER = owner("ann")
JOB = m.Submission(argv=["true"], processors=1, walltime_s=60.0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def submit_for_ever(journal: Journal) -> None:
    while True:
        number = journal.batch + 1
        submitted = JobSubmitted(float(number), number, JobSpec(1, 60.0, name="x" * 5000))
        journal.record([submitted], [], durable=number % 2 == 0)
        journal.add_job(number, "token", JOB)
        journal.sync()
        journal.commit()


def test_what_could_not_be_written_is_written_when_there_is_room(small_disk: Path) -> None:
    journal = Journal(small_disk / "journal.db")
    journal.check_room()
    journal.commit()  # the end of a turn
    filler = small_disk / "filler"
    fill(filler)
    with pytest.raises(JournalFullError, match="no job is accepted until there is room"):
        journal.check_room()
    with pytest.raises(JournalFullError, match=r"journal\.db cannot be written"):
        submit_for_ever(journal)
    count = journal.batch
    for _ in range(3):
        with pytest.raises(JournalFullError):
            journal.commit()
    filler.unlink()
    journal.commit()
    fill(filler)
    with pytest.raises(JournalFullError):
        submit_for_ever(journal)
    journal.close()
    filler.unlink()
    again = Journal(small_disk / "journal.db")
    assert [event.at for batch in again.batches() for event in batch.events] == [
        float(number + 1) for number in range(count)
    ]
    assert again.last_job() == count
    again.close()


def test_commands_are_refused_and_reports_are_held() -> None:
    room = RoomForJournal()
    assert not room.reason
    room.note_failure("the disk is full")
    assert room.reason
    assert not room.retry_is_due()
    with pytest.raises(ReshapeError, match="the disk is full; the service waits until there is"):
        hold(room, b"a", m.Submit(submission=JOB, id=7))
    facts = m.Facts(job=1, token="t", facts={})
    hold(room, b"job", facts)
    for pid in (1, 2):
        hello = m.AgentHello(node="n", pid=pid, secret="", groups=[], restart_points=[])
        hold(room, b"agent", hello)
    room.note_success()
    assert not room.reason
    assert held_by(room) == [(b"agent", encode(hello), OWNER), (b"job", encode(facts), OWNER)]
    assert not room.holds


def hold(room: RoomForJournal, peer: bytes, message: m.Message) -> None:
    room.hold((peer, encode(message), OWNER), message)


def held_by(room: RoomForJournal) -> list[Received]:
    held = []
    while room.holds:
        held.append(room.take())
    return held


def test_only_the_latest_sending_of_a_message_is_held() -> None:
    """A job asks at each resize point, and repeats its reports, as long as it gets no answer."""
    room = RoomForJournal()
    room.note_failure("the disk is full")
    for point in range(10_000):
        for message in (
            m.ResizeReport(id=7, job=1, token="t", serial=3, ok=True),
            m.AtResizePoint(
                id=10 + point,
                job=1,
                token="t",
                epoch=0,
                size=1,
                registered_bytes=0,
                iteration=point,
                iteration_s=1.0,
            ),
            m.GroupReady(id=point + 1, job=2, group=2, token="t", size=1, pid=5),
        ):
            hold(room, str(message.job).encode(), message)
    report, question, ready = (decode(frames) for _, frames, _ in held_by(room))
    assert isinstance(report, m.ResizeReport)
    assert isinstance(question, m.AtResizePoint)
    assert (question.iteration, question.id) == (9999, 10_009)
    assert isinstance(ready, m.GroupReady)
    assert ready.id == 10_000


@pytest.mark.parametrize("length", [0, 10_000_000])
def test_the_memory_of_held_messages_is_bounded(length: int) -> None:
    room = RoomForJournal()
    room.note_failure("the disk is full")
    facts = m.Facts(job=1, token="t", facts={"text": "x" * length})
    hello = m.AgentHello(node="n", pid=1, secret="", groups=[], restart_points=[])
    for i in range(2 * LIMIT_BYTES // LEAST_BYTES if not length else 20):
        hold(room, b"job %d" % i, facts)
        hold(room, b"agent %d" % i, hello)  # of agents that start again and again
    held = held_by(room)
    assert sum(len(frame) for _, frames, _ in held for frame in frames) < LIMIT_BYTES
    assert 0 < len(held) <= LIMIT_BYTES // LEAST_BYTES
    hold(room, b"job", facts)
    assert room.holds, "there is room again"

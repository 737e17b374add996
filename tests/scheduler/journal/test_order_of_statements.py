"""Whatever a service notes, in turns of any length, the journal holds what a plain twin holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import KeptSubmission, kept
from scheduler.journal.kept_parts import KeptParts
from scheduler.model.events import JobCancelled, JobSpec, JobSubmitted, Wakeup
from scheduler.protocol.messages import Submission

Action: TypeAlias = tuple[str, int]
#: What a service notes, each with a job, script or pool among three.
ACTIONS = (
    *("submit", "end", "replace", "add pool", "remove pool", "remember", "summarise"),
    *("record", "look", "commit", "die"),
)
TEXTS = ("", "#!/bin/sh\nx\n", "#!/bin/sh\ny\n")


class Twin:
    """What a journal has to hold after each statement, in dictionaries."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}  # of the jobs that have not ended, by job
        self.names: dict[int, str] = {}  # of all jobs
        self.pools: dict[str, bytes] = {}
        self.meta: dict[str, str] = {}
        self.summaries: dict[int, bytes] = {}
        self.keys: dict[str, int] = {}
        self.events: list[float] = []


class Pair:
    """A journal and its twin."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.twin, self.count = Twin(), 0
        self._open({})

    def _open(self, submissions: dict[int, KeptSubmission]) -> None:
        self.journal = Journal(self._path)
        self.parts = KeptParts(self.journal, submissions)
        self.named = submissions

    def act(self, action: str, which: int) -> None:
        """Let both note the same."""
        self.count += 1
        actions: dict[str, Callable[[int], None]] = {
            "submit": self.submit,
            "end": self.end,
            "replace": self.replace,
            "add pool": self.add_pool,
            "remove pool": self.remove_pool,
            "remember": self.remember,
            "summarise": self.summarise,
            "record": self.record,
            "look": lambda _which: self.check(),
            "commit": lambda _which: self.journal.commit(),
            "die": self.die,
        }
        actions[action](which)

    def submit(self, which: int) -> None:
        """Submit a job with one of the scripts, and with a key."""
        number, text = self.count, TEXTS[which]
        name, key = f"n{number}", f"k{number}"
        given = Submission(["x"], 1, 1.0, name=name, text=text, script=bool(text))
        self.named[number], parts = kept(given)
        self.parts.keep(number, parts)
        self.journal.add_job(number, "token", self.named[number])
        self.journal.add_key(number, "ann", key)
        event = JobSubmitted(float(self.count), number, JobSpec(1, 1.0))
        self.journal.record([event], [], durable=True)
        self.twin.texts[number], self.twin.names[number] = text, name
        self.twin.keys[key] = number
        self.twin.events.append(event.at)

    def _job(self, which: int) -> int | None:
        unended = list(self.named)
        return unended[which % len(unended)] if unended else None

    def end(self, which: int) -> None:
        """End a job, whose script goes with the last job that has it."""
        number = self._job(which)
        if number is not None:
            self.parts.drop(number, self.named.pop(number))
            self.journal.record([JobCancelled(float(self.count), number)], [], durable=True)
            del self.twin.texts[number]
            self.twin.events.append(float(self.count))

    def replace(self, which: int) -> None:
        """Give a job another name."""
        number = self._job(which)
        if number is not None:
            name = f"r{self.count}"
            self.named[number] = replace(self.named[number], name=name)
            self.journal.replace_submission(number, "token", self.named[number])
            self.twin.names[number] = name

    def add_pool(self, which: int) -> None:
        """Add a pool, or change it."""
        record = b"%d" % self.count
        self.journal.note_pool(f"p{which}", record)
        self.twin.pools[f"p{which}"] = record

    def remove_pool(self, which: int) -> None:
        """Remove a pool, perhaps one that there is not."""
        self.journal.remove_pool(f"p{which}")
        self.twin.pools.pop(f"p{which}", None)

    def remember(self, which: int) -> None:
        """Note a value under one of three names."""
        self.journal.note_meta(f"m{which}", str(self.count))
        self.twin.meta[f"m{which}"] = str(self.count)

    def summarise(self, which: int) -> None:
        """Write a summary, after removing it in every third case."""
        self.journal.note_summary(which, b"%d" % self.count)
        self.twin.summaries[which] = b"%d" % self.count
        if self.count % 3 == 0:
            self.journal.write("DELETE FROM summaries WHERE job=?", which)
            del self.twin.summaries[which]

    def record(self, _which: int) -> None:
        """Record an event that need not be on the disk at once."""
        self.journal.record([Wakeup(float(self.count))], [])
        self.twin.events.append(float(self.count))

    def die(self, _which: int) -> None:
        """Start again with what the journal has."""
        self.journal.close()
        self._open(self.named)

    def check(self) -> None:
        """Compare all that the journal answers with the twin."""
        journal, twin = self.journal, self.twin
        texts = {
            number: self.parts.whole(number, given).text for number, given in self.named.items()
        }
        assert texts == twin.texts
        assert len(journal.parts()) == len({text for text in texts.values() if text})
        assert {job: each.submission.name for job, each in journal.launches().items()} == twin.names
        assert dict(journal.pools()) == twin.pools
        assert {key: journal.meta(key) for key in twin.meta} == twin.meta
        summaries = dict(journal.rows("SELECT job, summary FROM summaries"))
        assert {job: blob.partition(b"\n")[0] for job, blob in summaries.items()} == twin.summaries
        assert {key: journal.job_of_key("ann", key) for key in twin.keys} == twin.keys
        assert [event.at for batch in journal.batches() for event in batch.events] == twin.events


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=40))
@example([("submit", 1), ("commit", 0), ("submit", 2), ("end", 0), ("submit", 1)])
@example([("add pool", 0), ("commit", 0), ("remove pool", 0), ("add pool", 0)])
@example([("submit", 1), ("look", 0), ("end", 0), ("submit", 1)])
@examples(200, deadline=None)
def test_the_journal_holds_what_its_twin_holds(actions: list[Action]) -> None:
    with TemporaryDirectory() as folder:
        pair = Pair(Path(folder) / "journal.db")
        try:
            for action, which in actions:
                pair.act(action, which)
            pair.act("die", 0)
            pair.check()
        finally:
            pair.journal.close()

"""What a batch site removes of its jobs, and what it never removes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_batch_system import Cluster

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire import messages as m
from scheduler.batch_sites.job_records import JobRecords
from scheduler.batch_sites.site import BatchSite
from scheduler.batch_systems import psij_system
from scheduler.batch_systems.interface import BatchState
from scheduler.client.sites.records import RETRIED_S

DAY_S = 86400.0
KEPT_DAYS = 40
RETRIED_DAYS = RETRIED_S / DAY_S


class Life:
    """A batch site over months; the files become older instead of the clock going on.

    Attributes
    ----------
    sent : letter -> the latest submission key with it, and days since it was first sent.
    numbers : submission key -> number of its job.
    noted : number of a job -> days since its end was noted.
    """

    def __init__(self, here: Path) -> None:
        self.here, self.cluster = here, Cluster(here)
        with mock.patch.object(psij_system, "Psij", return_value=self.cluster):
            self.site = site_in(here)
        self.records = JobRecords(here / "jobs")
        self.sent: dict[str, tuple[str, float]] = {}
        self.numbers: dict[str, int] = {}
        self.noted: dict[int, float] = {}
        self.keys = 0

    def submit(self, letter: str, is_answering: bool = True) -> None:
        """Send a submission, or repeat it as long as a client does."""
        key, age = self.sent.get(letter, ("", RETRIED_DAYS + 1))
        if age > RETRIED_DAYS:
            self.keys += 1
            key = f"{letter}{self.keys}"
            self.sent[letter] = key, 0.0
        self.cluster.is_answering = is_answering
        with contextlib.suppress(ReshapeError):  # no answer
            number = submit(self.site, key, self.here)
            assert self.numbers.setdefault(key, number) == number, "a submission has one number"
        self.cluster.is_answering = True

    def start(self, which: int, is_killed: bool) -> None:
        if waiting := self.cluster.in_state(BatchState.QUEUED):
            self.cluster.start(waiting[which % len(waiting)], is_killed)

    def end(self, which: int) -> None:
        if running := self.cluster.in_state(BatchState.RUNNING):
            self.cluster.states[running[which % len(running)]] = BatchState.ENDED

    def look(self) -> None:
        """List the jobs, which notes their ends."""
        for job in listed(self.site):
            if job.ended_at is not None:
                self.noted.setdefault(job.job, 0.0)

    def wait(self, days: float) -> None:
        make_older(self.here, days)
        self.sent = {letter: (key, age + days) for letter, (key, age) in self.sent.items()}
        self.noted = {number: age + days for number, age in self.noted.items()}

    def check(self) -> None:
        """Check what holds at any time."""
        runs = self.cluster.runs()
        assert all(count == 1 for count in runs.values()), runs
        assert len({*self.numbers.values()}) == len(self.numbers), "no number is given twice"
        for key, number in self.numbers.items():
            if self.noted.get(number, 0.0) < KEPT_DAYS:
                assert self.records.of_number(number).key == key
        kept = {job.job for job in self.records.all() if job.ended is None}
        assert {job.job for job in self.records.open()} == kept
        for each in self.cluster.in_state(BatchState.RUNNING):
            assert self.cluster.requests[each].output.parent.is_dir()


def site_in(here: Path) -> BatchSite:
    file = here / "site.yaml"
    fields = f"jobs: jobs\nprocessors_per_node: 1\nkeep_days: {KEPT_DAYS}\n"
    file.write_text(f"system: psij-pbs\n{fields}")
    return BatchSite(file)


def submit(site: BatchSite, key: str, here: Path) -> int:
    variables = {"PATH": f"{here / 'bin'}:{os.environ['PATH']}"}
    submission = m.Submission([key], 1, 60.0, key=key, cwd=str(here), environment=variables)
    answer = site.request(m.Submit(submission=submission), 5.0)
    assert isinstance(answer, m.Submitted)
    return answer.job


def listed(site: BatchSite) -> list[m.JobInfo]:
    answer = site.request(m.ListJobs(ended=True), 5.0)
    assert isinstance(answer, m.Jobs)
    return answer.jobs


def make_older(folder: Path, days: float) -> None:
    for path in folder.rglob("*"):
        modified = path.stat().st_mtime - days * DAY_S
        os.utime(path, (modified, modified))


NUMBERS, LETTERS = st.integers(0, 3), st.sampled_from("AB")
STEPS = st.one_of(
    st.tuples(st.just("submit"), LETTERS, st.booleans()),
    st.tuples(st.just("start"), NUMBERS, st.booleans()),
    st.tuples(st.just("end"), NUMBERS),
    st.tuples(st.just("look")),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 2.0, 25.0, 45.0])),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_only_jobs_that_ended_long_ago_are_removed(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder))
        for name, *arguments in steps:
            getattr(life, name)(*arguments)
            life.check()
        for each in life.cluster.in_state(BatchState.QUEUED):
            life.cluster.start(each, is_killed=False)
        for each in life.cluster.in_state(BatchState.RUNNING):
            life.cluster.states[each] = BatchState.ENDED
        life.look()
        life.wait(KEPT_DAYS + 1)
        life.submit("Z")
        life.check()
        latest = life.numbers[life.sent["Z"][0]]
        assert [job.job for job in life.records.all()] == [latest]
        assert os.listdir(Path(folder) / "jobs" / "numbers") == [str(latest)]
        assert os.listdir(life.records.jobs) == [life.sent["Z"][0]]


def die_at(count: int) -> None:
    """Let this process be killed at the given one of all calls that change or write a folder."""
    left = [count]

    def dying(original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return call

    for name in ("fsync", "rename", "replace", "unlink", "rmdir"):
        setattr(os, name, dying(getattr(os, name)))


def test_a_removal_that_is_killed_at_any_step_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    life = Life(tmp_path / "made")
    monkeypatch.setattr(psij_system, "Psij", lambda name, folder: life.cluster)
    for letter, is_killed in zip("ABC", (False, True, False), strict=True):
        life.submit(letter)
        life.start(0, is_killed)
    life.end(0)
    life.look()
    life.submit("L")
    life.wait(KEPT_DAYS + 1)
    (latest,) = (key for key in life.numbers if key.startswith("L"))
    for count in range(1, 100):
        here = tmp_path / str(count)
        shutil.copytree(tmp_path / "made", here)
        site, records = site_in(here), JobRecords(here / "jobs")
        child = os.fork()
        if child == 0:
            die_at(count)
            submit(site, latest, here)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert {job.key for job in records.all()} <= life.numbers.keys()
        assert records.of_number(life.numbers[latest]).key == latest
        make_older(here, 1)
        assert submit(site, latest, here) == life.numbers[latest]
        assert os.listdir(here / "jobs" / "numbers") == [str(life.numbers[latest])]
        assert os.listdir(records.jobs) == [latest]
        assert submit(site, "next", here) == life.numbers[latest] + 1
        with pytest.raises(ReshapeError, match="job 1 ended long ago, and its record was removed"):
            site.request(m.ListJobs(job=1), 5.0)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert count > 30


def test_nothing_is_removed_while_the_batch_system_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path)
    life.submit("A")
    life.start(0, is_killed=True)
    life.end(0)
    life.look()
    life.submit("L")
    life.wait(KEPT_DAYS + 1)
    life.cluster.is_answering = False
    assert submit(life.site, life.sent["L"][0], tmp_path) == 2
    assert [job.job for job in life.records.all()] == [1, 2]
    assert not life.records.is_removal_due(time.time()), "it is tried again a day later"


def test_a_listing_of_waiting_jobs_reads_no_ended_ones(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for letter in "AB":
        life.submit(letter)
    life.start(0, is_killed=False)
    life.look()
    damaged = life.records.jobs / life.records.of_number(1).key / "job.json"
    damaged.write_text("damaged")
    answer = life.site.request(m.ListJobs(), 5.0)
    assert isinstance(answer, m.Jobs)
    assert [job.job for job in answer.jobs] == [2]
    info = life.site.request(m.ServerInfo(), 5.0)
    assert isinstance(info, m.Info)
    assert (info.queued, info.running, info.ended) == (1, 0, 1)
    with pytest.raises(ServiceUnavailable, match="cannot be read"):
        listed(life.site)

"""Which folders of recorded batch jobs are removed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from played_batch_system import Cluster

from scheduler.batch_systems import recorded
from scheduler.batch_systems.interface import BatchRequest, BatchState, BatchSystemError
from scheduler.batch_systems.job_folder import locked
from scheduler.batch_systems.recorded import KEPT_S, RecordedBatchSystem


class Pool:
    """A caller of a recorded batch system, which submits a batch job for each name."""

    def __init__(self, here: Path) -> None:
        self.here, self.cluster = here, Cluster(here)
        self.batch = RecordedBatchSystem(self.cluster, here / "jobs")

    def submit(self, name: str) -> str:
        script = f"#!/bin/sh\nexec {self.here / 'bin' / 'mpiexec'} -n 1 {name}\n"
        output = self.here / "output"
        return self.batch.submit(BatchRequest(script, 1, 60.0, name, self.here, output))

    def ended(self) -> None:
        self.cluster.start(self.submit("job"), is_killed=False)

    def killed(self) -> None:
        self.running()
        self.cluster.states["1"] = BatchState.ENDED

    def forgotten(self) -> None:
        self.running()
        self.cluster.states["1"] = BatchState.UNKNOWN

    def running(self) -> None:
        self.cluster.start(self.submit("job"), is_killed=True)

    def queued(self) -> None:
        self.submit("job")

    def given_up(self) -> None:
        self.cluster.is_answering = False
        with pytest.raises(BatchSystemError, match="no answer"):
            self.submit("job")
        self.cluster.is_answering = True

    def in_doubt(self) -> None:
        """The client died before it knew the id."""
        self.submit("job")
        (self.here / "jobs" / "job" / "id").unlink()

    def in_doubt_and_killed(self) -> None:
        self.killed()
        (self.here / "jobs" / "job" / "id").unlink()

    def of_another_system(self) -> None:
        self.ended()
        self.cluster.name = "psij-lsf"
        self.batch = RecordedBatchSystem(self.cluster, self.here / "jobs")

    def make_older(self, seconds: float) -> None:
        for path in (self.here / "jobs").iterdir():
            os.utime(path, (0.0, path.stat().st_mtime - seconds))

    def names(self) -> list[str]:
        return sorted(os.listdir(self.here / "jobs"))


@pytest.mark.parametrize("case", [Pool.ended, Pool.killed, Pool.forgotten, Pool.given_up])
def test_old_folders_of_ended_batch_jobs_are_removed(
    tmp_path: Path, case: Callable[[Pool], None]
) -> None:
    pool = Pool(tmp_path)
    case(pool)
    pool.make_older(100.0)
    assert pool.batch.remove_old(time.time() - 200.0, ()) == []
    assert pool.batch.remove_old(time.time() - 50.0, ()) == ["job"]
    assert pool.names() == []


def test_a_batch_job_that_was_killed_before_its_id_was_noted_is_removed(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.in_doubt_and_killed()
    pool.make_older(100.0)
    assert pool.batch.remove_old(time.time() - 50.0, ()) == ["job"]


@pytest.mark.parametrize("case", [Pool.running, Pool.queued, Pool.in_doubt, Pool.of_another_system])
def test_other_old_folders_stay(tmp_path: Path, case: Callable[[Pool], None]) -> None:
    pool = Pool(tmp_path)
    case(pool)
    pool.make_older(100.0)
    assert pool.batch.remove_old(time.time() - 50.0, ()) == []
    assert pool.names() == ["job"]


def test_an_attempt_that_begins_after_the_removal_does_not_run(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.given_up()
    pool.make_older(100.0)
    assert pool.batch.remove_old(time.time() - 50.0, ()) == ["job"]
    pool.cluster.start("1", is_killed=False)
    assert not pool.cluster.runs()
    assert pool.names() == []


def test_a_look_up_removes_what_is_not_asked_for_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "FIRST_REMOVAL_S", 0.0)
    monkeypatch.setattr(recorded, "REMOVAL_S", 0.0)
    pool = Pool(tmp_path)
    first = pool.submit("first")
    second = pool.submit("second")
    pool.cluster.start(first, is_killed=False)
    pool.cluster.start(second, is_killed=False)
    pool.make_older(KEPT_S + 100.0)
    for _ in range(2):
        assert pool.batch.statuses([first, second])[first].state is BatchState.ENDED
        assert pool.names() == ["first", "second"], "the caller has not noted the ends"
    pool.batch.statuses([second])
    assert pool.names() == ["second"]
    pool.cluster.is_answering = False
    pool.batch.statuses([])
    assert pool.names() == [], "the end of the second is noted in its folder"


def test_a_pool_that_is_added_again_submits_the_same_names_again(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    first = pool.submit("job")
    assert pool.submit("job") == first, "it has not ended"
    pool.cluster.start(first, is_killed=True)
    assert pool.submit("job") == first, "it has not ended"
    pool.cluster.states[first] = BatchState.ENDED
    assert pool.batch.statuses([first])[first].state is BatchState.ENDED
    second = pool.submit("job")
    assert second != first
    assert pool.batch.statuses([second])[second].state is BatchState.QUEUED
    pool.cluster.start(second, is_killed=False)
    assert pool.batch.statuses([second])[second].state is BatchState.ENDED
    assert pool.cluster.runs() == {"job": 2}


def test_what_a_killed_removal_has_left_is_deleted(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.ended()
    pool.batch.remove(["job"])
    assert [name[: len(".removed-job.")] for name in pool.names()] == [".removed-job."]
    pool.batch.delete_removed()
    assert pool.names() == []


def test_a_client_that_waits_for_a_folder_that_is_removed_makes_a_new_one(tmp_path: Path) -> None:
    pool, folder = Pool(tmp_path), tmp_path / "jobs" / "job"
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(pool.submit("job")))
    with locked(folder):
        thread.start()
        thread.join(0.2)
        folder.rename(tmp_path / "removed")
    thread.join(20.0)
    assert found == ["1"]
    pool.cluster.start("1", is_killed=False)
    assert pool.cluster.runs() == {"job": 1}
    assert (folder / "ended").exists()

"""The policy of `examples/my_policy.py`, known by its entry point, runs live and simulated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from paths import EXAMPLES, SUPPORT
from registrations import temporary_registrations
from told import WAITS

from reshape.errors import ReshapeError
from scheduler import Client
from scheduler.core.core import Core
from scheduler.journal.journal_reader import reading
from scheduler.journal.replay import compare
from scheduler.model.events import JobSpec
from scheduler.model.machine import Machine
from scheduler.policies.scenarios import scenario
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.workload_models.workload import PrioWorkload

SITE = """
processors: 4
scenario: patient
parameters: {resizing.reserve: 0}
users: {OWNER: platinum}
queues:
  main:
  still: {priority: gold, max_walltime_s: "10:00", parameters: {resizing: static}}
"""

PACED = ["python", str(SUPPORT / "paced.py")]
FAILING = """
import msgspec
from scheduler.policies.api import Grow, Reason, Stay

class Failing(msgspec.Struct, frozen=True):
    def decide(self, job, view):
        calls = job.history.points
        if calls in (2, 3):
            return Stay(Reason("Failing", "{rate}", {"rate": 1 / (job.size - 1)}))
        if calls == 4:
            return Stay(Reason("Failing", "{missing}"))
        if calls < 6 or job.size == 2:
            return Stay(Reason("Failing", "stays"))
        return Grow(2, Reason("Failing", "recovered"))
"""

FAILING_PARTS = """
import msgspec
from typing import ClassVar

from scheduler.policies.api import Predictor, QueueOrder, Selection

class Order(QueueOrder, msgspec.Struct, frozen=True):
    ages: ClassVar[bool] = True

    def key(self, job, now):
        return job.spec.missing

class Select(Selection, msgspec.Struct, frozen=True):
    def select(self, space, processors):
        if processors == 2:
            raise RuntimeError("no two")
        return space.free.first(processors)

class Estimate(msgspec.Struct, frozen=True):
    def predictor(self):
        return NotANumber()

class NotANumber(Predictor):
    def predict(self, job):
        return float("nan")

    def ended(self, job):
        raise KeyError(job.id)

class Schedule(msgspec.Struct, frozen=True):
    def schedule(self, current):
        current.start(current.queue[len(current.queue)])
"""

RATE = '            return Stay(Reason("Failing", "{rate}", {"rate": 1 / (job.size - 1)}))'


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """File of a policy whose second, third and fourth decisions fail; for all processes."""
    file = tmp_path / "failing_policy.py"
    file.write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    sys.modules.pop("failing_policy", None)
    yield file
    sys.modules.pop("failing_policy", None)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip leaves of a package that brings the policy: metadata with its entry point."""
    info = tmp_path / "site" / "my_policy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[reshape.policies]\npatient = my_policy:Patient\n")
    for path in (EXAMPLES, info.parent):
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}:{EXAMPLES}")
    sys.modules.pop("my_policy", None)  # another test may have loaded one of its own
    with temporary_registrations():
        yield
    sys.modules.pop("my_policy", None)


@pytest.mark.usefixtures("installed")
def test_simulated() -> None:
    workload = PrioWorkload(jobs=30).generate(np.random.default_rng(1))
    core = Core(scenario("patient", {"resizing.reserve": 40}), Machine([("cluster", 400)]))
    metrics = Engine(core, workload).run().metrics()
    assert metrics.jobs == 30
    assert metrics.expansions > metrics.contractions > 0


@pytest.mark.usefixtures("installed")
def test_live_in_two_queues(served, tmp_path):
    config = tmp_path / "site.yaml"
    config.write_text(SITE.replace("OWNER", served.place.owner))
    served.start("--config", str(config))
    waits = ["python", "-m", "apps.synthetic", "--iterations", "100000", "--seconds", "0.1"]
    still = served.submit(waits, 1, max_processors=4, queue="still")
    grows = served.submit(waits, 1, max_processors=3, priority=5.0)
    job = served.when(grows, lambda job: job.size == 3)
    assert "no job is queued and" in served.story(grows)
    assert (job.queue, job.priority) == ("main", 5.0)
    next_one = served.submit(["true"], 2)
    assert served.wait(next_one).state == "COMPLETED", "the one that grew made room"
    story = served.story(grows)
    assert (
        f"job {next_one} requests 2 processors, 0 are free or will be released [Patient]" in story
    )
    job = served.job(still)
    assert (job.size, job.queue, job.priority) == (1, "still", 1100.0)
    assert "resizes no job [static]" in served.story(still)
    with pytest.raises(ReshapeError, match="no queue 'stil'; did you mean still"):
        served.submit(waits, 1, queue="stil")


def test_a_scheduling_pass_live_in_forecasts_and_in_a_replay(served, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES), prepend=":")
    served.start("--processors", "4", "--scenario", "my_pass:LargestFirst")
    first = served.submit(WAITS, 3, 600.0)
    begin = served.until(first, "RUNNING").started_at
    small, large = served.submit(["true"], 2, 60.0), served.submit(["true"], 4, 60.0)
    with Client(served.directory) as client:
        starts = {job.job: job.start for job in client.expected_starts()}
    assert starts[large] == pytest.approx(begin + 600.0, abs=1e-3)
    assert starts[small] == pytest.approx(begin + 660.0, abs=1e-3)
    assert "4 processors reserved for" in served.story(large)
    served.let_end(first)
    assert served.wait(small).state == served.wait(large).state == "COMPLETED"
    assert served.job(large).started_at < served.job(small).started_at
    assert "delay no reservation of this pass [LargestFirst]" in served.story(small)
    served.kill()
    served.start()
    with reading(served.place.journal) as records:
        assert compare(records.batches()).difference is None


def test_a_policy_that_fails_ends_a_simulation(failing):
    core = Core(scenario("failing_policy:Failing"), Machine([("cluster", 2)]))
    jobs = [SimJob(0.0, JobSpec(1, 60.0, 2), 9.0, 9)]
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        Engine(core, jobs).run()


def test_a_live_service_outlives_a_policy_that_fails(served, failing):
    program = [*PACED, "0.1", "apps.synthetic", "--iterations", "2", "--seconds", "0"]
    served.start("--processors", "2", "--scenario", "failing_policy:Failing")
    job = served.submit(program, 1, max_processors=2)
    behind = served.submit(["true"], 2)
    served.when(job, lambda job: job.size == 2)
    assert served.finish(job).state == served.wait(behind).state == "COMPLETED"
    story = served.story(job)
    place = f"failing_policy.py:{FAILING.splitlines().index(RATE) + 1}"
    assert (
        "continues: the resizing policy failing_policy:Failing failed in decide with"
        f" ZeroDivisionError: division by zero ({place}); the job keeps its size [policy error]"
    ) in story
    assert "cannot be recorded: KeyError: 'missing' (failing_policy.py:" in story
    assert [size for _, size in served.job(job).sizes] == [1, 2], "it recovered"
    log = served.place.log("serve").read_text()
    assert log.count("its fallback decides instead") == 2, "once for each kind, with"
    assert "Traceback" in log
    assert f"ZeroDivisionError: division by zero ({place})" in log

    failing.write_text(FAILING.replace("(2, 3)", "()"))  # the journal holds what failed
    served.kill()
    served.start()
    assert served.story(job) == story
    with reading(served.place.journal) as records:
        comparison = compare(records.batches())
    assert comparison.difference is None
    assert comparison.resizes == 1


def test_a_live_service_outlives_every_other_part_that_fails(served, failing):
    failing.write_text(FAILING_PARTS)
    parts = {"order": "Order", "selection": "Select", "estimates": "Estimate"}
    parts["scheduling"] = "Schedule"
    fields = [f"{field}=failing_policy:{name}" for field, name in parts.items()]
    served.start("--processors", "4", *(word for field in fields for word in ("--set", field)))
    with pytest.raises(ReshapeError, match="2 processors"):
        served.submit(["true"], 2)  # no place would be acceptable
    first = served.submit(WAITS, 4)
    second = served.submit(["true"], 4)
    third = served.submit(["true"], 4)
    served.let_end(first)
    for job in (first, second, third):
        assert served.wait(job).state == "COMPLETED"
    log = served.place.log("serve").read_text()
    for said in (
        "the queue order failing_policy:Order failed in key with AttributeError",
        "the processor selection failing_policy:Select failed in select with RuntimeError: no two",
        "failed in predict with ValueError: a prediction must be",
        "failed in ended with KeyError",
        "the scheduling pass failing_policy:Schedule failed in schedule with IndexError",
    ):
        assert log.count(said) == 1, said
    served.kill()
    served.start()
    assert [served.job(job).state for job in (first, second, third)] == ["COMPLETED"] * 3
    with reading(served.place.journal) as records:
        assert compare(records.batches()).difference is None

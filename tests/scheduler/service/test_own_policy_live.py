"""The policy of `examples/my_policy.py`, known by its entry point, runs live and simulated."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from reshape.errors import ReshapeError
from scheduler.core.core import Core
from scheduler.core.machine import Machine
from scheduler.policies import registry
from scheduler.policies.scenarios import scenario
from simulator.engine import Engine
from simulator.workloads.prio import PrioWorkload

EXAMPLES = Path(__file__).parents[3] / "examples"
SITE = """
processors: 4
scenario: patient
parameters: {resizing.reserve: 0}
users: {ann: platinum}
queues:
  main:
  still: {priority: gold, max_walltime_s: "10:00", parameters: {resizing: static}}
"""


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
    monkeypatch.setattr(registry, "_known", {k: dict(v) for k, v in registry._known.items()})
    registry._read_entry_points.cache_clear()
    yield
    registry._read_entry_points.cache_clear()
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
    config.write_text(SITE)
    served.start("--config", str(config))
    waits = ["python", "-m", "apps.synthetic", "--iterations", "60", "--seconds", "0.25"]
    still = served.submit(waits, 1, max_processors=4, queue="still", user="ann")
    grows = served.submit(waits, 1, max_processors=3, priority=5.0, user="ann")
    job = served.when(grows, lambda job: job.size == 3)
    assert "nobody waits and" in served.story(grows)
    assert (job.queue, job.priority) == ("main", 5.0)
    next_one = served.submit(["true"], 2)
    assert served.wait(next_one).state == "COMPLETED", "the one that grew made room"
    story = served.story(grows)
    assert f"job {next_one} wants 2 processors, 0 are free or on their way [Patient]" in story
    job = served.job(still)
    assert (job.size, job.queue, job.priority) == (1, "still", 1100.0)
    assert "resizes no job [static]" in served.story(still)
    with pytest.raises(ReshapeError, match="no queue 'stil'; did you mean still"):
        served.submit(waits, 1, queue="stil")
    with pytest.raises(ReshapeError, match="priority platinum is 1000, and user bob has 0"):
        served.submit(waits, 1, priority="platinum", user="bob")

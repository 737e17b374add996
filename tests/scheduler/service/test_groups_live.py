"""Jobs that start and expand by several groups, under a live service."""

from __future__ import annotations

import json

import pytest
from paths import SUPPORT

from reshape.topology import Topology

FAULTY = ["python", str(SUPPORT / "faulty.py")]

CONFIG = """
processors: 8
scenario: scripted:Scripted
verify: true
deadlines: {}
"""
#: Deadlines that no load of the machine reaches; a test shortens the one that it waits for.
PATIENT = {"start_s": 200, "ready_s": 200, "join_s": 200}


@pytest.fixture
def scripted(served, monkeypatch, tmp_path):
    """A service whose resizes follow a script, and whose jobs may start on a share of a request."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    config = tmp_path / "service.yaml"

    def start(steps: str, share: float = 0.25, **deadlines: float) -> None:
        config.write_text(CONFIG.format(json.dumps(PATIENT | deadlines)))
        options = [f"resizing.steps='{steps}'", f"backfill.adaptive_start={share}"]
        served.start("--config", str(config), *(f"--set={option}" for option in options))

    return start


def test_a_job_starts_on_several_groups_and_contracts_to_any_size(served, scripted):
    scripted("5 3 2 7")
    number = served.submit([*FAULTY, "none", "job"], 6, max_processors=8, topology=Topology())
    job = served.when(number, lambda job: len(job.sizes) == 5)
    print(job)
    job = served.finish(number)
    print(served.story(number))
    print(served.output(number))
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 7})
    assert served.free() == 8

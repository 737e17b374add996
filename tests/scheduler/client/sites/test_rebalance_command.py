"""``reshape rebalance`` without services: nothing to move, and moves that cannot be completed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import invoke

from scheduler.client.sites import records
from scheduler.client.sites.records import LeftJob, SubmissionRecord
from scheduler.protocol import messages as m

SUBMISSION = m.Submission(argv=["true"], processors=1, walltime_s=60.0, key="k~1")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sites file of two sites that are away."""
    monkeypatch.setenv("RESHAPE_SUBMISSIONS", str(tmp_path / "records"))
    path = tmp_path / "sites.yaml"
    path.write_text("sites: [{name: a, directory: a}, {name: b, directory: b}]\n")
    return path


def test_without_records_there_is_nothing_to_move(file: Path) -> None:
    found = invoke("rebalance", "--sites", file)
    assert "no job that was submitted from here waits at these sites" in found.stdout
    data = json.loads(invoke("rebalance", "--sites", file, "--json").stdout)
    assert (data["jobs"], data["passed_over"]) == ([], {})


def test_a_site_that_is_away_is_passed_over(file: Path) -> None:
    records.write(SubmissionRecord("k", "a", str(file.parent / "a"), None, 3))
    data = json.loads(invoke("rebalance", "--sites", file, "--json").stdout)
    assert data["jobs"] == []
    assert "no scheduler service in" in data["passed_over"]["a"]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_move_that_cannot_be_completed_keeps_its_record(file: Path, leaves: bool) -> None:
    left = LeftJob("a", str(file.parent / "a"), 3, 1.0)
    record = SubmissionRecord(
        "k", "b", str(file.parent / "b"), SUBMISSION, moves=1, leaves=left if leaves else None
    )
    records.write(record)
    words = ("rebalance", "--sites", file, "--json")
    planned = json.loads(invoke(*words, "--dry-run").stdout)["jobs"][0]
    assert (planned["outcome"], planned["note"]) == (
        "would move",
        "a move was begun and is not complete",
    )
    done = invoke(*words, code=4)
    (job,) = json.loads(done.stdout)["jobs"]
    assert job["outcome"] == "unknown"
    part = "whether job a:3 was withdrawn is not known" if leaves else "site b cannot be asked"
    assert part in job["note"]
    assert records.read("k") == record
    assert part in invoke("submit", "--sites", file, "--retry", "k", code=4).stderr


def test_margins_are_checked(file: Path) -> None:
    assert (
        "1.5 is not in the range"
        in invoke("rebalance", "--sites", file, "--gain", 1.5, code=2).stderr
    )

"""A recorded run again under another scenario."""

from __future__ import annotations

import pytest
from paths import ROOT

from reshape.errors import ConfigError, ReshapeError
from scheduler.client.web.run_data import RunData
from scheduler.journal.journal_reader import reading
from simulator.commands.report import what_if

JOURNAL = ROOT / "tests" / "scheduler" / "journal" / "recorded_run.sqlite"


def numbers(run: RunData) -> list[int]:
    return [row.number for row in run.jobs]


def test_the_same_jobs_run_twice() -> None:
    with reading(JOURNAL) as journal:
        (live, other), table = what_if(journal, "run", "easy")
    assert numbers(live) == numbers(other) == [1, 2, 3, 4, 5, 7]
    assert [row.label for row in other.jobs] == [row.label for row in live.jobs]
    assert other.segments["count"].max() <= 8
    resized = {int(count) for count in other.segments["count"][other.segments["job"] == 0]}
    assert resized == {2}  # EASY resizes no job
    assert other.jobs[1].started == pytest.approx(live.jobs[1].submitted, abs=0.5)
    assert table["heads"] == ["", "run, as it was", "simulated under easy", "change"]
    assert [row[0] for row in table["rows"]][:2] == ["mean wait", "mean turnaround"]


def test_old_jobs_are_left_out() -> None:
    with reading(JOURNAL) as journal:
        (live, other), _ = what_if(journal, "run", "easy", last_s=8)
        assert 0 < len(live.jobs) < 6
        assert numbers(live) == numbers(other)
        assert min(row.submitted for row in live.jobs) == 0
        with pytest.raises(ReshapeError, match="no job has started and ended in this time"):
            what_if(journal, "run", "easy", last_s=1e-3)


def test_an_unknown_scenario_is_an_error() -> None:
    with reading(JOURNAL) as journal, pytest.raises(ConfigError, match="eazy"):
        what_if(journal, "run", "eazy")

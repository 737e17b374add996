"""A service that starts on a recorded journal."""

from __future__ import annotations

import shutil

from paths import ROOT

from scheduler.protocol import messages as m

JOURNAL = ROOT / "tests" / "scheduler" / "journal" / "recorded_run.sqlite"


def test_history_and_explanations_are_recovered(served) -> None:
    served.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copy(JOURNAL, served.directory / "journal.db")
    served.start("--processors", "8", "--scenario", "fcfs-pr")
    answer = served.ask(m.ListJobs(ended=True))
    assert isinstance(answer, m.JobListing)
    states = {job.name: job.state for job in answer.jobs}
    assert len(answer.jobs) == 7
    assert [states[f"rigid{n}"] for n in (1, 2, 3, 4)] == ["COMPLETED"] * 4
    assert (states["grow"], states["cancelled"]) == ("COMPLETED", "CANCELLED")
    assert states["bad"] == "FAILED"
    grown = next(job for job in answer.jobs if job.name == "grow")
    assert [resize.new for resize in grown.resizes] == [3, 4, 5, 6, 5, 4, 3, 2]
    explanation = served.story(grown.job)
    assert "first in the queue" in explanation
    assert "idle processors" in explanation
    number = served.submit(["true"])
    assert number == 8, "numbers of jobs continue"
    assert served.wait(number).state == "COMPLETED"

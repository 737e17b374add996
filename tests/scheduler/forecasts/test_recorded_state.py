"""The state that forecasts begin from, read from the journal of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape.errors import ReshapeError
from scheduler.core.core import Core
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import run_ratio
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.journal.journal import Journal
from scheduler.journal.journal_reader import lost_submission, reading
from scheduler.journal.replay import settings_of
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.policies.scenarios import scenario


def test_the_state_of_a_journal_is_that_of_the_site(tmp_path: Path) -> None:
    site = Core(scenario("easy"), Machine([("n", 4)]))
    for number, (size, walltime) in enumerate([(3, 100), (1, 40), (4, 50), (1, 90), (2, 30)], 1):
        site.handle([JobSubmitted(10.0, number, JobSpec(size, float(walltime)))])
    site.handle([JobEnded(20.0, 2)])
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.add_settings(settings_of(site))
    for job in site.jobs.values():
        journal.add_job(job.id, "token", lost_submission())
        journal.note_job(job)
    journal.note_core(site.record())
    journal.commit()
    with reading(path) as reader:
        read = RecordedState.of_journal(reader, 20.0)
    journal.close()
    of_core = RecordedState.of_core(site)
    assert (read.now, read.last) == (20.0, 5)
    assert [(job.id, run_ratio(job)) for job in read.past] == [(2, 0.25)]
    assert [(job.id, run_ratio(job)) for job in of_core.past] == [(2, 0.25)]
    assert read.arrivals == of_core.arrivals
    assert [job.id for job in read.jobs] == [job.id for job in of_core.jobs]
    one, other = forecast(read), forecast(of_core)
    assert one.starts == {3: 110.0, 5: 160.0}
    assert [one.of(job.id) for job in read.jobs] == [other.of(job.id) for job in read.jobs]


def test_a_journal_without_recorded_state_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.db").close()
    with reading(tmp_path) as reader, pytest.raises(ReshapeError, match="no recorded state"):
        RecordedState.of_journal(reader, 0.0)

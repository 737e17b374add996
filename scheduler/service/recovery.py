"""A service that starts again: its journal replayed into a core, as if it had never been away."""

from __future__ import annotations

import logging

from scheduler.config import ServeConfig
from scheduler.core.core import Core
from scheduler.core.state import FINAL
from scheduler.policies.scenarios import scenario
from scheduler.replay.compare import configure, replay, settings_of
from scheduler.service.journal import Journal
from scheduler.service.startup import Launch

log = logging.getLogger(__name__)


def recover(journal: Journal, config: ServeConfig) -> tuple[Core, dict[int, Launch]]:
    """Replay a journal, each batch by the settings of its time; those of `config` hold from now on.

    Returns
    -------
    the core as it was, and how each job is started.

    Raises
    ------
    ConfigError : the scenario of `config`, or one that the journal names, is not known.
    """
    core = Core(
        scenario(config.scenario, config.parameters), kill_at_walltime=config.kill_at_walltime
    )
    current = settings_of(core)
    launches = {job: Launch(submission, token) for job, token, submission in journal.jobs()}
    events = sum(len(batch.events) for batch, _ in replay(journal.batches(), core))
    if events:
        live = sum(job.state not in FINAL for job in core.jobs.values())
        log.info("journal: %d events, %d jobs, %d not ended", events, len(core.jobs), live)
    # A scenario that is set anew forgets what it promised: so will a replay at this very batch.
    noted = [*journal.settings().values()][-1:]
    if noted != [current] or settings_of(core) != current:
        journal.add_settings(current)
        configure(core, current)
    return core, launches

"""A service that starts again: its journal replayed into a core, as if it had never been away."""

from __future__ import annotations

import logging

import msgspec

from scheduler.config import ServeConfig
from scheduler.core.core import Core
from scheduler.core.state import FINAL
from scheduler.policies.scenarios import from_data, scenario, to_data
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
    current = scenario(config.scenario, config.parameters)
    encoded = msgspec.json.encode(
        {"scenario": to_data(current), "kill_at_walltime": config.kill_at_walltime}
    )
    launches = {job: Launch(submission, token) for job, token, submission in journal.jobs()}
    known = journal.settings()
    core = Core(current)
    events = 0
    for batch, batch_events in journal.batches():
        if batch in known:
            _configure(core, known[batch])
        core.handle(batch_events)
        events += len(batch_events)
    if events:
        live = sum(job.state not in FINAL for job in core.jobs.values())
        log.info("journal: %d events, %d jobs, %d not ended", events, len(core.jobs), live)
    if not known or list(known.values())[-1] != encoded:
        journal.add_settings(encoded)
    _configure(core, encoded)
    return core, launches


def _configure(core: Core, encoded: bytes) -> None:
    """Let a core decide by settings as the journal holds them."""
    settings = msgspec.json.decode(encoded)
    core.scenario = from_data(settings["scenario"])
    core.kill_at_walltime = settings["kill_at_walltime"]

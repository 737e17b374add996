"""A service that starts again: its journal replayed into a core, as if it had never been away."""

from __future__ import annotations

import logging

from reshape.errors import ConfigError
from scheduler.config.settings import ServeConfig, reserved
from scheduler.model.job import FINAL
from scheduler.model.machine import Machine
from scheduler.policies.containment import Report
from scheduler.replay.compare import configure, machine_of, replay, settings_of
from scheduler.service.components.job_startup import Launch
from scheduler.service.record.journal import Journal
from scheduler.sites.two_groups import TwoGroupSite

log = logging.getLogger(__name__)


def recover(
    journal: Journal, config: ServeConfig, on_policy_error: Report
) -> tuple[TwoGroupSite, dict[int, Launch]]:
    """Replay a journal, each batch by the settings of its time; those of `config` hold from now on.

    The redirection group may be another one only if no job is left: a processor is in one group.

    Returns
    -------
    the core as it was, and how each job is started.

    Raises
    ------
    ConfigError : the scenario of `config`, or one that the journal names, is not known; another
        redirection group, and jobs that are not finished; another network than the journal's.
    """
    machine = config.machine()
    core = TwoGroupSite(
        config.composed(),
        machine,
        kill_at_walltime=config.kill_at_walltime,
        on_policy_error=on_policy_error,
    )
    current = settings_of(core)
    _check_network(journal, machine)
    launches = {job: Launch(submission, token) for job, token, submission in journal.jobs()}
    events = sum(len(batch.events) for batch, _ in replay(journal.batches(), core))
    if events:
        live = sum(job.state not in FINAL for job in core.jobs.values())
        log.info("journal: %d events, %d jobs, %d not ended", events, len(core.jobs), live)
    _check_group(core, config)
    # A scenario that is set anew forgets what it promised: so will a replay at this very batch.
    noted = [*journal.settings().values()][-1:]
    if noted != [current] or settings_of(core) != current:
        journal.add_settings(current)
        configure(core, current)
    return core, launches


def _check_network(journal: Journal, wanted: Machine) -> None:
    """Refuse another network: processors keep the numbers that the journal's events gave them."""
    noted = [*journal.settings().values()][:1]
    if not noted:
        return
    there = machine_of(noted[0])
    if (there.space.network, there.numbering.places) != (
        wanted.space.network,
        wanted.numbering.places,
    ):
        raise ConfigError(
            "this directory began with another network, or another place in it for a node: serve"
            " with the machine file it had, or in another --dir",
            field="machine",
        )


def _check_group(core: TwoGroupSite, config: ServeConfig) -> None:
    """Refuse another redirection group while there are jobs whose processors would change sides."""
    unfinished = [job.id for job in core.jobs.values() if job.state not in FINAL]
    wanted, known = reserved(config), core.redirection.machine.nodes
    for node in config.nodes if unfinished else ():
        there = known[node.name].count if node.name in known else 0
        if node.name in core.machine.nodes and there != wanted.get(node.name, 0):
            raise ConfigError(
                f"node {node.name} gave {there} processors to the redirection group and shall give"
                f" {wanted.get(node.name, 0)}, but jobs {', '.join(map(str, unfinished[:5]))} are"
                " not finished: serve with the old setting until they are",
                field="redirection",
            )

"""Recovery: the state of a service rebuilt from its journal.

The journal holds the state of each job after the last instant that changed it. Recovery takes these
states over and decides nothing again, so another release, or a policy that was edited meanwhile,
cannot change what has happened. Only a journal without such records (format 1), or with damaged
ones, is replayed from its events. (Of a journal that retention has compacted, a damaged record is
left out instead: its events are not complete.)

A record that cannot be read, or a batch of events at which the core raises an exception, is left
out, logged and listed in `Journal.unreadable`, which `reshape info` shows. A service that would
have to leave something out starts only if its operator accepts the loss (`go_on_without`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from itertools import count

import msgspec
from msgspec import json

from reshape.errors import ConfigError, ReshapeError
from scheduler.config.settings import ServeConfig, reserved
from scheduler.model.job import FINAL
from scheduler.model.machine import Machine
from scheduler.policies.containment import Report
from scheduler.replay.compare import configure, machine_of, replay, settings_of
from scheduler.replay.journal_reader import Batch, DamagedJournalError, lost_submission
from scheduler.service.components.job_startup import Launch
from scheduler.service.record.journal import Journal
from scheduler.sites.two_groups import TwoGroupSite

log = logging.getLogger(__name__)

#: Batches that may be left out because the core cannot handle them.
MOST_FAILURES = 20


def recover(
    journal: Journal, config: ServeConfig, report_error: Report
) -> tuple[TwoGroupSite, dict[int, Launch]]:
    """Rebuild the state that a journal describes; the settings of `config` hold from now on.

    The redirection group may be another one only if no job is left: a processor is in one group.

    Returns
    -------
    the core as it was, with the jobs that have not ended, and how each of these is started.

    Raises
    ------
    ConfigError : the scenario of `config`, or one that the journal names, is not known; another
        redirection group, and jobs that are not finished; another network than the journal's.
    """
    core = _restored(journal, config, report_error)
    is_restored = core is not None
    if core is None:
        core = _replayed(journal, config, report_error)
        for recovered in list(core.jobs.values()):
            journal.note_job(recovered)
            if recovered.state in FINAL:
                core.forget(recovered.id)
        journal.note_site(core.record())
    launches = {n: Launch(given, token) for n, token, given in journal.jobs(list(core.jobs))}
    for job in core.jobs.keys() - launches.keys():
        journal.report_unreadable(f"the submission of job {job}", KeyError(job))
        launches[job] = Launch(lost_submission(), secrets.token_hex(16))
    _check_group(core, config)
    if not is_restored:
        configure(core, settings_of(_configured(config, report_error)))
    _report_changes(journal, core)
    journal.add_settings(settings_of(core, recovered=is_restored))
    return core, launches


def go_on_without(
    journal: Journal, core: TwoGroupSite, launches: dict[int, Launch], *, accept_loss: bool
) -> None:
    """Record the state anew without the records that were left out, if their loss is accepted.

    Raises
    ------
    ReshapeError : it is not accepted.
    """
    if not accept_loss:
        raise ReshapeError(
            f"the journal {journal.path} is damaged: {'; '.join(journal.unreadable)}. Restore the"
            " latest copy (docs/backup.md), or go on without this by --accept-loss"
        )
    journal.forget_unreadable_jobs(core.jobs)
    for number, job in core.jobs.items():
        journal.note_job(job)
        launch = launches[number]
        journal.replace_submission(number, launch.token, launch.submission)


def _report_changes(journal: Journal, core: TwoGroupSite) -> None:
    """Log in what the release or the policies differ from those of the last run."""
    noted = [*journal.settings().values()][-1:]
    if not noted:
        return
    then, now = json.decode(noted[0]), json.decode(settings_of(core))
    for name in ("release", "scenario", "policies", "kill_at_walltime"):
        if name in then and then[name] != now[name]:
            log.warning("%s changed since the last run: %s, now %s", name, then[name], now[name])


def _restored(journal: Journal, config: ServeConfig, report_error: Report) -> TwoGroupSite | None:
    """Build the core from its recorded state; None if there is no record that can be read."""
    record = journal.site_record()
    if record is None:
        return None
    core = _configured(config, report_error)
    _check_network(journal, core.principal.machine)
    try:
        jobs = (
            journal.readable_jobs() if journal.is_compacted else journal.recorded_jobs(ended=False)
        )
        points = list(journal.points_after_records())
    except DamagedJournalError as error:
        log.error("the recorded jobs cannot be read, their events are replayed: %s", error)
        return None
    now = max(record.now, journal.latest_event_at())
    core.restore(msgspec.structs.replace(record, now=now), jobs, points)
    for number in sorted({point.job for point in points} & core.jobs.keys()):
        journal.note_job(core.jobs[number])
    log.info("recovered jobs=%d at=%.3f", len(jobs), record.now)
    return core


def _replayed(journal: Journal, config: ServeConfig, report_error: Report) -> TwoGroupSite:
    """Build the core that the journal describes.

    The state of a core at which an exception was raised is not used: the replay begins again and
    leaves out the batch.
    """
    left_out: set[int] = set()
    for attempt in count():
        core = _configured(config, report_error)
        _check_network(journal, core.principal.machine)
        events, latest = 0, 0

        def batches() -> Iterator[Batch]:
            nonlocal latest
            for batch in journal.batches(lenient=True):
                latest = batch.number
                if batch.number not in left_out:
                    yield batch

        try:
            for batch, _ in replay(batches(), core):
                events += len(batch.events)
        except ReshapeError:
            raise
        except Exception as error:
            if attempt >= MOST_FAILURES:
                raise
            left_out.add(latest)
            journal.report_unreadable(f"batch {latest}", error)
            continue
        if events:
            live = sum(job.state not in FINAL for job in core.jobs.values())
            log.info("journal: %d events, %d jobs, %d not ended", events, len(core.jobs), live)
        return core
    raise AssertionError("unreachable")


def _configured(config: ServeConfig, report_error: Report) -> TwoGroupSite:
    """Build a core by the present settings, its machine without nodes."""
    return TwoGroupSite(
        config.composed(),
        config.machine(),
        kill_at_walltime=config.kill_at_walltime,
        report_error=report_error,
    )


def _check_network(journal: Journal, wanted: Machine) -> None:
    """Refuse another network: processors keep the numbers that the journal's events gave them.

    A service without places may get a machine file with them if its nodes have these numbers.
    """
    noted = [*journal.settings().values()][:1]
    if not noted:
        return
    there = machine_of(noted[0])
    places, wanted_places = there.numbering.places, wanted.numbering.places
    if there.space.network is None and not places and wanted_places:
        record = journal.site_record()
        nodes = [] if record is None else record.principal.nodes
        places = {**wanted_places, **{node.name: node.numbers for node in nodes}}
    if (there.space.network, places) != (wanted.space.network, wanted_places):
        raise ConfigError(
            "this directory began with another network, or another place in it for a node: serve"
            " with the machine file it had, or in another --dir",
            field="machine",
        )


def _check_group(core: TwoGroupSite, config: ServeConfig) -> None:
    """Refuse another redirection group while jobs may hold processors of either group."""
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

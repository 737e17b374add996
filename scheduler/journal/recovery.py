"""Recovery: the state of a service rebuilt from its journal.

The journal holds the state of each job after the last instant that changed it. Recovery takes these
states over and decides nothing again, so another release, or a policy that was edited meanwhile,
cannot change what has happened.

A record that cannot be read is left out, logged and listed in `Journal.unreadable`, which `reshape
info` shows. A service that would have to leave something out starts only if its operator accepts
the loss (`go_on_without`). Without the state of the scheduler it does not start.

Jobs may be cancelled while no service runs. That command alone decides nothing: the core of the
next service cancels them before it does anything else, so that recovery, replay and the jobs that
wait for them need no rule of their own.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import json

from reshape.errors import ConfigError, ReshapeError
from scheduler.config.settings import ServeConfig
from scheduler.core.core import Core
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import Launch
from scheduler.journal.journal_reader import lost_submission
from scheduler.journal.replay import machine_of, settings_of
from scheduler.model.events import REDIRECTION
from scheduler.model.job import FINAL
from scheduler.model.machine import Machine
from scheduler.model.procset import ProcSet
from scheduler.policies.containment import ErrorReporter, description, line_of
from scheduler.text.formats import listed

log = logging.getLogger(__name__)


def policy_errors() -> ErrorReporter:
    """Make what a core calls when a policy fails, which is logged, named in an order, and survived.

    Each kind of error and line is logged once. The journal has all failures, so that a replay
    decides the same without calling the policy, even if its code has changed.
    """
    logged: set[tuple[str, str, str]] = set()

    def report(kind: str, policy: object, method: str, error: BaseException) -> str:
        sentence = description(kind, policy, method, error)
        file, number = line_of(policy, error, method)
        line = f"{Path(file).name}:{number}"
        key = kind, type(error).__name__, line
        if key not in logged:
            logged.add(key)
            log.error("%s (%s); its fallback decides instead", sentence, line, exc_info=error)
        return f"{sentence} ({line})"

    return report


def recover(
    journal: Journal, config: ServeConfig, errors: ErrorReporter
) -> tuple[Core, dict[int, Launch]]:
    """Rebuild the state that a journal describes; the settings of `config` hold from now on.

    The partitions may have other processors only if no job is left: each is in one of them.

    Returns
    -------
    the core as it was, with the jobs that have not ended, and how each of these is started.

    Raises
    ------
    ConfigError : the scenario of `config` is not known; other partitions, and jobs that are not
        finished; another network than the journal's; a job holds processors of a node that
        `config` does not name any more.
    DamagedJournalError : the state of the scheduler cannot be read.
    """
    _check_network(journal, config.machine())
    core = _restored(journal, config, errors)
    launches = journal.launches(core.jobs)
    for job in core.jobs.keys() - launches.keys():
        journal.report_unreadable(f"the submission of job {job}", KeyError(job))
        launches[job] = Launch(lost_submission(), secrets.token_hex(16))
    stored_parts = journal.parts()
    for job, launch in launches.items():
        for name in launch.submission.parts:
            if name not in stored_parts:
                what = f"the script, environment or command of job {job}"
                journal.report_unreadable(what, KeyError(name))
                launch.submission = lost_submission()
                break
    _check_nodes(journal, core, config)
    _check_partitions(core, config)
    _report_changes(journal, core)
    journal.add_settings(settings_of(core))
    return core, launches


def go_on_without(
    journal: Journal, core: Core, launches: dict[int, Launch], *, accept_loss: bool
) -> None:
    """Record the state anew without the records that were left out, if their loss is accepted.

    Raises
    ------
    ReshapeError : it is not accepted.
    """
    if not accept_loss:
        raise ReshapeError(
            f"the journal {journal.path} is damaged: {'; '.join(journal.unreadable)}. Restore the"
            " latest copy (docs/backup.md), or continue without this by --accept-loss"
        )
    journal.forget_unreadable_jobs(core.jobs)
    for number, job in core.jobs.items():
        journal.note_job(job)
        launch = launches[number]
        journal.replace_submission(number, launch.token, launch.submission)


def _report_changes(journal: Journal, core: Core) -> None:
    """Log how the release and the policies differ from those of the last run."""
    settings = [*journal.settings().values()][-1:]
    if not settings:
        return
    then, now = json.decode(settings[0]), json.decode(settings_of(core))
    for name in ("release", "scenario", "policies", "kill_at_walltime"):
        if name in then and then[name] != now[name]:
            changes = "; ".join(_differences(name, then[name], now[name]))
            log.warning("%s changed since the last run: %s", name, changes)


def _differences(name: str, then: Any, now: Any) -> Iterator[str]:
    """Describe how a setting differs, in each of its fields."""
    if not (isinstance(then, dict) and isinstance(now, dict)):
        yield f"{name} was {then}, is {now}"
        return
    for field in {**then, **now}:
        path = f"{name}.{field}"
        if field not in now or field not in then:
            yield f"{path} is {'new' if field in now else 'gone'}"
        elif then[field] != now[field]:
            yield from _differences(path, then[field], now[field])


def _restored(journal: Journal, config: ServeConfig, errors: ErrorReporter) -> Core:
    """Build the core from its recorded state; that of a new journal is empty."""
    options: dict[str, Any] = {"kill_at_walltime": config.kill_at_walltime, "report_error": errors}
    record = journal.core_record()
    if record is None:
        core = Core(config.composed(), config.machine(), **options)
        journal.note_core(core.record())
        return core
    jobs, points = journal.recorded_jobs(), journal.points_after_records()
    now = max(record.now, journal.latest_event_at())
    record = msgspec.structs.replace(record, now=now)
    core = Core.restored(
        record, jobs, config.composed(), config.machine(), points=points, **options
    )
    for number in sorted({point.job for point in points} & core.jobs.keys()):
        journal.note_job(core.jobs[number])
    log.info("recovered jobs=%d", len(jobs))
    return core


def _check_network(journal: Journal, configured: Machine) -> None:
    """Refuse another network: processors keep the numbers that the journal's events gave them.

    A service without places may get a machine file with them if its nodes have these numbers.
    """
    settings = [*journal.settings().values()][:1]
    if not settings:
        return
    machine = machine_of(settings[0])
    places, wanted_places = machine.numbering.places, configured.numbering.places
    if machine.space.network is None and not places and wanted_places:
        record = journal.core_record()
        parts = [] if record is None else record.partitions
        numbers: dict[str, ProcSet] = {}
        for node in (node for part in parts for node in part.nodes):
            numbers[node.name] = numbers.get(node.name, ProcSet()) | node.numbers
        places = {**wanted_places, **numbers}
    if (machine.space.network, places) != (configured.space.network, wanted_places):
        raise ConfigError(
            "this directory began with another network, or another place in it for a node: serve"
            " with the machine file it had, or in another --dir",
            field="machine",
        )


#: Key in `meta` of the nodes that the configuration of the last run named (JSON).
_CONFIGURED = "configured nodes"

_names = json.Decoder(list[str])


def _check_nodes(journal: Journal, core: Core, config: ServeConfig) -> None:
    """Refuse a configuration without a node on which jobs run, since they would end.

    The nodes of a Slurm allocation end with it, and those of pools are in no configuration.
    """
    before = _names.decode(journal.meta(_CONFIGURED) or "[]")
    gone = sorted({*before} - {node.name for node in config.nodes})
    held = {number: ProcSet.union(job.own_groups.values()) for number, job in core.live.items()}
    for name in gone:
        jobs = [number for number, part in held.items() if name in core.machine.by_node(part)]
        if jobs:
            raise ConfigError(
                f"{listed('job', sorted(jobs))} hold{'s' * (len(jobs) == 1)} processors of node"
                f" {name}, which has no line any more: serve with the line, and let the node drain"
                f" (reshape node drain {name}) until its jobs have left it",
                field="nodes",
            )
    lasting = [node.name for node in config.nodes if node.launcher != "slurm"]
    journal.note_meta(_CONFIGURED, json.encode(lasting).decode())


def _check_partitions(core: Core, config: ServeConfig) -> None:
    """Refuse other partitions while jobs may hold their processors, or wait in one that is gone."""
    unfinished = [job for job in core.jobs.values() if job.state not in FINAL]
    shares, first = config.shares(), core.partitions[0]
    for node in config.nodes if unfinished else ():
        own = shares.get(node.name, {})
        shall = {first.name: node.processors - sum(n for p, n in own.items() if p != first.name)}
        shall |= own
        present = {
            partition.name: joined.count
            for partition in core.partitions
            if (joined := partition.machine.nodes.get(node.name)) is not None and not joined.removed
        }
        others = [
            name for name in {**present, **shall} if present.get(name, 0) != shall.get(name, 0)
        ]
        wrong = next((name for name in others if name != first.name), None)
        if present and wrong is not None:
            numbers = [job.id for job in unfinished[:5]]
            raise ConfigError(
                f"node {node.name} gave {present.get(wrong, 0)} processors to"
                f" {_title(wrong, first.name)} and would now give {shall.get(wrong, 0)}, but jobs"
                f" {', '.join(map(str, numbers))} have not ended: serve with the old setting until"
                " they have",
                field="redirection" if wrong == REDIRECTION else "partitions",
            )
    known = {"", REDIRECTION, *config.partitions}
    for name in sorted({job.partition for job in unfinished} - known):
        numbers = [job.id for job in unfinished if job.partition == name]
        more = " and more" if len(numbers) > 5 else ""
        raise ConfigError(
            f"partition {name} has no line any more, but {listed('job', numbers[:5])}{more} of it"
            f" {'has' if len(numbers) == 1 else 'have'} not ended: serve with the line until"
            " they have ended, or are in another partition (reshape update -p)",
            field="partitions",
        )


def _title(name: str, first: str) -> str:
    return "the redirection group" if name == REDIRECTION else f"partition {name}"


#: Key in `meta` of the jobs to cancel, with the reasons (JSON).
_TO_CANCEL = "cancel at start"

_cancellations = json.Decoder(dict[int, str])


def request_cancellations(
    journal: Journal, numbers: Iterable[int], user: str | None, why: str
) -> list[int]:
    """Note that jobs are to be cancelled; return all that are.

    Parameters
    ----------
    user : all jobs of this user that have not ended are, too; None: no further ones.

    Raises
    ------
    ReshapeError : one of the jobs has ended, or is not in the journal; nothing is noted then.
    """
    query = "SELECT job, user FROM records WHERE ended_at IS NULL"
    users = {int(job): str(name) for job, name in journal.rows(query)}
    to_cancel = dict.fromkeys(numbers, why)
    for number in to_cancel:
        if number not in users:
            raise ReshapeError(
                f"job {number} has ended, or is not in the journal {journal.path}: 'reshape journal"
                " info' counts the jobs that have not ended"
            )
    to_cancel |= {number: why for number, name in users.items() if name == user}
    if user is not None and user not in users.values():
        raise ReshapeError(f"user {user} has no job that has not ended in {journal.path}")
    asked = _cancellations_noted(journal) | to_cancel
    journal.note_meta(_TO_CANCEL, json.encode(asked).decode())
    return sorted(asked)


def take_cancellations(journal: Journal) -> dict[int, str]:
    """Return the jobs that are to be cancelled, each with the reason, and forget them."""
    asked = _cancellations_noted(journal)
    if asked:
        journal.write("DELETE FROM meta WHERE key=?", _TO_CANCEL)
    return asked


def _cancellations_noted(journal: Journal) -> dict[int, str]:
    text = journal.meta(_TO_CANCEL)
    return {} if text is None else _cancellations.decode(text)

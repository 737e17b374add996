"""What does not go together in an experiment: one table, a row for each combination, with reasons.

A row names a field and when it is refused. Reasons are of three kinds: the model has no meaning for
the combination; another field says the same, or the field needs one; or nothing computes it, which
the text says by the word "yet". docs/python.md lists the last kind (`NOT_YET`).
Policies check their own fields (`scheduler.text.used_fields`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import Any, NamedTuple

import msgspec

from reshape.errors import ConfigError, out_of_range
from scheduler.policies.assignment.interface import Assignment
from scheduler.policies.scenarios import scenario
from simulator.experiment.settings import COUNT, QuoteRules, Settings


class Refusal(NamedTuple):
    """A combination of settings that is refused.

    Parameters
    ----------
    field : of `Settings`, which must be set, or a field below one.
    where : whether the other settings make it one.
    reason : why, and what to change.
    """

    field: str
    where: Callable[[Settings], bool]
    reason: str


def _at_centres(own: Settings) -> bool:
    return own.centres is not None


def _on_pool(own: Settings) -> bool:
    return own.pool is not None


def _contradicts_name(own: Settings) -> bool:
    if _at_centres(own) or not isinstance(own.scenario, Mapping):
        return False
    name = own.scenario.get("name", "easy")
    if not isinstance(name, str) or ":" in name:
        return False  # a class of the user's own, which another number does not contradict
    named = scenario(name).backfill.reservations
    return named not in (1, own.chosen.backfill.reservations)


def _kills_in_vain(own: Settings) -> bool:
    return (
        not _at_centres(own)
        and own.chosen.backfill.kill_at_reservation
        and not own.jobs.single
        and own.rules.overrun != "keep"
    )


def _at_one_core(own: Settings) -> bool:
    return _at_centres(own) and own.assignment.assignment is None


def _needs_no_draw(own: Settings) -> bool:
    rules = own.assignment.dispatch
    return _at_centres(own) and rules.affinity and rules.ask is None


def _moves_from_no_queue(own: Settings) -> bool:
    assignment = own.assignment.assignment
    pulls = isinstance(assignment, Assignment) and assignment.pulls
    return _at_centres(own) and pulls and own.assignment.redispatch is not None


_OWN_NODES = "does not apply to a pool, whose nodes come from a batch system; leave it out"
_OF_EACH = (
    "does not apply to several centres, each of which has its own; leave it out, or set it for each"
    " centre in the machine file"
)
_WINDOW = ("warm_up_s", "cool_down_s")
_COUNTED = (
    "does not apply to several centres, of which the machine file names the processors and no"
    " nodes; leave it out"
)

REFUSALS = (
    *(Refusal(field, _on_pool, _OWN_NODES) for field in (
        "processors", "machine", "sharing", "contiguity", "dispersal", "advance_reservations")),
    Refusal("event_order", _on_pool, "a pool joins and loses nodes between the events of an"
            " instant, which only the order batch defines; leave it out"),
    Refusal("pool_wait", lambda own: own.pool is None, "needs a pool; give pool as well"),
    *(Refusal(field, _at_centres, _OF_EACH) for field in (
        "processors", "scenario", "queue_order", "backfill_order", "event_order")),
    *(Refusal(field, _at_centres, _COUNTED) for field in (
        "select", "sharing", "contiguity", "dispersal")),
    Refusal("advance_reservations", _at_centres, "reserves processors of one machine, so that its"
            " jobs would have no centre to choose; simulate that machine alone, or leave it out"),
    Refusal("quotes", _on_pool, "no forecast knows which nodes a pool will have; leave it out"),
    Refusal("quotes", lambda own: _at_centres(own) and own.quote_rules != QuoteRules(),
            "centres keep what they were asked for when a job was submitted, and forecast nothing"
            " besides; give {}"),
    Refusal("quotes", lambda own: not _at_centres(own) and own.chosen.redirection is not None,
            "no forecast follows jobs that are redirected yet; leave one out"),
    Refusal("quotes", lambda own: own.feedback,
            "no forecast knows which jobs feedback will submit; leave one out"),
    Refusal("quotes.run_times", lambda own: own.single_jobs and (
        own.quote_rules is not None and own.quote_rules.run_times == "exact"),
        "resizable jobs have no run times that are known beforehand; give estimates"),
    Refusal("assign", lambda own: not _at_centres(own), "needs a machine of several centres"),
    Refusal("dispatch", lambda own: not _at_centres(own), "needs a machine of several centres"),
    *(Refusal(f"dispatch.{field}", lambda own, field=field: (  # type: ignore[misc]
        field in own.dispatch and _at_one_core(own)),
        "does not apply to grid-backfilling, whose one core decides for all centres; leave it out")
      for field in ("ask", "affinity", "redispatch")),
    Refusal("dispatch.affinity", _needs_no_draw,
            "all centres are asked, the origin as well; give ask, too"),
    Refusal("dispatch.redispatch", _moves_from_no_queue,
            "jobs wait in the queue of the dispatcher, and none at a centre; leave it out"),
    Refusal("processors", lambda own: own.machine is not None,
            "the machine names the number of processors; leave processors out"),
    Refusal("sharing", lambda own: own.contiguity is not None,
            "sharing and contiguity both change run times, and no model combines them; leave one"
            " out"),
    Refusal("sharing", lambda own: not _at_centres(own) and own.chosen.redirection is not None,
            "jobs that share nodes cannot be redirected, because the model has no neighbours in a"
            " redirection group; leave one out"),
    Refusal("sharing", lambda own: (
        own.single_jobs and own.shared is not None and own.shared.windows != "changes"),
        'windows "table" does not apply to resizable jobs, which change their windows; give'
        ' "changes"'),
    Refusal("machine", lambda own: (
        own.single_jobs and own.platform is not None and own.platform.exclusive),
        "exclusive nodes do not apply to resizable jobs, whose sizes are not rounded to whole nodes"
        " yet: leave exclusive out of the machine file"),
    Refusal("pool", lambda own: own.chosen.redirection is not None,
            "a pool has no redirection group yet; choose another scenario"),
    Refusal("dispersal", lambda own: any(is_set(own, field) for field in _WINDOW),
            "is measured for all jobs yet, so that it does not go with a warm-up or a cool-down;"
            " leave one out"),
    Refusal("feedback", lambda own: (
        own.jobs.single or own.jobs.fields.model is not None),
        "only jobs of a trace or of columns name preceding jobs; leave it out"),
    Refusal("feedback", lambda own: own.load is not None, "the times between submissions follow"
            " from the ends of jobs, so that they cannot be stretched to a load; leave one out"),
    Refusal("feedback", lambda own: own.advance_reservations is not None, "reservations are planned"
            " by recorded submissions, which feedback moves; leave one out"),
    Refusal("contiguity", lambda own: own.counted and not own.individual,
            "jobs have no places, because processors are only counted; give select as well, such"
            " as tree or first-fit"),
    Refusal("contiguity", lambda own: own.gain is not None and own.gain.exponent < inf and (
        own.platform is None or own.platform.network is None),
        "the exponent needs a network, in which processors have distances; give a machine with"
        " one"),
    Refusal("dispersal", lambda own: own.select is None or own.platform is None,
            "jobs have no places in a network; give a machine with one, and select"),
    Refusal("partition_field", lambda own: own.platform is None or not own.platform.partitions,
            "needs a machine with partitions; give machine as well, or leave it out"),
    Refusal("advance_reservations", lambda own: (
        own.platform is not None and bool(own.platform.partitions)),
        "partitions take no advance reservations in a simulation yet; leave one out"),
    Refusal("select", lambda own: own.platform is None and bool(own.chosen.selection.network),
            "needs a machine with a network; give a machine file of one"),
    Refusal("select", lambda own: own.select == COUNT and own.single_jobs,
            "resizable jobs get individual processors; give first-fit, or leave it out"),
    Refusal("select", lambda own: own.select == COUNT and not own.counted,
            "count has no effect, because individual processors are needed; leave it out"),
    Refusal("load", lambda own: own.jobs.single,
            "applies to the jobs of a trace; a workload and the model prio say when jobs are"
            " submitted"),
    Refusal("load", _at_centres, "is that of one machine, which several centres are not"),
    Refusal("seed", lambda own: not own.draws,
            "nothing is drawn: no job, wait, demand or centre is chosen by chance; leave it out"),
    Refusal("scenario.backfill.reservations", _contradicts_name,
            "another number of reservations defines the scenario that is named; give the scenario"
            " easy instead"),
    Refusal("scenario.backfill.kill_at_reservation", _kills_in_vain,
            "no job exceeds its estimate, so that none is killed at a reservation; give the rule"
            " of cleaning overrun=keep as well"),
)  # fmt: skip
#: Rows that are refused for want of code: the models could combine what they refuse.
NOT_YET = [row for row in REFUSALS if " yet" in row.reason]


def check(settings: Settings) -> None:
    """Check that everything that was set has an effect and goes with the rest.

    Raises
    ------
    ConfigError : names the first field that does not, why, and what to change.
    """
    if isinstance(settings.assign, int | float | list | Mapping):
        raise ConfigError(f"must be a name or an object, got {settings.assign!r}", field="assign")
    if not isinstance(settings.dispatch, Mapping):
        raise ConfigError(f"must be a mapping, got {settings.dispatch!r}", field="dispatch")
    _resolve(settings)
    times = dict.fromkeys(("tau_s", *_WINDOW), ">= 0 and finite")
    ranges = {"load": "> 0 and finite", "seed": ">= 0", "processors": ">= 1"}
    if fault := out_of_range(settings, **times, **ranges):
        raise ConfigError(fault[1], field=fault[0])
    for field, where, reason in REFUSALS:
        if is_set(settings, field.partition(".")[0]) and where(settings):
            raise ConfigError(reason, field=field)


def _resolve(settings: Settings) -> None:
    """Look up everything that is named, so that errors come before a long simulation."""
    _ = settings.described, settings.pool_options, settings.gain, settings.shared
    _ = settings.reservations, settings.assignment, settings.quote_rules
    if settings.centres is None:
        _ = settings.chosen
    elif settings.estimates is not None:
        _ = settings.centre_estimates
    if settings.pool is not None:
        settings.waits()


def is_set(settings: Settings, name: str) -> bool:
    """Whether a field differs from its default; user-defined objects may not define equality."""
    value = getattr(settings, name)
    default = _defaults(type(settings))[name]
    if default is msgspec.NODEFAULT:
        return bool(value)
    return not (value is default or (type(value) is type(default) and value == default))


@cache
def _defaults(kind: type[Settings]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}

"""How jobs are distributed over centres: the rules of a run, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from reshape.errors import ConfigError
from scheduler.policies.assignment.dispatcher import DispatchRules
from scheduler.policies.assignment.interface import Assignment
from scheduler.policies.assignment.moves import MoveRules
from scheduler.policies.registry import find
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.predictions.classification import Classification
from scheduler.predictions.estimates import Estimates
from scheduler.text.located import converted
from simulator.many_centres.centres_file import CentreDescription

#: Centralised models that are no task assignment policies: names beside those of the registry.
GRID_BACKFILLING, MIGRATION = "grid-backfilling", "migration"


class Redispatch(msgspec.Struct, frozen=True):
    """When jobs that wait at one centre are moved to another one.

    Parameters
    ----------
    every_s : seconds between two examinations of the queues; 0: whenever processors were released.
    at_once : move a job only where it starts at once, as the global controller of GUIM 8.2, model
        1, which backfills jobs at other centres. Otherwise its quote must be better by the rules.
    rules : see `MoveRules`; if `at_once`, only the depth is used.

    Raises
    ------
    ValueError : a number is out of range.
    """

    every_s: float = 0.0
    at_once: bool = True
    rules: MoveRules = MoveRules()

    def __post_init__(self) -> None:
        """Check the number."""
        if not self.every_s >= 0:
            raise ValueError(f"every_s must be >= 0, got {self.every_s}")


class CentresRules(msgspec.Struct, frozen=True):
    """How jobs are distributed over centres.

    Parameters
    ----------
    assignment : task assignment policy; None for Grid-Backfilling.
    dispatch : what a dispatcher does besides choosing.
    redispatch : when waiting jobs are moved; None: never.
    scale_estimates : whether estimates are multiplied by the CPU factor, as run times are.
    grid : scenario of Grid-Backfilling.
    estimates : source of predictions, for policies that use them.
    fit_share : share of the jobs, the first ones, to which cut-offs are fitted.
    keep_quotes : whether the schedule has what was expected of each job.
    """

    assignment: Assignment | None
    dispatch: DispatchRules = DispatchRules()
    redispatch: Redispatch | None = None
    scale_estimates: bool = True
    grid: Scenario = scenario("easy", {"backfill_order": "sjf"})
    estimates: Estimates = Classification()
    fit_share: float = 0.1
    keep_quotes: bool = False


def rules_named(name: str, parameters: dict[str, Any] | None = None) -> CentresRules:
    """Rules for the name of a policy.

    Parameters
    ----------
    name : of a task assignment policy, ``module:Class``, "grid-backfilling" or "migration" (jobs go
        to their origin and are moved to where they start at once, GUIM 8.2, model 1).
    parameters : fields of `DispatchRules` and of the policy, `redispatch` ("at-once" or "quote")
        and `scale_estimates`; numbers may be texts.

    Raises
    ------
    ConfigError : a name or a value is unknown.
    """
    given = dict(parameters or {})
    scale = converted(given.pop("scale_estimates", True), bool, "scale_estimates")
    moves = given.pop("redispatch", "at-once" if name == MIGRATION else None)
    fields = {f: given.pop(f) for f in DispatchRules.__struct_fields__ if f in given}
    dispatch = converted(fields, DispatchRules, "dispatch")
    if moves not in (None, "at-once", "quote"):
        raise ConfigError(f"must be at-once or quote, got {moves!r}", field="redispatch")
    redispatch = None
    if moves is not None:
        at_once = moves == "at-once"
        redispatch = Redispatch(at_once=at_once, every_s=0.0 if at_once else 600.0)
    assignment = None
    if name != GRID_BACKFILLING:
        policy = find("assignment", "origin" if name == MIGRATION else name)
        if "seed" in getattr(policy, "__annotations__", {}):
            given["seed"] = dispatch.seed
        assignment = converted(given, policy, "assignment")
    elif given:
        raise ConfigError(f"has no parameter {next(iter(given))!r}", field=GRID_BACKFILLING)
    return CentresRules(assignment, dispatch, redispatch, scale)


def with_estimates(
    centres: Sequence[CentreDescription], rules: CentresRules, estimates: Estimates
) -> tuple[list[CentreDescription], CentresRules]:
    """Centres and rules of which each core has these estimates, that of Grid-Backfilling too."""
    replaced = msgspec.structs.replace
    changed = [
        replaced(centre, scenario=replaced(centre.scenario, estimates=estimates))
        for centre in centres
    ]
    return changed, replaced(rules, grid=replaced(rules.grid, estimates=estimates))

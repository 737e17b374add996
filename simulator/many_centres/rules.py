"""Several centres: which there are, and how jobs are distributed over them.

A machine file may name several centres:

.. code-block:: yaml

    centres:
      - name: CTC
        processors: 412
        cpu_factor: 1.5           # run times are 1.5 times as long (default 1)
        units_per_hour: 420       # allocation units of a processor for an hour (default 1)
        cost_per_unit: 1.12       # (default 0)
        scenario: easy            # (default easy)
        set: {backfill_order: sjf}    # fields of the scenario
      - {name: SDSC, processors: 128, scenario: fcfs}
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec

from reshape.errors import ConfigError
from scheduler.policies.assignment.dispatcher import DispatchRules
from scheduler.policies.assignment.interface import Assignment, takes_seed
from scheduler.policies.registry import find
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.policies.selection.basic import FirstFit
from scheduler.predictions.classification import Classification
from scheduler.predictions.estimates import Estimates
from scheduler.text.located import Located, converted

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class CentreDescription(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """A centre, as a machine file describes it.

    Parameters
    ----------
    name : of the centre.
    processors : number of its processors.
    scenario : name of the scenario by which it schedules; in Python also an object.
    cpu_factor : factor of all run times; 2 is half as fast as 1.
    units_per_hour : allocation units that a processor costs for an hour.
    cost_per_unit : cost of an allocation unit.
    set : values for fields of the scenario, by dotted name.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    processors: Count
    scenario: Any = "easy"
    cpu_factor: Positive = 1.0
    units_per_hour: NotNegative = 1.0
    cost_per_unit: NotNegative = 0.0
    set: dict[str, Any] = {}

    @cached_property
    def chosen(self) -> Scenario:
        """Rules by which the centre schedules.

        Raises
        ------
        ConfigError : there is no such scenario, or a field of it cannot be set.
        """
        own = self.scenario
        if isinstance(own, str):
            return scenario(own, self.set)
        if not isinstance(own, Scenario):
            raise ConfigError(
                f"centre {self.name}: must be a name or a Scenario, got {own!r}", field="scenario"
            )
        if self.set:
            raise ConfigError(
                f"centre {self.name}: set changes a scenario that is named; change the object"
                " itself instead",
                field="set",
            )
        return own

    @property
    def price(self) -> float:
        """Cost of a processor for an hour."""
        return self.units_per_hour * self.cost_per_unit


class CentresFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine file of several centres.

    Parameters
    ----------
    centres : the centres between which jobs are divided.
    """

    centres: Annotated[list[CentreDescription], msgspec.Meta(min_length=1)]


def described_centres(tree: Located) -> list[CentreDescription]:
    """Centres that the contents of a machine file describe.

    Raises
    ------
    ConfigError : they are invalid; the message names file, line and field.
    """
    written = tree.values.get("centres")
    for i, centre in enumerate(written if isinstance(written, list) else ()):
        if isinstance(centre, dict) and "nodes" in centre:
            tree.fail(
                ("centres", i, "nodes"),
                "the processors of a centre are only counted; give their number as processors",
            )
    centres = tree.convert(CentresFields).centres
    for i, each in enumerate(centres):
        above = ("centres", i)
        if any(each.name == other.name for other in centres[:i]):
            tree.fail((*above, "name"), f"two centres are named {each.name!r}; rename one")
        if not isinstance(each.scenario, str):
            tree.fail((*above, "scenario"), f"must be a name, got {each.scenario!r}")
        try:
            own_scenario = each.chosen
        except ConfigError as error:
            field = "scenario" if error.field == "scenario" else "set"
            tree.fail((*above, field), error.message if field == "scenario" else str(error))
        if own_scenario.selection != FirstFit():
            tree.fail(
                (*above, "set"),
                "selection has no effect, because the processors of a centre are only counted;"
                " leave it out",
            )
        if own_scenario.redirection is not None:
            tree.fail((*above, "scenario"), "a centre is one group; leave redirection out")
    return centres


#: Centralised models that are no task assignment policies: names beside those of the registry.
GRID_BACKFILLING, MIGRATION = "grid-backfilling", "migration"


class CentresRules(msgspec.Struct, frozen=True):
    """How jobs are distributed over centres.

    Parameters
    ----------
    assignment : task assignment policy; None for Grid-Backfilling.
    dispatch : what a dispatcher does besides choosing.
    seed : of the draws of the dispatcher and of the policy.
    redispatch : moves waiting jobs to other centres: "at-once", whenever processors were released,
        where they start at once, as the global controller of GUIM 8.2, model 1, which backfills
        jobs at other centres; "quote", every `QUOTE_EVERY_S`, where the quote is better, see
        `better_wait`; None: never.
    scale_estimates : whether estimates are multiplied by the CPU factor, as run times are.
    grid : scenario of Grid-Backfilling.
    estimates : source of predictions, for policies that use them.
    keep_quotes : whether the schedule has what was expected of each job.
    """

    assignment: Assignment | None
    dispatch: DispatchRules = DispatchRules()
    seed: int = 1
    redispatch: Literal["at-once", "quote"] | None = None
    scale_estimates: bool = True
    grid: Scenario = scenario("easy", {"backfill_order": "sjf"})
    estimates: Estimates = Classification()
    keep_quotes: bool = False


def rules_named(name: str, parameters: dict[str, Any] | None = None, seed: int = 1) -> CentresRules:
    """Rules for the name of a policy.

    Parameters
    ----------
    name : of a task assignment policy, ``module:Class``, "grid-backfilling" or "migration" (jobs go
        to their origin and are moved to where they start at once, GUIM 8.2, model 1).
    parameters : fields of `DispatchRules` and of the policy, `redispatch` ("at-once" or "quote")
        and `scale_estimates`; numbers may be texts.
    seed : of all draws.

    Raises
    ------
    ConfigError : a name or a value is unknown.
    """
    values = dict(parameters or {})
    if "seed" in values:
        raise ConfigError("unknown field; all draws have the seed of the experiment", field="seed")
    scale = converted(values.pop("scale_estimates", True), bool, "scale_estimates")
    moves = values.pop("redispatch", "at-once" if name == MIGRATION else None)
    fields = {f: values.pop(f) for f in DispatchRules.__struct_fields__ if f in values}
    dispatch = converted(fields, DispatchRules, "dispatch")
    if moves not in (None, "at-once", "quote"):
        raise ConfigError(f"must be at-once or quote, got {moves!r}", field="redispatch")
    assignment = None
    if name != GRID_BACKFILLING:
        policy = find("assignment", "origin" if name == MIGRATION else name)
        if takes_seed(policy):
            values["seed"] = seed
        assignment = converted(values, policy, "assignment")
    elif values:
        raise ConfigError(f"has no parameter {next(iter(values))!r}", field=GRID_BACKFILLING)
    return CentresRules(assignment, dispatch, seed, moves, scale)


def with_estimates(
    centres: Sequence[CentreDescription], rules: CentresRules, estimates: Estimates
) -> tuple[list[CentreDescription], CentresRules]:
    """Centres and rules of which each core has these estimates, that of Grid-Backfilling too."""
    replaced = msgspec.structs.replace
    changed = [
        replaced(centre, scenario=replaced(centre.chosen, estimates=estimates))
        for centre in centres
    ]
    return changed, replaced(rules, grid=replaced(rules.grid, estimates=estimates))

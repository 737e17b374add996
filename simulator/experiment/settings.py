"""What an experiment is made of, as the user gave it, and what it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError, ReshapeError, nearest
from reshape.key_values import key_values
from scheduler.config import machine_file
from scheduler.config.machine_file import Platform
from scheduler.policies.assignment.interface import takes_seed
from scheduler.policies.pools.options import KEYS, PoolOptions, parse_pool_options
from scheduler.policies.registry import find, kind_of_policy, known, name_of
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import changed, scenario, uses_first_fit
from scheduler.predictions.estimates import Estimates, Predictor
from scheduler.text.located import Located, converted
from simulator.engine.physics import ContiguityGain, Sharing, SharingRules
from simulator.many_centres.rules import (
    CentreDescription,
    CentresRules,
    described_centres,
    rules_named,
)
from simulator.traces.normalise import PartitionField, Rules
from simulator.workload_models import advance_reservations
from simulator.workload_models.advance_reservations import PlannedReservation

EXACT = "exact"  #: Estimates that are the run times.
#: Field of an experiment -> field of the scenario that it sets.
OF_SCENARIO = {
    "queue_order": "order",
    "backfill_order": "backfill_order",
    "estimates": "estimates",
    "select": "selection",
}
#: The same fields -> method of an object that is such a policy.
_METHODS = {
    "queue_order": "key",
    "backfill_order": "key",
    "estimates": "predictor",
    "select": "select",
}


def scenario_of(written: object, policies: Mapping[str, Any]) -> Scenario:
    """Scenario with all changes.

    Parameters
    ----------
    written : a name; a mapping of the name and of changes; a scenario; a resizing policy, or a
        scheduling pass.
    policies : field of `OF_SCENARIO` -> name, mapping or object; None: as the scenario has it.

    Raises
    ------
    ConfigError : a name or a field is unknown, or an object is no policy of the kind.
    """
    changes: dict[str, Any] = dict(written) if isinstance(written, Mapping) else {}
    named = changes.pop("name", "easy") if isinstance(written, Mapping) else written
    objects: dict[str, Any] = {}
    for name, field in OF_SCENARIO.items():
        value = policies[name]
        if value is None:
            continue
        if field in changes:
            raise ConfigError(f"scenario has {field} as well; keep one", field=name)
        if name == "estimates":
            value = estimates_of(value)
        if isinstance(value, str | Mapping):
            changes[field] = value
        elif _has_method(value, _METHODS[name], name):
            objects[field] = value
        elif isinstance(value, Predictor):
            raise ConfigError(
                f"is a {type(value).__name__}, which learns in one simulation; give an object"
                " of a class whose method predictor() makes one",
                field=name,
            )
        else:
            raise ConfigError(
                f"must be a name, a mapping or an object with a method {_METHODS[name]}, got"
                f" {value!r}",
                field=name,
            )
    try:
        base = _base(named)
    except ConfigError as error:
        field = "scenario" if named is written else "scenario.name"
        raise ConfigError(error.message, field=field) from None
    try:
        return msgspec.structs.replace(changed(base, changes) if changes else base, **objects)
    except ConfigError as error:
        first, dot, rest = (error.field or "").partition(".")
        own = [name for name, field in OF_SCENARIO.items() if first == field]
        own = [f"{name}{dot}{rest}" for name in own if policies[name] is not None]
        raise ConfigError(error.message, field=[*own, f"scenario.{error.field}"][0]) from None


def estimates_of(value: Any) -> Any:
    """Estimates as the scenario takes them: "exact" ones are requests that were replaced.

    Raises
    ------
    ConfigError : an unknown name.
    """
    names = known("estimates")
    if isinstance(value, str) and ":" not in value and value not in (EXACT, *names):
        raise ConfigError(
            f"unknown estimates {value!r}{nearest(value, (EXACT, *names))}", field="estimates"
        )
    return "user" if value == EXACT else value


def _base(value: object) -> Scenario:
    """Scenario of a name, or of an object."""
    if isinstance(value, Scenario):
        return value
    if isinstance(value, str):
        return scenario(value)
    for kind, method in (("resizing", "decide"), ("scheduling", "schedule")):
        if _has_method(value, method, "scenario"):
            own: dict[str, Any] = {kind: value}
            return Scenario(type(value).__name__, **own)
    raise ConfigError(
        "must be a name, a Scenario, a resizing policy, a scheduling pass or a mapping, got"
        f" {value!r}",
        field="scenario",
    )


def _has_method(value: object, method: str, field: str) -> bool:
    """Whether an object is meant as a policy of the kind that has this method."""
    if isinstance(value, type):
        raise ConfigError(f"is a class; give an object, {value.__name__}()", field=field)
    if not callable(getattr(value, method, None)):
        return False
    try:
        kind_of_policy(type(value).__name__, type(value))
    except ConfigError as error:
        raise ConfigError(error.message, field=field) from None
    return True


class QuoteRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs are forecast when they are submitted, and how.

    Parameters
    ----------
    every : of the jobs that have to wait, every n-th is forecast.
    run_times : forecasts expect the "estimates" of the scheduler, or the "exact" run times.
    futures : number of futures with arrivals of other jobs that give quantiles of each start; 0:
        there are none.
    """

    every: Annotated[int, msgspec.Meta(ge=1)] = 1
    run_times: Literal["estimates", "exact"] = "estimates"
    futures: Annotated[int, msgspec.Meta(ge=0)] = 0


T = TypeVar("T")
COUNT = "count"  #: Selection of processors that are only counted.
DEFAULT_ASSIGN = "less-waittime"


class Settings(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """The fields of an experiment as the user gave them.

    Parameters
    ----------
    jobs : `Jobs`; the path of a trace or workload file; or a mapping of columns, or a data frame.
    processors : of a machine without other properties. Default: the number that the jobs name.
    machine : machine file or its contents as a mapping: nodes and network (docs/machines.md), or
        several centres (docs/sites.md).
    partition_field : field of a trace whose number n stands for the nth partition of the machine;
        see docs/partitions.md.
    scenario : name of a scenario, of a resizing policy or of a scheduling pass; an object of one
        of these kinds; or a mapping with the `name` of a scenario and fields to change, such as
        ``{"name": "easy", "backfill.max_jobs": 100}``.
    queue_order, backfill_order, estimates, select : policies of the scenario, by name, as an
        object, or as a mapping with `policy` and parameters. `estimates` may be "exact", the run
        times. Without `select` processors are counted if the scenario permits it; "count" demands
        it.
    event_order : "batch" runs one scheduling pass for each instant, "sequential" one for each
        event.
    feedback : submit a job with a preceding one (fields 17 and 18 of a trace, columns
        `preceding_job` and `think_s`) as long after the end of that one in the simulation as its
        think time says, and not at the recorded time.
    contiguity : gain of contiguous processors, a share or a mapping; see `ContiguityGain`.
    dispersal : measure how far apart in the network the processors of each job are.
    sharing : how nodes are shared: "table", "changes" or a mapping; see `SharingRules`.
    advance_reservations : file of reservations, or a list of mappings; see docs/reservations.md.
    assign : task assignment policy for several centres, by name or as an object.
    dispatch : fields of the dispatcher, such as ``{"ask": 2}``; see docs/sites.md.
    pool : options of an elastic pool that has all nodes, as text or mapping; see docs/pool.md.
    pool_wait : wait of an allocation in the batch system: seconds, a text with a unit or a colon
        such as "10:00", or a trace with waits.
    load : offered load to which the times between submissions are stretched or shortened; None: as
        they are.
    seed : of all draws; None: 0 for resizable jobs, pools and quotes, 1 for models and demands.
    tau_s : bound of the bounded slowdown, s.
    warm_up_s, cool_down_s : jobs that are submitted so soon after the first one, or so shortly
        before the last one, count in no metric, s; see `Window`.
    quotes : forecast the starts of jobs at their submission, into the table `quotes`: a mapping, {}
        for its defaults; see `QuoteRules`. Centres keep what they were asked for.
    """

    jobs: Any
    processors: int | None = None
    machine: Any = None
    partition_field: PartitionField = "partition"
    scenario: Any = "easy"
    queue_order: Any = None
    backfill_order: Any = None
    estimates: Any = None
    select: Any = None
    event_order: Literal["batch", "sequential"] = "batch"
    feedback: bool = False
    contiguity: Any = None
    dispersal: bool = False
    sharing: Any = None
    advance_reservations: Any = None
    assign: Any = None
    dispatch: Mapping[str, Any] = {}
    pool: Any = None
    pool_wait: Any = 0
    load: float | None = None
    seed: int | None = None
    tau_s: float = 60.0
    warm_up_s: float = 0.0
    cool_down_s: float = 0.0
    quotes: Any = None

    @cached_property
    def described(self) -> Platform | list[CentreDescription] | None:
        """Machine, or centres, that `machine` describes; None: there is only a number."""
        if self.machine is None or isinstance(self.machine, Platform):
            return self.machine
        if isinstance(self.machine, Sequence) and not isinstance(self.machine, str):
            return list(self.machine)
        tree = _tree(self.machine, "machine")
        if "centres" in tree.values:
            return described_centres(tree)
        return machine_file.described(tree)

    @property
    def centres(self) -> list[CentreDescription] | None:
        """Centres; None: there is one machine."""
        return self.described if isinstance(self.described, list) else None

    @property
    def platform(self) -> Platform | None:
        """Machine of nodes; None: there is only a number of processors, or several centres."""
        return self.described if isinstance(self.described, Platform) else None

    @cached_property
    def chosen(self) -> Scenario:
        """The scenario with all changes, and those of the partitions of the machine."""
        policies = {name: getattr(self, name) for name in OF_SCENARIO}
        if self.select == COUNT:
            policies["select"] = None
        made = scenario_of(self.scenario, policies)
        return made if self.platform is None else self.platform.scenario(made)

    @property
    def rules(self) -> Rules:
        """Rules of cleaning."""
        rules: Rules = self.jobs.fields.rules
        return msgspec.structs.replace(rules, exact=True) if self.estimates == EXACT else rules

    @property
    def individual(self) -> bool:
        """Whether individual processors are wanted: a selection was named."""
        return self.select is not None and self.select != COUNT

    @property
    def counted(self) -> bool:
        """Whether the processors of rigid jobs are only counted."""
        needed = (self.sharing, self.advance_reservations, self.quotes)  # they tell them apart
        individual = self.individual or any(value is not None for value in needed)
        return not individual and uses_first_fit(self.chosen)

    def _structure(self, name: str, kind: type[T], main: str = "") -> T | None:
        """Structure of a field that may be an object, a mapping, or a value of its main field."""
        value = getattr(self, name)
        if value is None or isinstance(value, kind):
            return value
        fields = {main: value} if main and not isinstance(value, Mapping) else value
        return converted(fields, kind, name)

    @property
    def gain(self) -> ContiguityGain | None:
        """Gain of contiguous processors."""
        return self._structure("contiguity", ContiguityGain, "speedup")

    @property
    def shared(self) -> SharingRules | None:
        """How nodes are shared."""
        return self._structure("sharing", SharingRules, "windows")

    def sharing_on(self, machine: Platform, amounts: Mapping[str, int]) -> Sharing | None:
        """How nodes of a machine are shared.

        Parameters
        ----------
        amounts : capacities of a node by the header of the trace, if the machine names none.

        Raises
        ------
        ConfigError : neither names any.
        """
        shared = self.shared
        if shared is None:
            return None
        amounts = machine.shared_per_node or amounts
        if not amounts:
            raise ConfigError(
                "neither the machine nor the trace names a shared resource; give a machine with"
                " shared_per_node",
                field="sharing",
            )
        rules = msgspec.structs.asdict(shared)
        rules["penalty"] = shared.penalty or machine.shared_penalty
        return Sharing(
            **rules,
            processors_per_node=machine.processors_per_node,
            amounts=amounts,
            seed=1 if self.seed is None else self.seed,
        )

    @property
    def quote_rules(self) -> QuoteRules | None:
        """Which jobs are forecast at their submission; None: none is."""
        return self._structure("quotes", QuoteRules)

    @cached_property
    def reservations(self) -> list[PlannedReservation]:
        """Advance reservations."""
        requests = self.advance_reservations
        if requests is None:
            return []
        if isinstance(requests, Sequence) and not isinstance(requests, str):
            if all(isinstance(reservation, PlannedReservation) for reservation in requests):
                return list(requests)
            requests = {"reservations": list(requests)}
        return advance_reservations.described(_tree(requests, "advance_reservations"))

    @cached_property
    def assignment(self) -> CentresRules:
        """How jobs are distributed over centres; the seed also draws the centres that are asked."""
        assign = DEFAULT_ASSIGN if self.assign is None else self.assign
        name = assign if isinstance(assign, str) else DEFAULT_ASSIGN
        try:
            rules = rules_named(name, dict(self.dispatch), 1 if self.seed is None else self.seed)
        except ConfigError as error:
            field = (error.field or "").removeprefix("assignment.").removeprefix("dispatch.")
            field = "assign" if field == "assignment" else f"dispatch.{field}"
            raise ConfigError(error.message, field=field) from None
        rules = msgspec.structs.replace(rules, keep_quotes=self.quotes is not None)
        return (
            rules if isinstance(assign, str) else msgspec.structs.replace(rules, assignment=assign)
        )

    @property
    def draws(self) -> bool:
        """Whether anything is drawn, so that the seed has an effect."""
        shared = self.shared
        wrong_demands = shared is not None and shared.demand_error > 0
        waits = self.pool is not None and len(self.waits()) > 1
        asks = self.centres is not None and (
            self.assignment.dispatch.ask is not None or takes_seed(type(self.assignment.assignment))
        )
        futures = self.quote_rules is not None and self.quote_rules.futures > 0
        return self.jobs.draws or wrong_demands or waits or asks or futures

    @cached_property
    def pool_options(self) -> PoolOptions | None:
        """Options of the pool; None: the machine is not a pool."""
        pool = self.pool
        if pool is None or isinstance(pool, PoolOptions):
            return pool
        try:
            if isinstance(pool, str):
                return parse_pool_options(key_values(pool.split(","), KEYS))
            if not isinstance(pool, Mapping):
                raise ConfigError(f"must be a text or a mapping, got {pool!r}", field="pool")
            return parse_pool_options({name: _text(value) for name, value in pool.items()})
        except ValueError as error:
            raise ConfigError(str(error), field="pool") from None

    @property
    def single_jobs(self) -> bool:
        """Whether jobs are simulated one by one, as resizable ones are, and not as columns."""
        is_single = self.jobs.single or self.jobs.fields.resizable is not None
        return is_single and self.centres is None

    @property
    def centre_estimates(self) -> Estimates:
        """Source of estimates that replaces that of all centres."""
        estimates = self.estimates
        if not isinstance(estimates, str):
            return estimates  # type: ignore[no-any-return]
        made: Estimates = find("estimates", estimates_of(estimates))()
        return made

    @property
    def name(self) -> str:
        """Name of the workload, for results."""
        source: str = self.jobs.source
        return Path(source).name.removesuffix(".gz").rpartition(".")[0] or source

    @property
    def title(self) -> str:
        """Name of the scenario, for results."""
        named = self.scenario
        if isinstance(named, Mapping):
            named = named.get("name", "easy")
        return named if isinstance(named, str) else self.chosen.name

    @property
    def assign_name(self) -> str:
        """Name of the task assignment policy, for results."""
        assign = DEFAULT_ASSIGN if self.assign is None else self.assign
        return assign if isinstance(assign, str) else name_of("assignment", assign)

    def waits(self) -> NDArray[np.float64]:
        """Waits of the allocations of the pool, (n,) float64, s."""
        from simulator.pools import read_waits  # late, as all that few runs need

        if isinstance(self.pool_wait, int | float):
            return np.array([float(self.pool_wait)])
        try:
            return read_waits(str(self.pool_wait))
        except ReshapeError as error:
            raise ConfigError(str(error), field="pool_wait") from None


def _tree(value: object, field: str) -> Located:
    """Contents of a file, or of a mapping."""
    if isinstance(value, Mapping):
        return Located.of(value, field)
    if isinstance(value, str | Path):
        return Located.read(Path(value))
    raise ConfigError(f"must be a path or a mapping, got {value!r}", field=field)


def _text(value: object) -> str:
    """Value of a pool's option as a text; YAML reads yes and no as truth values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)

"""Policies and scenarios by name: built in, registered by a program, or offered by a package.

====================  ===========================================================================
``fcfs``              static, first come, first served, no job passes another
``easy``              static, EASY backfilling
``easy++``            EASY by predicted run times, shortest job backfilled first (Tsafrir)
``conservative``      static, every queued job holds a reservation
``rua``               EASY that starts jobs where shared nodes prolong them least (GUIM 7.4)
``static``            PRIO's baseline: EASY in the order of the aging priority, no job is resized
``malleable``         starts jobs on what is free and divides the machine between them
``steady``            `fcfs-pr` that contracts a job only if a queued job can start as a result
``pba-pr``            PRIO 3.3 policy 1 scenario 1, performance-based allocation with priority
``fcfs-pr``           PRIO 3.3 policy 1 scenario 2, FCFS-Max-Benefit with priority
``max-b-pr``          PRIO 3.3 policy 2, Max-benefit with priority
``pba``               these three without priorities: first come, first served with EASY, and every
``fcfs-max-benefit``  queued job comes before every running one
``max-b``
====================  ===========================================================================

An installed package offers its own under the entry point group ``reshape.policies``::

    [project.entry-points."reshape.policies"]
    doubler = "my_policy:Doubler"

The kind of a policy follows from its method: `decide` makes a resizing policy, `key` a queue order,
`select` a processor selection, `schedule` a scheduling pass and `predictor` a source of estimates;
an instance of `Scenario` is a scenario. `assign` makes a task assignment policy, which chooses
between sites (docs/sites.md). A name may also be written ``module:Class``, so that a single file in
the current folder or on Python's path needs no package.
The entry points are read when a name is neither built in nor registered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from reshape.errors import ConfigError, nearest
from reshape.user_modules import user_module
from scheduler.model.interfaces import QueueOrder, Selection
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.queue_orders.basic import Sjf
from scheduler.policies.scenario import Scenario
from scheduler.predictions.estimates import Tsafrir

GROUP = "reshape.policies"
_KINDS = {
    "resizing": "decide",
    "scheduling": "schedule",
    "order": "key",
    "selection": "select",
    "estimates": "predictor",
    "assignment": "assign",
}
#: Kinds of policies, and fields of a scenario, that make a scenario of their own: a resizing policy
#: adds to EASY, a scheduling pass takes its place.
_PARTS = ("resizing", "scheduling")
#: What a policy derives from, by kind.
_BASES: dict[str, type] = {"order": QueueOrder, "selection": Selection}
#: Built-in policies as ``module:Class``; they are imported when they are used.
_BUILT_IN = {
    "assignment": {
        "central-queue": "scheduler.policies.assignment.policies:CentralQueue",
        "least-load": "scheduler.policies.assignment.policies:LeastLoad",
        "less-cost-sld": "scheduler.policies.assignment.policies:LessCostSld",
        "less-jobsinqueue": "scheduler.policies.assignment.policies:LessJobsInQueue",
        "less-turnaround": "scheduler.policies.assignment.policies:LessTurnaround",
        "less-slowdown": "scheduler.policies.assignment.policies:LessSlowdown",
        "less-submittedjobs": "scheduler.policies.assignment.policies:LessSubmittedJobs",
        "less-waittime": "scheduler.policies.assignment.policies:LessWaitTime",
        "less-waittime-pred": "scheduler.policies.assignment.policies:LessWaitTimePred",
        "less-workleft": "scheduler.policies.assignment.policies:LessWorkLeft",
        "multiple-requests": "scheduler.policies.assignment.policies:MultipleRequests",
        "origin": "scheduler.policies.assignment.policies:HomeSite",
        "per-user": "scheduler.policies.assignment.policies:PerUser",
        "random": "scheduler.policies.assignment.policies:Random",
        "sita-e": "scheduler.policies.assignment.policies:SitaE",
        "sita-u-fair": "scheduler.policies.assignment.policies:SitaUFair",
        "sita-u-opt": "scheduler.policies.assignment.policies:SitaUOpt",
    },
    "resizing": {
        "fcfs-pr": "scheduler.policies.resizing.prio_scenarios:FcfsPr",
        "malleable": "scheduler.policies.resizing.malleable:Malleable",
        "max-b-pr": "scheduler.policies.resizing.prio_scenarios:MaxBPr",
        "pba-pr": "scheduler.policies.resizing.prio_scenarios:PbaPr",
    },
    "order": {
        "aging": "scheduler.policies.queue_orders.aging:Aging",
        "fcfs": "scheduler.policies.queue_orders.basic:Fcfs",
        "lxwf": "scheduler.policies.queue_orders.basic:Lxwf",
        "priority": "scheduler.policies.queue_orders.basic:ByPriority",
        "sjf": "scheduler.policies.queue_orders.basic:Sjf",
    },
    "selection": {
        "contiguous": "scheduler.policies.selection.basic:Contiguous",
        "equi-distribute": "scheduler.policies.selection.on_table:EquiDistribute",
        "few-nodes": "scheduler.policies.selection.basic:FewNodes",
        "first-fit": "scheduler.policies.selection.basic:FirstFit",
        "less-consume": "scheduler.policies.selection.on_table:LessConsume",
        "less-consume-threshold": "scheduler.policies.selection.on_table:LessConsumeThreshold",
        "rua": "scheduler.policies.selection.on_table:LeastSlowdown",
        "submesh": "scheduler.policies.selection.on_network:Submesh",
        "submesh-relaxed": "scheduler.policies.selection.on_network:SubmeshRelaxed",
        "table-first-fit": "scheduler.policies.selection.on_table:OnTable",
        "tree": "scheduler.policies.selection.on_network:TreeContiguous",
        "tree-relaxed": "scheduler.policies.selection.on_network:TreeRelaxed",
    },
    "estimates": {
        "classification": "scheduler.predictions.classification:Classification",
        "hybrid": "scheduler.predictions.iterations:Hybrid",
        "iterations": "scheduler.predictions.iterations:Iterations",
        "statistical": "scheduler.predictions.history:Statistical",
        "tsafrir": "scheduler.predictions.estimates:Tsafrir",
        "user": "scheduler.predictions.estimates:UserEstimates",
    },
}
#: Fields of the built-in scenarios, which are made when they are used first.
_SCENARIOS: dict[str, Callable[[], dict[str, Any]]] = {
    "fcfs": lambda: {"backfill": Backfill(reservations=0)},
    "easy": dict,
    "easy++": lambda: {"backfill_order": Sjf(), "estimates": Tsafrir()},
    "conservative": lambda: {"backfill": Backfill(reservations=None)},
    "rua": lambda: {"backfill": Backfill(pick="penalty"), "selection": find("selection", "rua")()},
    "static": lambda: {"order": Aging()},
    "steady": lambda: _resized("fcfs-pr", harvest="useful", grow_past="blocked", earn_back=True),
    "malleable": lambda: _resized("malleable"),
    "pba-pr": lambda: _resized("pba-pr"),
    "fcfs-pr": lambda: _resized("fcfs-pr"),
    "max-b-pr": lambda: _resized("max-b-pr"),
    "pba": lambda: {"resizing": find("resizing", "pba-pr")(higher="queued")},
    "fcfs-max-benefit": lambda: {"resizing": find("resizing", "fcfs-pr")(higher="queued")},
    "max-b": lambda: {"resizing": find("resizing", "max-b-pr")()},
}
#: Kind -> name -> policy, or None of a built-in one that is not in use yet.
_known: dict[str, dict[str, Any]] = {
    "scenario": dict.fromkeys(_SCENARIOS),
    **{kind: dict.fromkeys(names) for kind, names in _BUILT_IN.items()},
    "scheduling": {},
}


def register(name: str, policy: Any) -> None:
    """Register a policy class or a scenario under a name; it replaces an earlier one of that name.

    Raises
    ------
    ConfigError : `policy` is neither a scenario nor a class with typed parameters and the method of
        one of the kinds of policy.
    """
    _known[kind_of_policy(name, policy)][name] = policy


def known(kind: str) -> list[str]:
    """Names of a kind ("scenario", "resizing", "order", "selection", ...), sorted.

    A resizing policy counts as the scenario that adds it to EASY, and a scheduling pass as the one
    in which it takes the place of backfilling.
    """
    _read_entry_points()
    parts = _PARTS if kind == "scenario" else ()
    return sorted({*_known[kind], *(name for part in parts for name in _known[part])})


def find(kind: str, name: str) -> Any:
    """Look up the class (or scenario) of this kind and name.

    Raises
    ------
    ConfigError : no policy of this kind has the name; the message offers the nearest names.
    """
    if name not in _known[kind]:
        _read_entry_points()
    if name in _known[kind]:
        if _known[kind][name] is None:
            _known[kind][name] = _built_in(kind, name)
        return _known[kind][name]
    if ":" in name:
        return _imported(kind, name)
    for part in _PARTS if kind == "scenario" else ():
        if name in _known[part]:
            return Scenario(name, **{part: find(part, name)()})
    module, _, attribute = name.rpartition(".")
    of_class = module and attribute[:1].isupper()  # the class of a module, as Python writes it
    fix = f"; did you mean {module}:{attribute}?" if of_class else nearest(name, known(kind))
    raise ConfigError(f"unknown {kind} {name!r}{fix}", field=kind)


def name_of(kind: str, policy: object) -> str:
    """Name under which the class of a policy is registered; ``module:Class`` if it has no name."""
    cls = type(policy)
    path = f"{cls.__module__}:{cls.__qualname__}"
    for name, registered in _known[kind].items():
        if registered is cls or (registered is None and path == _BUILT_IN[kind][name]):
            return name
    return path


def _resized(policy: str, **parameters: Any) -> dict[str, Any]:
    """Fields of a scenario in the order of the aging priority, with a resizing policy."""
    return {"order": Aging(), "resizing": find("resizing", policy)(**parameters)}


def _built_in(kind: str, name: str) -> Any:
    """Import a built-in policy, or make a scenario."""
    if kind == "scenario":
        return Scenario(name, **_SCENARIOS[name]())
    module, _, attribute = _BUILT_IN[kind][name].partition(":")
    return getattr(import_module(module), attribute)


@cache
def _read_entry_points() -> None:
    from importlib.metadata import entry_points  # a tenth of the start-up time of a command

    for point in entry_points(group=GROUP):
        register(point.name, point.load())


def _imported(kind: str, name: str) -> Any:
    """Class or scenario that ``module:Class`` names."""
    module, _, attribute = name.partition(":")
    try:
        imported = user_module(module)
    except (ImportError, ValueError) as error:
        missing = isinstance(error, ModuleNotFoundError)
        fix = "; call the command in its folder, or put the folder on PYTHONPATH" * missing
        message = f"{kind} {name!r} cannot be imported: {error}{fix}"
        raise ConfigError(message, field=kind) from None
    policy = getattr(imported, attribute, None)
    if policy is None:
        classes = [
            known
            for known, thing in vars(imported).items()
            if isinstance(thing, type) and thing.__module__ == imported.__name__
        ]
        message = f"module {module!r} has no class {attribute!r}{nearest(attribute, classes)}"
        raise ConfigError(message, field=kind)
    own_kind = kind_of_policy(name, policy)
    if own_kind == kind:
        return policy
    if kind == "scenario" and own_kind in _PARTS:
        try:
            made = policy()
        except Exception as error:  # code of a user
            said = f"{type(error).__name__}: {error}"
            fix = "give each of its parameters a default"
            message = f"{name!r} cannot be made without parameters: {said}; {fix}"
            raise ConfigError(message, field=kind) from None
        return Scenario(name, **{own_kind: made})
    raise ConfigError(f"{name!r} is of kind {own_kind}, not {kind}", field=kind)


def kind_of_policy(name: str, policy: Any) -> str:
    """Kind of a policy class or scenario.

    Raises
    ------
    ConfigError : see `register`.
    """
    if isinstance(policy, Scenario):
        return "scenario"
    typed = isinstance(policy, type) and (
        issubclass(policy, msgspec.Struct) or dataclasses.is_dataclass(policy)
    )
    for kind, method in _KINDS.items():
        if typed and callable(getattr(policy, method, None)):
            base = _BASES.get(kind)
            if base is not None and getattr(policy, method) is getattr(base, method):
                own = [known for known in vars(policy) if not known.startswith("_")]
                raise ConfigError(f"{name!r} has no method {method}{nearest(method, own)}")
            if base is not None and not issubclass(policy, base):
                kind_of = base.__name__
                raise ConfigError(
                    f"{name!r} does not say what it can do besides `{method}`; derive the class"
                    f" from {kind_of}: class {policy.__name__}({kind_of}, msgspec.Struct,"
                    f" frozen=True), with {kind_of} from scheduler.policies.api"
                )
            if kind == "order" and not isinstance(policy.ages, bool):
                raise ConfigError(
                    f"{name!r} does not declare whether its order changes with time; give the class"
                    " ages = False, or True"
                )
            return kind
    # The representation of other objects contains their address.
    plain = isinstance(policy, type) or not callable(policy)
    what = repr(policy) if plain else f"a {type(policy).__name__}"
    raise ConfigError(
        f"{name!r} is {what}, but a policy is a msgspec.Struct or a dataclass with one of the"
        f" methods {', '.join(_KINDS.values())}, or a Scenario"
    )

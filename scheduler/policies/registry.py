"""Policies and scenarios by name: built in, registered by a program, or offered by a package.

====================  ===========================================================================
``fcfs``              static, first come, first served, no job passes another
``easy``              static, EASY backfilling
``easy++``            EASY by predicted run times, shortest job backfilled first (Tsafrir)
``conservative``      static, every queued job holds a reservation
``rua``               EASY that starts jobs where shared nodes prolong them least (GUIM 7.4)
``static``            PRIO's baseline: EASY in the order of the aging priority, no job is resized
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
`select` a processor selection and `predictor` a source of estimates; an instance of `Scenario` is a
scenario. `assign` makes a task assignment policy, which chooses between sites (docs/sites.md). A
name may also be written ``module:Class``, so that a single file on Python's path needs no package.
The entry points are read when a name is neither built in nor registered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from reshape.errors import ConfigError, nearest
from scheduler.policies.assignment.basic import CentralQueue, HomeSite, LessSubmittedJobs, Random
from scheduler.policies.assignment.by_length import SitaE, SitaUFair, SitaUOpt
from scheduler.policies.assignment.by_metric import (
    LeastLoad,
    LessCostSld,
    LessJobsInQueue,
    LessSlowdown,
    LessTurnaround,
    LessWaitTime,
    LessWaitTimePred,
    LessWorkLeft,
    MultipleRequests,
    PerUser,
    Weighted,
)
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.queue_orders.basic import ByPriority, Fcfs, Lxwf, Sjf
from scheduler.policies.resizing.queued_first import FcfsPr, PbaPr
from scheduler.policies.resizing.running_first import MaxBPr
from scheduler.policies.scenario import Scenario
from scheduler.policies.selection.contiguous import Contiguous
from scheduler.policies.selection.few_nodes import FewNodes
from scheduler.policies.selection.first_fit import FirstFit
from scheduler.policies.selection.on_table import (
    ContinuousFit,
    EquiDistribute,
    FirstFitOrContinuous,
    LeastSlowdown,
    LessConsume,
    LessConsumeThreshold,
    OnTable,
)
from scheduler.policies.selection.scattered import HilbertCurve, MultipleBuddies, Paging
from scheduler.policies.selection.submesh import Submesh, SubmeshRelaxed
from scheduler.policies.selection.tree import TreeContiguous, TreeRelaxed
from scheduler.predictions.classification import Classification
from scheduler.predictions.estimates import Constant, Tsafrir, UserEstimates
from scheduler.predictions.hybrid import Hybrid
from scheduler.predictions.iterations import Iterations
from scheduler.predictions.online import Online
from scheduler.predictions.statistical import Regression, Statistical

GROUP = "reshape.policies"
_KINDS = {
    "resizing": "decide",
    "order": "key",
    "selection": "select",
    "estimates": "predictor",
    "assignment": "assign",
}

_known: dict[str, dict[str, Any]] = {
    "assignment": {
        "central-queue": CentralQueue,
        "least-load": LeastLoad,
        "less-cost-sld": LessCostSld,
        "less-jobsinqueue": LessJobsInQueue,
        "less-turnaround": LessTurnaround,
        "less-slowdown": LessSlowdown,
        "less-submittedjobs": LessSubmittedJobs,
        "less-waittime": LessWaitTime,
        "less-waittime-pred": LessWaitTimePred,
        "less-workleft": LessWorkLeft,
        "multiple-requests": MultipleRequests,
        "origin": HomeSite,
        "per-user": PerUser,
        "random": Random,
        "sita-e": SitaE,
        "sita-u-fair": SitaUFair,
        "sita-u-opt": SitaUOpt,
        "weighted": Weighted,
    },
    "scenario": {
        "fcfs": Scenario("fcfs", backfill=Backfill(reservations=0)),
        "easy": Scenario("easy"),
        "easy++": Scenario("easy++", backfill_order=Sjf(), estimates=Tsafrir()),
        "conservative": Scenario("conservative", backfill=Backfill(reservations=None)),
        "rua": Scenario("rua", backfill=Backfill(pick="penalty"), selection=LeastSlowdown()),
        "static": Scenario("static", order=Aging()),
        "pba-pr": Scenario("pba-pr", order=Aging(), resizing=PbaPr()),
        "fcfs-pr": Scenario("fcfs-pr", order=Aging(), resizing=FcfsPr()),
        "max-b-pr": Scenario("max-b-pr", order=Aging(), resizing=MaxBPr()),
        "pba": Scenario("pba", resizing=PbaPr(higher="queued")),
        "fcfs-max-benefit": Scenario("fcfs-max-benefit", resizing=FcfsPr(higher="queued")),
        "max-b": Scenario("max-b", resizing=MaxBPr()),
    },
    "resizing": {"fcfs-pr": FcfsPr, "max-b-pr": MaxBPr, "pba-pr": PbaPr},
    "order": {"aging": Aging, "fcfs": Fcfs, "lxwf": Lxwf, "priority": ByPriority, "sjf": Sjf},
    "selection": {
        "contiguous": Contiguous,
        "equi-distribute": EquiDistribute,
        "few-nodes": FewNodes,
        "first-fit": FirstFit,
        "first-fit-or-continuous": FirstFitOrContinuous,
        "hilbert": HilbertCurve,
        "less-consume": LessConsume,
        "less-consume-threshold": LessConsumeThreshold,
        "multiple-buddies": MultipleBuddies,
        "paging": Paging,
        "rua": LeastSlowdown,
        "submesh": Submesh,
        "submesh-relaxed": SubmeshRelaxed,
        "table-continuous": ContinuousFit,
        "table-first-fit": OnTable,
        "tree": TreeContiguous,
        "tree-relaxed": TreeRelaxed,
    },
    "estimates": {
        "classification": Classification,
        "constant": Constant,
        "hybrid": Hybrid,
        "iterations": Iterations,
        "online": Online,
        "regression": Regression,
        "statistical": Statistical,
        "tsafrir": Tsafrir,
        "user": UserEstimates,
    },
}


def register(name: str, policy: Any) -> None:
    """Register a policy class or a scenario under a name; it replaces an earlier one of that name.

    Raises
    ------
    ConfigError : `policy` is neither a scenario nor a class with typed parameters and the method of
        one of the kinds of policy.
    """
    _known[_kind(name, policy)][name] = policy


@contextmanager
def temporary_registrations() -> Iterator[None]:
    """Context that undoes its registrations at its end; it reads entry points again."""
    kept = {kind: dict(policies) for kind, policies in _known.items()}
    _read_entry_points.cache_clear()
    try:
        yield
    finally:
        _known.update(kept)
        _read_entry_points.cache_clear()


def known(kind: str) -> list[str]:
    """Names of a kind ("scenario", "resizing", "order", "selection", ...), sorted.

    A resizing policy counts as the scenario that adds it to EASY.
    """
    _read_entry_points()
    return sorted({*_known[kind], *(_known["resizing"] if kind == "scenario" else ())})


def find(kind: str, name: str) -> Any:
    """Look up the class (or scenario) of this kind and name.

    Raises
    ------
    ConfigError : no policy of this kind has the name; the message offers the nearest names.
    """
    if name not in _known[kind]:
        _read_entry_points()
    if name in _known[kind]:
        return _known[kind][name]
    if ":" in name:
        return _imported(kind, name)
    if kind == "scenario" and name in _known["resizing"]:
        return Scenario(name, resizing=_known["resizing"][name]())
    raise ConfigError(f"unknown {kind} {name!r}{nearest(name, known(kind))}", field=kind)


def name_of(kind: str, policy: object) -> str:
    """Name under which the class of a policy is registered; ``module:Class`` if it has no name."""
    cls = type(policy)
    names = (name for name, known in _known[kind].items() if known is cls)
    return next(names, f"{cls.__module__}:{cls.__qualname__}")


@cache
def _read_entry_points() -> None:
    from importlib.metadata import entry_points  # a tenth of the start-up time of a command

    for point in entry_points(group=GROUP):
        register(point.name, point.load())


def _imported(kind: str, name: str) -> Any:
    """Class or scenario that ``module:Class`` names."""
    module, _, attribute = name.partition(":")
    try:
        policy = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        missing = isinstance(error, ModuleNotFoundError)
        fix = "; put its folder on PYTHONPATH" if missing else ""
        message = f"{kind} {name!r} cannot be imported: {error}{fix}"
        raise ConfigError(message, field=kind) from None
    found = _kind(name, policy)
    if found == kind:
        return policy
    if (kind, found) == ("scenario", "resizing"):
        return Scenario(name, resizing=policy())
    raise ConfigError(f"{name!r} is of kind {found}, not {kind}", field=kind)


def _kind(name: str, policy: Any) -> str:
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
            if kind == "order" and not isinstance(getattr(policy, "ages", None), bool):
                raise ConfigError(
                    f"{name!r} does not declare whether its order changes with time; give the class"
                    " ages: ClassVar[bool] = False, or True"
                )
            return kind
    # The representation of other objects contains their address.
    plain = isinstance(policy, type) or not callable(policy)
    what = repr(policy) if plain else f"a {type(policy).__name__}"
    raise ConfigError(
        f"{name!r} is {what}, but a policy is a msgspec.Struct or a dataclass with one of the"
        f" methods {', '.join(_KINDS.values())}, or a Scenario"
    )

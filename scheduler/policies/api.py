"""Everything that the author of a policy imports.

A policy is a class of typed parameters, a `msgspec.Struct` or a dataclass, with the method of its
kind:

====================  ===========================  ================================================
kind                  protocol                     method
====================  ===========================  ================================================
resizing policy       `Resizing`                   ``decide(job, view) -> Decision``
scheduling pass       `Scheduling`                 ``schedule(current)``, with a `CurrentPass`
queue order           `QueueOrder`                 ``key(job, now)``; `Prioritised` adds
                                                   ``priority(job, now) -> float``
processor selection   `Selection`                  ``select(space, processors) -> ProcSet | None``
source of estimates   `Estimates`                  ``predictor() -> Predictor | None``
====================  ===========================  ================================================

A class with both ``schedule`` and ``decide`` decides on starts, with sizes, and on resizes, as the
policy ``malleable`` does.

A policy reads jobs and the view and changes neither. ``examples/my_policy.py`` is a resizing policy
in one file, ``examples/my_whole_policy.py`` one that decides on starts as well;
``docs/policies.md`` describes how a policy gets a name.
"""

from scheduler.model.interfaces import Prioritised, QueueOrder, Selection
from scheduler.model.job import Job, JobState
from scheduler.model.job_view import HistoryView, JobView
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.policies.backfill.own_pass import CurrentPass, Scheduling
from scheduler.policies.registry import register
from scheduler.policies.resizing.interface import Decision, Grow, Resizing, Shrink, Stay
from scheduler.policies.scenario import Scenario
from scheduler.predictions.estimates import Estimates, Predictor
from scheduler.state.view import Reservation, View

__all__ = [
    "CurrentPass",
    "Decision",
    "Estimates",
    "Grow",
    "HistoryView",
    "Job",
    "JobState",
    "JobView",
    "Predictor",
    "Prioritised",
    "ProcSet",
    "QueueOrder",
    "Reason",
    "Reservation",
    "Resizing",
    "Scenario",
    "Scheduling",
    "Selection",
    "Shrink",
    "Space",
    "Stay",
    "View",
    "register",
]

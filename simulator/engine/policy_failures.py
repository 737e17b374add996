"""A core whose user-defined policies end the simulation with one error if they fail.

They fail if they raise an exception or return what is invalid.

A service contains such errors and goes on; a researcher wants to know of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from reshape.errors import ReshapeError
from scheduler.core.core import Core
from scheduler.model.machine import Machine
from scheduler.partition.partition import EventOrder
from scheduler.policies.containment import description, line_of
from scheduler.policies.scenario import Scenario


def simulated_core(
    scenario: Scenario,
    machine: Machine,
    others: Mapping[str, Machine] | None = None,
    *,
    kill_at_walltime: bool,
    order: EventOrder = "batch",
    keep_ended: bool,
) -> Core:
    """Return a core for a simulation; the arguments are those of `scheduler.core.core.Core`.

    What drives the core raises ReshapeError if a policy raises an exception: it names the policy,
    its method, the simulated time, and the file and line.
    """
    core: Core | None = None

    def failed(kind: str, policy: object, method: str, error: BaseException) -> str:
        file, line = line_of(policy, error, method)
        at = "" if core is None else f" at {max(core.now, 0.0):g} s of the simulation"
        raise ReshapeError(
            f"{description(kind, policy, method, error)}{at} ({file}:{line}); correct the policy"
        ) from error

    core = Core(
        scenario,
        machine,
        others,
        kill_at_walltime=kill_at_walltime,
        order=order,
        keep_ended=keep_ended,
        report_error=failed,
    )
    return core

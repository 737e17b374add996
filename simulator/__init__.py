"""The trace-driven simulator.

The names in `__all__` are its interface for programs and notebooks; docs/python.md describes it.
They are loaded when they are used first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scheduler import compiled as compiled  # before any module that may be compiled

if TYPE_CHECKING:
    from simulator.experiment.experiment import Experiment as Experiment
    from simulator.experiment.experiment import simulate as simulate
    from simulator.experiment.jobs import Jobs as Jobs
    from simulator.experiment.run import Simulation as Simulation
    from simulator.experiment.sweep import SweepTable as SweepTable
    from simulator.experiment.sweep import sweep as sweep

__all__ = ["Experiment", "Jobs", "Simulation", "SweepTable", "simulate", "sweep"]
_MODULES = {
    "Experiment": "experiment.experiment",
    "Jobs": "experiment.jobs",
    "Simulation": "experiment.run",
    "SweepTable": "experiment.sweep",
    "simulate": "experiment.experiment",
    "sweep": "experiment.sweep",
}


def __getattr__(name: str) -> Any:
    """Load a name of the interface."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"simulator.{_MODULES[name]}"), name)

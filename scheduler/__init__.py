"""The scheduler service and the decision core.

The names in `__all__` are the Python client of a service; docs/client.md describes it. They are
loaded when they are used first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scheduler import compiled as compiled  # before any module that may be compiled

if TYPE_CHECKING:
    from scheduler.client.api.client import Client as Client
    from scheduler.client.api.client import JobHandle as JobHandle

__all__ = ["Client", "JobHandle"]


def __getattr__(name: str) -> Any:
    """Load a name of the interface."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("scheduler.client.api.client"), name)

"""ReSHAPE for Python: MPI applications that expand and contract while they run.

An application needs one line::

    with reshape.application(topology="nearly-square") as app:
        ...

Importing the package loads no MPI, no sockets and no scheduler; `application` is looked up when it
is first used, so that tools that need only sizes or messages start quickly.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from reshape.errors import ReshapeError

if TYPE_CHECKING:
    from reshape.app import application

    __version__: str

__all__ = ["ReshapeError", "__version__", "application"]

if "mpi4py.MPI" in sys.modules:  # the communicators of this program are remembered from here on
    import_module("reshape.ranks.derived").watch()


def __getattr__(name: str) -> object:
    """Look up the names that take long to import: `application` and the installed version."""
    if name == "application":
        import_module("reshape.user_modules").check_found(["redistribution"])
        return import_module("reshape.app").application
    if name == "__version__":
        version: str = import_module("importlib.metadata").version("reshape-mpi")
        globals()["__version__"] = version
        return version
    raise AttributeError(f"module 'reshape' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the lazy attributes too, for completion in an interactive session."""
    return sorted({*globals(), *__all__})

"""Modules of users: those that they name as ``module:Class``, and those that hide a package.

Python looks for modules in the folder of the program first, or in the current directory, then in
PYTHONPATH, and only then where packages are installed. A user's own `redistribution.py` therefore
hides the package of this name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from reshape.errors import ReshapeError


def user_module(name: str) -> ModuleType:
    """Import a module that is installed, on Python's path, or a file in the current folder.

    The current folder comes last: no file in it takes the place of another module.

    Raises
    ------
    ModuleNotFoundError : there is no such module.
    ImportError : the module raises an exception, which the message names with its file and line.
    """
    try:
        return _found(name)
    except (Exception, SystemExit) as error:  # code of a user
        if _is_missing(error, name):
            raise
        from traceback import extract_tb  # late: few commands need it

        said = f"{type(error).__name__}: {error}"
        if not isinstance(error, SyntaxError):  # which says itself where it is
            frames = extract_tb(error.__traceback__)
            place = next(f for f in reversed(frames) if not f.filename.startswith("<frozen "))
            said += f" ({place.filename}:{place.lineno})"
        raise ImportError(said) from error


def _found(name: str) -> ModuleType:
    """Import a module; a file in the current folder comes last."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not _is_missing(error, name):
            raise
    with suppress(OSError):  # the current folder may have been deleted
        folder = os.getcwd()
        if folder not in sys.path:
            sys.path.append(folder)
    return import_module(name)


def _is_missing(error: BaseException, name: str) -> bool:
    """Whether there is no module of a name, and not one that it imports."""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")


_ROOT = Path(__file__).parent.parent


def hiding(package: str, path: Sequence[str]) -> str:
    """Return the file that is found instead of a package of this project; empty if none is.

    Parameters
    ----------
    path : where to look, as in `sys.path`; the first file counts.
    """
    spec = PathFinder.find_spec(package, list(path))
    if spec is None or spec.origin is None:  # found by other means, or a folder without modules
        return ""
    ours = _ROOT / package / "__init__.py"
    return "" if os.path.realpath(spec.origin) == os.path.realpath(ours) else spec.origin


def check_found(packages: Sequence[str]) -> None:
    """Check that packages of this project are found on `sys.path`.

    Raises
    ------
    ReshapeError : a file hides one of them.
    """
    for package in packages:
        if file := hiding(package, sys.path):
            raise ReshapeError(
                f"{file} hides the package {package!r} of reshape: rename it, or run the command "
                "or program from another folder"
            )

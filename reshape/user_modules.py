"""Modules of users, named as ``module:Class`` on a command line or in a file."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType


def user_module(name: str) -> ModuleType:
    """Import a module that is installed, on Python's path, or a file in the current folder.

    The current folder comes last: no file in it takes the place of another module.

    Raises
    ------
    ModuleNotFoundError : there is no such module, or one that it imports is missing; anything else
        that the module raises.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
    with suppress(OSError):  # the current folder may have been deleted
        folder = os.getcwd()
        if folder not in sys.path:
            sys.path.append(folder)
    return import_module(name)

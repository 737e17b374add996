"""Code that runs without the cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector for code that makes many objects and few cycles.

    A simulation makes millions of objects, none of them in a cycle. Collections would take a tenth
    of the time to import a command.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

"""Element types of registered arrays, as texts in declarations, restart points and checkpoints.

`numpy.dtype.str` loses the fields of a structured type and the shape of a sub-array. The text of a
structured type is therefore its list of fields, padding included, as in the header of a .npy file.
A type that its text would not give back is refused.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.format import descr_to_dtype
from numpy.typing import DTypeLike

from reshape.errors import ReshapeError


def element_text(array: str, dtype: DTypeLike) -> str:
    """Describe an element type by a text from which `element_type` makes an equal one.

    Parameters
    ----------
    array : name of the array, for errors.

    Raises
    ------
    ReshapeError : NumPy has no such type, or arrays of it cannot be registered.
    """
    try:
        given = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ReshapeError(f"array {array!r}: NumPy has no dtype {dtype!r}: {error}") from None
    if why := _objection(given):
        raise ReshapeError(f"array {array!r} has dtype {given}: {why}")
    return _text(given)


@lru_cache(maxsize=256)
def element_type(text: str) -> np.dtype[Any]:
    """Return the element type that a text of `element_text` describes."""
    return descr_to_dtype(ast.literal_eval(text)) if text.startswith("[") else np.dtype(text)


def _text(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.names is None else repr(dtype.descr)


def _objection(dtype: np.dtype[Any]) -> str:
    """Why arrays of this type cannot be registered, and what to do; empty if they can."""
    if dtype.hasobject:
        return (
            "Python objects cannot be moved between processes as raw memory; use app.items, or "
            "app.state for small ones"
        )
    if dtype.subdtype is not None:
        base, extents = dtype.subdtype
        return f"an element is an array; register dtype {base} and add axes {extents} to the shape"
    if dtype.itemsize == 0:
        return "its elements have no bytes; give their length, as in 'S8' or 'U8'"
    if issubclass(dtype.type, np.record):
        return (
            "the type numpy.record is not kept; register numpy.dtype((numpy.void, dtype)), and use "
            "local.view(numpy.recarray)"
        )
    try:
        is_kept = element_type(_text(dtype)) == dtype
    except (TypeError, ValueError):
        is_kept = False
    if is_kept:
        return ""
    if dtype.names is not None:
        return (
            "its fields overlap, are not in the order of their offsets, or have a type of another "
            "library; register fields of NumPy's types in order"
        )
    return f"the type is of another library; register dtype 'V{dtype.itemsize}', and use local.view"

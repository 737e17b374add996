"""Local parts of arrays of any shape, for tests of the memory that holds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from redistribution import Layout, Replicated
from redistribution.layout import MemoryOrder
from reshape.data.declarations import Declaration


def part(
    name: str, shape: Sequence[int], dtype: DTypeLike = "f8", order: MemoryOrder = "C"
) -> tuple[Declaration, Layout]:
    """Return a declaration and a layout in which each rank has a local part of this shape."""
    text = np.dtype(dtype).str
    declaration = Declaration(name, "replicated", tuple(shape), (), text, order)
    return declaration, Replicated(tuple(shape), 16)

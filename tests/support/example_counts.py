"""Numbers of Hypothesis examples that follow the profile: all in `thorough`, a fifth in `quick`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

_ALL = 100  #: examples of the profile `thorough`, Hypothesis's default
_LEAST = 20


def examples(count: int, **options: Any) -> settings:
    """Return settings with `count` examples in the profile `thorough`, and fewer in `quick`.

    Parameters
    ----------
    count : number of examples if all are run.
    options : further options of `hypothesis.settings`.
    """
    share = settings().max_examples / _ALL
    return settings(max_examples=max(min(count, _LEAST), round(count * share)), **options)


def repetitions(count: int) -> int:
    """Return `count` in the profile `thorough`, and a third of it in `quick`."""
    return count if settings().max_examples == _ALL else count // 3

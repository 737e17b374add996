"""Claims of papers: verdicts, and the tables that set the paper's numbers beside ours.

A claim is a statement of a paper that a study checks. Its verdict is `HELD`, `NOT_HELD`,
`OPPOSITE` or `OPEN`; the rules that give a verdict are the functions of this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan
from typing import Any

import msgspec

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval

HELD, NOT_HELD, OPPOSITE, OPEN = "held", "not held", "opposite", "open"


class Claim(msgspec.Struct, frozen=True):
    """A statement of a paper, the paper's value, ours and the verdict.

    Parameters
    ----------
    text : the statement.
    ours : what the study found, a number with its interval or a text.
    paper : the value that the paper gives; None if it gives none.
    verdict : one of the four, which a remark may follow after a colon; "" if none is given.
    where : section of the paper, or name of the trace.
    remark : a further value of ours.
    id : short name that is unique in a report, such as "3.3.2-BB".
    """

    text: str
    ours: Interval | str
    paper: float | str | None = None
    verdict: str = ""
    where: str = ""
    remark: str = ""
    id: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the claim held; None if the verdict is open."""
        return None if self.verdict == OPEN else self.verdict == HELD


def by_sign(ours: Interval) -> str:
    """Verdict on the claim that a number is above 0.

    Held if the whole interval is above 0, opposite if it is below 0, open otherwise.
    """
    if ours.low > 0:
        return HELD
    return OPPOSITE if ours.high < 0 else OPEN


def by_coverage(ours: Interval, value: float | None) -> str:
    """Verdict on the claim that a number has this value.

    Held if the interval contains the value, open if a single run gives no interval.
    """
    if isnan(ours.low):
        return OPEN
    return HELD if value is not None and ours.low <= value <= ours.high else NOT_HELD


def by_range(ours: Interval, low: float, high: float = inf) -> str:
    """Verdict on the claim that a number lies in a range.

    Held if the whole interval is in the range, opposite if all of it is outside, open otherwise or
    if a single run gives no interval.
    """
    if isnan(ours.low):
        return OPEN
    if low <= ours.low and ours.high <= high:
        return HELD
    return OPPOSITE if ours.high < low or ours.low > high else OPEN


def by_condition(holds: bool | None) -> str:
    """Verdict on a condition; open if it is None, that is if too little was run to evaluate it."""
    if holds is None:
        return OPEN
    return HELD if holds else NOT_HELD


def by_ratio(ours: Interval, claimed: float) -> str:
    """Verdict on the claim that a ratio is below 1, with a remark on how it compares.

    Parameters
    ----------
    claimed : the ratio that the paper gives, below 1.
    """
    if not ours.high < 1:
        return f"{NOT_HELD}: worse" if ours.low > 1 else f"{NOT_HELD}: no clear gain"
    if ours.high < claimed:
        return f"{HELD}: a larger gain"
    return HELD if ours.low <= claimed else "a smaller gain"


def as_table(claims: Sequence[Claim], columns: Mapping[str, str]) -> str:
    """Write claims as a table.

    Parameters
    ----------
    columns : name of a column -> attribute of the claims; the headings are the names in capitals.
    """
    headings = [name.upper() for name in columns]
    rows = [[_cell(getattr(claim, field)) for field in columns.values()] for claim in claims]
    numbers = {
        heading
        for heading, field in zip(headings, columns.values(), strict=True)
        if all(not isinstance(getattr(claim, field), str) for claim in claims)
    }
    return render(Table(headings, rows, left=frozenset(headings) - numbers))


def as_data(claims: Sequence[Claim], keys: Mapping[str, str]) -> list[dict[str, Any]]:
    """Plain data of claims: for each a mapping with these keys (key -> attribute)."""
    return [
        {key: msgspec.to_builtins(getattr(claim, field)) for key, field in keys.items()}
        for claim in claims
    ]


def as_records(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Plain data of claims in the form that all studies share.

    Returns
    -------
    For each claim `id`, `text`, `paper`, `ours`, `low`, `high` (None where there is no number) and
    `verdict`, which is `HELD`, `OPPOSITE` or `OPEN`.

    Raises
    ------
    ValueError : a verdict is none of the three, or an id is missing or not unique.
    """
    records = []
    for claim in claims:
        if claim.verdict not in (HELD, OPPOSITE, OPEN):
            raise ValueError(f"claim {claim.id}: {claim.verdict!r} is not held, opposite or open")
        ours = claim.ours
        numbers = (ours.mean, ours.low, ours.high) if isinstance(ours, Interval) else (ours,) * 3
        shown = [None if isinstance(n, float) and isnan(n) else n for n in numbers]
        if isinstance(ours, str):
            shown[1:] = [None, None]
        records.append(
            {
                "id": claim.id,
                "text": claim.text,
                "paper": claim.paper,
                "ours": shown[0],
                "low": shown[1],
                "high": shown[2],
                "verdict": claim.verdict,
            }
        )
    ids = [claim.id for claim in claims]
    if "" in ids or len(set(ids)) < len(ids):
        raise ValueError("each claim needs an id of its own")
    return records


def with_limits(interval: Interval) -> str:
    """Write a mean and the limits of its interval, which may lie unequally around it."""
    return f"{interval.mean:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def plus_minus(interval: Interval, form: str = ".1f") -> str:
    """Write a mean and half the width of its interval, which is left out if there is none.

    Parameters
    ----------
    form : format of the mean; the half has the same number of digits and no sign.
    """
    if isnan(interval.half):
        return f"{interval.mean:{form}}"
    return f"{interval.mean:{form}} ± {interval.half:{form.removeprefix('+')}}"


def _cell(value: Interval | float | str | None) -> str:
    if isinstance(value, Interval):
        return with_limits(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:g}"

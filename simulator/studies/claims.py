"""Claims of papers: verdicts, and the tables that set the paper's numbers beside ours.

A claim is a statement of a paper that a study checks. Its verdict is `HELD`, `NOT_HELD`,
`OPPOSITE` or `OPEN`; the rules that give a verdict are the functions of this module. In the data of
a report all studies have the same form of a claim, which `record` makes: its verdict is `HELD`,
`OPPOSITE` or `OPEN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan
from typing import Any

import msgspec

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval

HELD, NOT_HELD, OPPOSITE, OPEN = "held", "not held", "opposite", "open"
NO_CLEAR_GAIN, SMALLER_GAIN = f"{NOT_HELD}: no clear gain", "a smaller gain"
#: Keys of a claim in the data of a report.
KEYS = ("id", "text", "paper", "ours", "low", "high", "verdict")


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
    number : ours as a number, if `ours` is a text; None: there is none.
    outcome : the verdict as `HELD`, `OPPOSITE` or `OPEN`; "": it follows from `verdict`.
    """

    text: str
    ours: Interval | str
    paper: float | str | None = None
    verdict: str = ""
    where: str = ""
    remark: str = ""
    id: str = ""
    number: float | None = None
    outcome: str = ""

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
        return f"{NOT_HELD}: worse" if ours.low > 1 else NO_CLEAR_GAIN
    if ours.high < claimed:
        return f"{HELD}: a larger gain"
    return HELD if ours.low <= claimed else SMALLER_GAIN


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


def outcome_of(verdict: str) -> str:
    """Verdict as `HELD`, `OPPOSITE` or `OPEN`.

    A value that our interval does not contain, and a condition that is not met, are opposite; a
    ratio below 1 is held whatever its amount.

    Raises
    ------
    ValueError : it is no verdict of this module.
    """
    if verdict in ("", NO_CLEAR_GAIN):
        return OPEN
    if verdict == SMALLER_GAIN:
        return HELD
    first = verdict.partition(":")[0]
    if first not in (HELD, NOT_HELD, OPPOSITE, OPEN):
        raise ValueError(f"{verdict!r} is not held, opposite or open")
    return OPPOSITE if first == NOT_HELD else first


def record(
    id: str,
    text: str,
    paper: float | str | None,
    ours: tuple[float | None, float | None, float | None],
    verdict: str,
    **more: Any,
) -> dict[str, Any]:
    """Data of a claim, in the form that all studies share.

    Parameters
    ----------
    ours : our value and the limits of its interval; None or nan where there is no number.
    verdict : `HELD`, `OPPOSITE` or `OPEN`.
    more : further keys of the study.

    Returns
    -------
    a mapping with `KEYS`, then the further keys

    Raises
    ------
    ValueError : the verdict is none of the three, or a further key is one of `KEYS`.
    """
    if verdict not in (HELD, OPPOSITE, OPEN):
        raise ValueError(f"claim {id}: {verdict!r} is not held, opposite or open")
    if more.keys() & set(KEYS):
        raise ValueError(f"claim {id}: {', '.join(sorted(more.keys() & set(KEYS)))} is given twice")
    numbers = [None if n is None or not isfinite(n) else float(n) for n in ours]
    values = (id, text, paper, *numbers, verdict)
    return dict(zip(KEYS, values, strict=True)) | more


def as_records(
    claims: Sequence[Claim], more: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Data of claims in the form of `record`.

    Parameters
    ----------
    more : further keys of the study -> attribute of the claims.

    Raises
    ------
    ValueError : a verdict is none of this module, or an id is missing or not unique.
    """
    ids = [claim.id for claim in claims]
    if "" in ids or len(set(ids)) < len(ids):
        raise ValueError("each claim needs an id of its own")
    return [
        record(
            claim.id,
            claim.text,
            claim.paper,
            (claim.ours.mean, claim.ours.low, claim.ours.high)
            if isinstance(claim.ours, Interval)
            else (claim.number, None, None),
            claim.outcome or outcome_of(claim.verdict),
            **{
                key: msgspec.to_builtins(getattr(claim, field))
                for key, field in (more or {}).items()
            },
        )
        for claim in claims
    ]


def numbered(claims: Sequence[Claim]) -> list[Claim]:
    """Claims with ids: their sections or traces, and a number."""
    return [
        msgspec.structs.replace(claim, id=f"{claim.where}-{number}")
        for number, claim in enumerate(claims, 1)
    ]


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

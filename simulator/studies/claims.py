"""What the reports of studies share: claims of papers with verdicts, results by key, and tables.

A claim is a statement of a paper that a study checks. A function of this module compares it with an
interval and gives the verdict: `HELD` if the whole interval is on the side of the claim, `OPPOSITE`
if none of it is, `OPEN` if part of it is, or if too little was run for an interval. A number that a
run determines without any chance is an interval of no width (`exactly`).

`python -m simulator.studies.claims FILE...` prints the verdicts on the claims of all papers in one
table; the files are the report.json of studies, in the order of the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite, isnan, nan, nextafter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import yaml

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean_interval
from simulator.study.study import SEED, Parameters, Report, Row, grid_points

HELD, OPPOSITE, OPEN = VERDICTS = "held", "opposite", "open"
NOT_RUN: Final = Interval(nan, nan, nan, 0)
#: Columns of a table of claims -> attribute of `Claim`.
COLUMNS: Final = {
    "PART": "part", "WHERE": "where", "CLAIM": "text", "PAPER": "paper", "OURS": "ours",
    "REMARK": "remark", "VERDICT": "verdict",
}  # fmt: skip


class Claim(msgspec.Struct, frozen=True):
    """A statement of a paper, the paper's value, ours and the verdict.

    Parameters
    ----------
    text : the statement.
    ours : what the study found.
    paper : the value that the paper gives; None if it gives none.
    verdict : `HELD`, `OPPOSITE` or `OPEN`.
    part : paper and its table, figure or section, such as "PRIO table 1".
    where : trace, mix or section.
    remark : a further value.
    id : short name that is unique in a report; "": its part and a number.
    """

    text: str
    ours: Interval
    paper: float | str | None = None
    verdict: str = OPEN
    part: str = ""
    where: str = ""
    remark: str = ""
    id: str = ""


def exactly(value: float | None) -> Interval:
    """Interval of a number without chance; without a number `NOT_RUN`."""
    return NOT_RUN if value is None else Interval(value, value, value, 1)


def by_range(ours: Interval, low: float = -inf, high: float = inf) -> str:
    """Verdict on the claim that a number lies in a range, limits included."""
    if isnan(ours.low):
        return OPEN
    if low <= ours.low and ours.high <= high:
        return HELD
    return OPPOSITE if ours.high < low or ours.low > high else OPEN


def by_sign(ours: Interval) -> str:
    """Verdict on the claim that a number is above 0."""
    return by_range(ours, low=nextafter(0, 1))


def by_coverage(ours: Interval, value: float | None) -> str:
    """Verdict on the claim that a number has this value.

    Held if the interval contains it, opposite if it does not or if there is no value.
    """
    if isnan(ours.low):
        return OPEN
    return HELD if value is not None and ours.low <= value <= ours.high else OPPOSITE


def declared(
    groups: Iterable[Mapping[str, Any]],
    measures: Mapping[str, Callable[..., Interval]],
    published: Mapping[str, Callable[..., float]] | None = None,
    **words: str,
) -> list[Claim]:
    """Judge the claims that the file of a paper declares.

    A group has a `part` and `claims`, which are made for each point of `each`: a grid (name ->
    values), or a list of points. Texts of a claim, the arguments of its measure included, name the
    values of the point as ``{name}``. The fields of a claim are the parameters of `_declared`.

    Parameters
    ----------
    measures : name -> function of the other elements of a claim's field `ours`.
    published : the same measures of the paper's own numbers, for claims without a value.
    words : further values of each point.
    """
    return [
        _declared(words | point, measures, published or {}, group["part"], **claim)
        for group in groups
        for point in _points(group.get("each", {}))
        for claim in group["claims"]
    ]


def _points(each: Any) -> list[Parameters]:
    return each if isinstance(each, list) else grid_points(each)


def _declared(
    point: Parameters,
    measures: Mapping[str, Callable[..., Interval]],
    published: Mapping[str, Callable[..., float]],
    part: str,
    text: str,
    ours: Sequence[Any] = (),
    paper: Any = None,
    above: float | None = None,
    below: float | None = None,
    within: Sequence[Any] = (-inf, inf),
    equals: float | str | None = None,
    where: str = "",
    id: str = "",
) -> Claim:
    """Judge a claim at a point.

    Parameters
    ----------
    ours : name of the measure, and its arguments; none: not run.
    paper : the paper's value, by values of the point if it is a mapping; else that of the point.
    above, below, within : range of our number, `above` and `below` without the limit; a limit of
        `within` may be "{paper}".
    equals : number that ours has, or "paper".
    """
    paper = point.get("paper") if paper is None else paper
    while isinstance(paper, Mapping):
        paper = next((paper[value] for value in point.values() if value in paper), None)
    words = {**point, "paper": paper}
    name, *arguments = [_filled(each, words) for each in ours] or [""]
    measured = measures[name](*arguments) if name else NOT_RUN
    if paper is None and name in published:
        paper = round(published[name](*arguments), 2)
    if equals is not None:
        verdict = by_coverage(measured, paper if equals == "paper" else float(equals))
    else:
        low, high = (_filled(limit, words) for limit in within)
        low = low if above is None else nextafter(above, inf)
        high = high if below is None else nextafter(below, -inf)
        verdict = by_range(measured, low, high)
    text, where, id = (_filled(value, words) for value in (text, where, id))
    return Claim(text, measured, paper, verdict, part, where, id=id)


def _filled(value: Any, words: Mapping[str, Any]) -> Any:
    """Put values into a text; a text that is only ``{name}`` becomes the value itself."""
    if not isinstance(value, str):
        return value
    whole = value[1:-1] if value.startswith("{") else ""
    return words[whole] if whole in words else value.format_map(words)


def as_table(claims: Sequence[Claim]) -> str:
    """Write claims as a table; columns in which all claims are empty are left out."""
    columns = {
        heading: cells
        for heading, field in COLUMNS.items()
        if any(cells := [_cell(getattr(claim, field)) for claim in claims])
    }
    numbers = {
        heading
        for heading in columns
        if all(not isinstance(getattr(claim, COLUMNS[heading]), str) for claim in claims)
    }
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return render(Table([*columns], rows, left=frozenset(columns) - numbers))


def as_records(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Data of claims: the attributes of `Claim`, with `ours`, `low` and `high` as numbers or None.

    Raises
    ------
    ValueError : a verdict is none of this module, or an id is not unique.
    """
    ids = [claim.id or f"{claim.part}, {number}" for number, claim in enumerate(claims, 1)]
    if len(set(ids)) < len(ids):
        raise ValueError("each claim needs an id of its own")
    for id_, claim in zip(ids, claims, strict=True):
        if claim.verdict not in VERDICTS:
            raise ValueError(f"claim {id_}: {claim.verdict!r} is not held, opposite or open")
    return [
        {"id": id_, "text": claim.text, "paper": claim.paper}
        | dict(zip(("ours", "low", "high"), plain(claim.ours).values(), strict=True))
        | {name: getattr(claim, name) for name in ("verdict", "part", "where", "remark")}
        for id_, claim in zip(ids, claims, strict=True)
    ]


def with_limits(interval: Interval) -> str:
    """Write a mean and the limits of its interval, which may lie unequally around it."""
    if isnan(interval.low) or interval.low == interval.high:
        return "not run" if isnan(interval.mean) else f"{interval.mean:.2f}"
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


T = TypeVar("T")


def paper(study: str) -> SimpleNamespace:
    """Numbers of the paper of a study; each field of its file is an attribute."""
    file = Path(__file__).parent / "papers" / f"{study}.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml a tenth of the time
    return SimpleNamespace(**yaml.load(file.read_text(), loader))


def keyed(rows: Mapping[str, T]) -> dict[tuple[str, ...], T]:
    """Rows of a table by the words of their names: ``CTC high`` is ("CTC", "high")."""
    return {tuple(name.split()): row for name, row in rows.items()}


#: A tuple of parts, or a name.
Key: TypeAlias = Any


class StudyResults:
    """Results of runs by key; those of one key are in the order of the seeds.

    Parameters
    ----------
    key : gives the key of a run from its parameters.
    pairs : parameter by which runs of two keys are paired.
    """

    def __init__(
        self, rows: Sequence[Row], key: Callable[[Parameters], Key], pairs: str = SEED
    ) -> None:
        self.rows: dict[Key, list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.parameters.get(pairs, 0)):
            self.rows.setdefault(key(dict(row.parameters)), []).append(row)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys."""
        return iter(self.rows)

    def parts(self, *start: Any) -> list[Any]:
        """What follows in the keys that begin so: all first parts without a start."""
        n = len(start)
        return list(dict.fromkeys(key[n] for key in self if key[:n] == start))

    def values(self, key: Key, metric: str) -> list[float]:
        """A metric of the runs of a key, in the order of the seeds; empty if there are none."""
        return [float(row.result[metric]) for row in self.rows.get(key, ())]

    def interval(self, key: Key, metric: str) -> Interval:
        """Mean of a metric with its interval; nan if there are no runs."""
        return mean_interval(self.values(key, metric))

    def difference(self, metric: str, more: Key, less: Key) -> Interval:
        """Difference of two keys, seed by seed; nan if one was not run."""
        return mean_difference(self.values(more, metric), self.values(less, metric))

    def reductions(self, metric: str, key: Key, base: Key) -> list[float]:
        """How much smaller a metric is than that of another key, per cent, seed by seed."""
        pairs = zip(self.values(key, metric), self.values(base, metric), strict=False)
        return [100 * (1 - value / reference) if reference else 0.0 for value, reference in pairs]

    def data(
        self,
        names: Sequence[str],
        metrics: Iterable[str],
        more: Callable[[Key], dict[str, Any]] = lambda key: {},
    ) -> list[dict[str, Any]]:
        """Return, for JSON, the parts of each key by name, more of it, and the metrics as `plain`.

        Parameters
        ----------
        names : of the parts of a key.
        """
        return [
            dict(zip(names, key, strict=True))
            | more(key)
            | {metric: plain(self.interval(key, metric)) for metric in metrics}
            for key in self
        ]


def quotients(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratios of paired values; values without a partner are left out."""
    return [a / b for a, b in zip(above, below, strict=False)]


def mean_difference(more: Sequence[float], less: Sequence[float]) -> Interval:
    """Mean of `more` minus `less`, pair by pair; values without a partner are left out."""
    return mean_interval([a - b for a, b in zip(more, less, strict=False)])


def plain(interval: Interval) -> dict[str, float | None]:
    """Mean and limits for JSON; None for a number that does not exist."""
    values = {name: getattr(interval, name) for name in ("mean", "low", "high")}
    return {name: float(value) if isfinite(value) else None for name, value in values.items()}


def beside(ours: Interval, paper: float | None, form: str = ".1f") -> str:
    """Cell of a table: our mean and half of its interval, and the paper's number in brackets."""
    text = plus_minus(ours, form)
    return text if paper is None else f"{text} ({paper:g})"


def titled(title: str, head: Sequence[str], lines: Sequence[Sequence[str]], names: int = 1) -> str:
    """Write a table below its title; "" without lines.

    Parameters
    ----------
    names : number of the first columns that hold names, not numbers.
    """
    table = Table([*head], [[*line] for line in lines], left=frozenset(head[:names]))
    return f"{title}\n{render(table)}" if lines else ""


def crossed(
    title: str,
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    columns: Mapping[str, Any],
    cell: Callable[[Any, Any], str],
) -> str:
    """Write a table below its title: a row for each key, and a cell for each of its values.

    Parameters
    ----------
    names : headings of the parts of a key.
    columns : heading -> what it stands for.
    cell : text of a key and a column.
    """
    lines = [[*map(str, key), *(cell(key, each) for each in columns.values())] for key in rows]
    return titled(title, [*names, *columns], lines, len(names))


def reported(
    parts: Iterable[str],
    data: Mapping[str, Any],
    claims: Sequence[Claim],
    files: Mapping[str, bytes] | None = None,
    title: str = "",
) -> Report:
    """Report of some parts, those that are not empty, and of the verdicts on claims.

    Parameters
    ----------
    title : of the table of claims.
    """
    judged = f"{title}\n{as_table(claims)}" if title else as_table(claims)
    text = "\n\n".join(part for part in (*parts, judged) if part)
    return Report(text, {**data, "claims": as_records(claims)}, files or {})


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a table in Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def summary(claims: Iterable[Mapping[str, Any]]) -> str:
    """Table of the number of claims and verdicts by part of a paper, as Markdown.

    Parameters
    ----------
    claims : as a report.json has them, see `as_records`.
    """
    counts: dict[str, dict[str, int]] = {}
    for claim in claims:
        counts.setdefault(claim["part"], dict.fromkeys(VERDICTS, 0))[claim["verdict"]] += 1
    counts["all"] = {name: sum(own[name] for own in counts.values()) for name in VERDICTS}
    rows = [[part, sum(own.values()), *own.values()] for part, own in counts.items()]
    return markdown(["part of a paper", "claims", *VERDICTS], rows)


if __name__ == "__main__":
    reports = [json.loads(Path(name).read_bytes()) for name in sys.argv[1:]]
    print(summary(claim for report in reports for claim in report["claims"]))

"""The claims of GUIM 7.6, each against the thesis' own tables and against our runs.

A claim is that a number is above 0: a difference of two strategies, or how far a ratio exceeds the
one that the text gives. Ours is taken seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from simulator.results.statistics import mean_interval
from simulator.studies.claims import OPEN, Claim, by_sign, exactly
from simulator.studies.papers import keyed, paper
from simulator.studies.results import Key, StudyResults
from simulator.studies.sharing.report import centre

PAPER: Final = paper("rua")
#: Our metric -> `number` of the thesis' table, its `title` and its `rows`.
TABLES: Final = PAPER.tables
#: (metric, centre, mix) -> numbers that the text gives of figure 7.12, by strategy.
TEXT: Final = keyed(PAPER.text)


class Statement(msgspec.Struct, frozen=True):
    """A sentence of the text about two strategies.

    Parameters
    ----------
    text : the sentence; ``{metric}`` stands for the title of the metric.
    metrics : for each of them it is a claim.
    more, less : strategies; `more` has the larger number.
    ratio : how many times it is as large, at least; 0: any difference.
    within : the difference is less than this share, in percent; 0: no such limit.
    only : (centre, mix) pairs that the text speaks of; empty: all.
    """

    text: str
    metrics: tuple[str, ...]
    more: str
    less: str
    ratio: float = 0.0
    within: float = 0.0
    only: tuple[tuple[str, str], ...] = ()

    def amount(self, more: float, less: float) -> float:
        """Number that is above 0 if the sentence is right."""
        if self.within:
            return self.within - abs(100 * (more / less - 1)) if less else float("-inf")
        return round(more - (self.ratio or 1.0) * less, 6)  # sums of one value differ by rounding


HIGH: Final = (("CTC", "high"), ("SDSC", "high"))
HIGH_AND_MEDIUM: Final = (*HIGH, ("CTC", "med"), ("SDSC", "med"))
BSLD: Final = ("bsld_p95", "bsld_mean")
WAIT: Final = ("wait_p95_s", "wait_mean_s")
PENALISED: Final = ("penalised_p95_pct", "penalised_mean_pct")
KILLED: Final = ("killed",)
CPUS: Final = ("cpus_p95",)
STATEMENTS: Final = (
    Statement("LC has a smaller {metric} than LCT=1 (7.6.1)", BSLD, "LCT=1", "LC"),
    Statement("LC has a larger {metric} than FF (7.6.1)", BSLD, "LC", "FF"),
    Statement("{metric} falls from LCT=1 to LCT=1.5 (7.6.1)", BSLD, "LCT=1", "LCT=1.5"),
    Statement("LCT=1 has a larger {metric} than LC (7.6.1)", WAIT, "LCT=1", "LC"),
    Statement("LC reduces {metric} against FF (7.6.1)", PENALISED, "FF", "LC"),
    Statement("LCT=1 reduces {metric} against FF (7.6.1)", PENALISED, "FF", "LCT=1"),
    Statement("LCT=1.5 reduces {metric} against FF (7.6.1)", PENALISED, "FF", "LCT=1.5"),
    Statement("{metric} grows from LCT=1 to LCT=1.5 (7.6.1)", PENALISED, "LCT=1.5", "LCT=1"),
    Statement("LC reduces {metric} against FF (7.6.1)", KILLED, "FF", "LC"),
    Statement(
        "LC reduces {metric} by a factor of 4 (7.6.1)", KILLED, "FF", "LC", 4.0,
        only=HIGH_AND_MEDIUM,
    ),
    Statement("LCT=1.15 halves {metric} (7.6.1)", KILLED, "FF", "LCT=1.15", 2.0),
    Statement("LCT=1.5 halves {metric} (7.6.1)", KILLED, "FF", "LCT=1.5", 2.0),
    Statement("{metric}: LC uses more than LCT=1 (7.6.1)", CPUS, "LC", "LCT=1"),
    Statement("{metric}: they grow from LCT=1 to LCT=1.5 (7.6.1)", CPUS, "LCT=1.5", "LCT=1"),
    Statement("RUA has a slightly larger {metric} than FF (7.6.2)", BSLD[:1], "RUA", "FF"),
    Statement(
        "{metric} of RUA and FF differ by less than 5 % (7.6.2)", BSLD[:1], "RUA", "FF", within=5.0
    ),
    Statement("RUA has a smaller {metric} than LC (7.6.2)", BSLD[:1], "LC", "RUA"),
    Statement("RUA has a smaller {metric} than LC (7.6.2)", WAIT[:1], "LC", "RUA"),
    Statement("RUA reduces {metric} against FF (7.6.2)", KILLED, "FF", "RUA"),
    Statement(
        "RUA reduces {metric} by a factor of 5 (7.6.2)", KILLED, "FF", "RUA", 5.0, only=HIGH[1:]
    ),
    Statement(
        "RUA reduces {metric} by a factor of 3 (7.6.2)", KILLED, "FF", "RUA", 3.0, only=HIGH[:1]
    ),
    Statement("RUA reduces {metric} against FF (7.6.2)", PENALISED[:1], "FF", "RUA"),
    Statement(
        "RUA halves {metric} (7.6.2)", PENALISED[:1], "FF", "RUA", 2.0, only=(("SDSC", "med"),)
    ),
    Statement("RUA reduces {metric} against LC (7.6.2)", PENALISED[:1], "LC", "RUA"),
    Statement("RUA reduces {metric} against LC (7.6.2)", KILLED, "LC", "RUA"),
)  # fmt: skip


def printed(metric: str, key: Key) -> float | None:
    """Number of the thesis' table for a trace, mix and strategy; None if it has none."""
    trace, mix, strategy = key
    row = TABLES[metric]["rows"].get(f"{centre(trace)} {mix}", ())
    return dict(zip(PAPER.columns, row, strict=False)).get(strategy)


def judge(results: StudyResults) -> list[Claim]:
    """Judge the sentences of GUIM 7.6 for each trace and mix that they speak of.

    The remark of a claim is the verdict on the thesis' own numbers.
    """
    return [
        _claim(results, statement, metric, trace, mix)
        for statement in STATEMENTS
        for metric in statement.metrics
        for trace in results.parts()
        for mix in results.parts(trace)
        if not statement.only or (centre(trace), mix) in statement.only
    ]


def _claim(results: StudyResults, statement: Statement, metric: str, trace: str, mix: str) -> Claim:
    words = statement.text.format(metric=TABLES[metric]["title"])
    with_rua = "RUA" in words  # figure 7.12 is lost; the text of 7.6.2 has some of its numbers
    text = TEXT.get((metric, centre(trace), mix), {}) if with_rua else {}

    def value(of: Callable[[str], list[float]]) -> list[float]:
        pairs = zip(of(statement.more), of(statement.less), strict=False)
        return [statement.amount(more, less) for more, less in pairs]

    def thesis(strategy: str) -> list[float]:
        number = text.get(strategy) if text else printed(metric, (trace, mix, strategy))
        return [] if number is None else [number]

    ours = mean_interval(value(lambda strategy: results.values((trace, mix, strategy), metric)))
    paper = next(iter(value(thesis)), None)
    return Claim(
        words,
        ours,
        None if paper is None else round(paper, 3),
        by_sign(ours),
        "GUIM figure 7.12" if with_rua else f"GUIM table {TABLES[metric]['number']}",
        f"{trace}, {mix}",
        f"tables: {by_sign(exactly(paper)) if paper else OPEN}",
    )

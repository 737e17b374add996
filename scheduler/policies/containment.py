"""Containment: an error in a user-defined policy does not end the program that runs it.

`scheduler.policies.scenarios.contained` replaces queue orders, selections and sources of estimates
that do not belong to this package by the classes here. These give the policy jobs that it can only
read, and copies of what else it could change, and check each result. If the policy raises an
exception or returns an invalid result, the error is reported and a fallback is used instead:

==================  ================================================================================
queue order         the job is sorted behind all jobs that have a key, by the time at which it came
                    to the queue; if the order fails for every job, this is first come, first served
processor           there is no acceptable place, and the job waits; a selection that declares
selection           `anywhere` must always find one, so that first fit chooses instead
predictor           the user's estimate, which is the walltime
scheduling pass     jobs start in queue order while they fit (first come, first served)
==================  ================================================================================

All valid keys of an order have the shape of its first one (a number, a pair of numbers, ...), so
that any two can be compared. The same events lead to the same decisions as long as the policy's
code is the same. Resizing policies and scheduling passes are called in one place each, where a
`Guard` contains their errors: the job keeps its size, and jobs start as above.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from linecache import getline
from math import inf, isfinite
from numbers import Integral, Real
from types import FrameType
from typing import Any, TypeAlias, TypeVar

import msgspec

from reshape.errors import ReshapeError
from scheduler.model.events import ResizePoint
from scheduler.model.groups import leaving_groups
from scheduler.model.interfaces import QueueOrder, Selection
from scheduler.model.job import Job
from scheduler.model.job_view import shown
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE, Space
from scheduler.predictions.estimates import Estimates
from scheduler.predictions.predictor import Predictor

#: Function that reports an error of a policy. It takes the kind of the policy (as in the registry),
#: the policy, the name of the method that failed and the exception, and returns one sentence.
ErrorReporter: TypeAlias = Callable[[str, object, str, BaseException], str]
Result = TypeVar("Result")

_WORDS = {
    "resizing": "the resizing policy",
    "order": "the queue order",
    "selection": "the processor selection",
    "estimates": "the predictor",
    "scheduling": "the scheduling pass",
    "assignment": "the task assignment policy",
}


def description(kind: str, policy: object, method: str, error: BaseException) -> str:
    """One sentence on an error of a policy; an `ErrorReporter` for drivers that keep no log."""
    import traceback  # late: a simulation without errors does not need it

    said = " ".join(traceback.format_exception_only(error)[-1].split())
    said = said.encode(errors="replace").decode()
    return f"{_title(kind, policy)} failed in {method} with {said}"


def _title(kind: str, policy: object) -> str:
    """Name a policy in a sentence."""
    return f"{_WORDS[kind]} {type(policy).__module__}:{type(policy).__qualname__}"


def running_policy(frame: FrameType | None) -> str:
    """Name the policy that a stack is in, with its method and line; "": none.

    Parameters
    ----------
    frame : the innermost frame of the stack, perhaps that of another thread.
    """
    lines: dict[str, str] = {}  # innermost line of each module
    while frame is not None:
        if frame.f_code is Guard.call.__code__:
            guard, method = frame.f_locals["self"], frame.f_locals["method"]
            line = lines.get(type(guard.policy).__module__, "elsewhere")
            return f"{_title(guard.kind, guard.policy)} in {method} ({line})"
        line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        lines.setdefault(str(frame.f_globals.get("__name__")), line)
        frame = frame.f_back
    return ""


def line_of(policy: object, error: BaseException, method: str) -> tuple[str, int]:
    """Find file and line of the policy's code where an error was raised; its method if elsewhere.

    The innermost line of the policy's own file counts, not that of a library it calls.
    """
    import traceback

    function = getattr(type(policy), method, None)
    code = None if function is None else getattr(inspect.unwrap(function), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    if code is None:  # the method is not a function in Python
        return frames[-1].filename, frames[-1].lineno or 0
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return code.co_filename, (lines[-1] if lines else None) or code.co_firstlineno


def failure(
    kind: str, policy: object, method: str, error: BaseException, at: str = ""
) -> ReshapeError:
    """Return the error that ends what cannot go on without the policy; it names file and line.

    Parameters
    ----------
    at : when it was, for the text.
    """
    file, line = line_of(policy, error, method)
    place = f"{file}:{line}"
    if not os.path.exists(file):  # a cell of a notebook, or text that a program has executed
        place = f"line {line} of its cell: {getline(file, line).strip()}"
    sentence = description(kind, policy, method, error)
    return ReshapeError(f"{sentence}{at} ({place}); correct the policy")


def plain_value(value: object) -> int | float | str:
    """Return a fact or a size as it is recorded: numbers of NumPy become those of Python.

    Raises
    ------
    TypeError : it is neither a number nor a text.
    ValueError : it is infinite or no number, which JSON cannot hold.
    """
    if type(value) in (int, str):
        return value  # type: ignore[return-value]
    if isinstance(value, Integral):
        return int(value)
    if not isinstance(value, Real):
        raise TypeError(f"{value!r} is neither a number nor a text")
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number


class Guard:
    """The calls of a user-defined policy: each has the result of the policy, or a fallback.

    Parameters
    ----------
    kind : kind of the policy, as in the registry.
    policy : the policy.
    report : function to call for each error; None lets the errors out.
    """

    def __init__(self, kind: str, policy: object, report: ErrorReporter | None) -> None:
        self.kind, self.policy, self._report = kind, policy, report

    def call(
        self, method: str, call: Callable[[], Result], fallback: Callable[[str], Result]
    ) -> Result:
        """Return the result of a call, or of the fallback if the call fails.

        Parameters
        ----------
        method : name of the method of the policy that is called, for the report.
        call : calls the policy, checks the result, and raises an exception if it is invalid.
        fallback : takes the sentence of the report.
        """
        try:
            return call()
        except (Exception, SystemExit) as error:
            if self._report is None:
                raise
            sentence = self._report(self.kind, self.policy, method, error)
        return fallback(sentence)


class ContainedOrder(QueueOrder):
    """Queue order that sorts jobs for which a user's order fails behind all others."""

    def __init__(self, order: Any, report: ErrorReporter) -> None:
        self._order, self._guard = order, Guard("order", order, report)
        self._shape: object = None  # of every valid key
        self.refresh_s = order.refresh_s

    @property
    def ages(self) -> bool:
        """Whether the user's order ages."""
        return bool(self._order.ages)

    def __eq__(self, other: object) -> bool:
        """Whether both contain equal orders."""
        return isinstance(other, ContainedOrder) and bool(self._order == other._order)

    def __hash__(self) -> int:
        """Hash of the order."""
        return hash(self._order)

    def key(self, job: Job, now: float) -> tuple[int, Any]:
        """Pair of 0 and the key of the user's order, or of 1 and the time of arrival (s)."""
        return self._guard.call(
            "key", lambda: (0, self._valid_key(job, now)), lambda _: (1, job.queued_at)
        )

    def _valid_key(self, job: Job, now: float) -> Any:
        key = self._order.key(shown(job), now)
        shape = _shape(key)
        if self._shape is None:
            self._shape = shape
        elif shape != self._shape:
            raise TypeError(f"the key {key!r} cannot be compared with those of earlier jobs")
        return key


class ContainedPriority(ContainedOrder):
    """Contained order of priorities; where it fails, the priority is the one that the user has."""

    def priority(self, job: Job, now: float) -> float:
        """Priority of a queued job; larger is more urgent."""
        return self._guard.call(
            "priority", lambda: self._valid_priority(job, now), lambda _: job.spec.priority
        )

    def _valid_priority(self, job: Job, now: float) -> float:
        priority = float(self._order.priority(shown(job), now))
        if not isfinite(priority):
            raise ValueError(f"the priority must be a finite number, got {priority}")
        return priority


def _shape(key: object) -> object:
    """Description of a key, which two comparable keys have in common."""
    if isinstance(key, tuple):
        return tuple(map(_shape, key))
    if isinstance(key, str):
        return "text"
    if not isinstance(key, Real):
        raise TypeError(f"a key must be a number, a text or a tuple of these, got {key!r}")
    if key != key:
        raise ValueError("a key must not be NaN")
    return "number"


class ContainedSelection(Selection):
    """Processor selection that refuses where a user's selection fails.

    Attributes
    ----------
    anywhere, network : as the user's selection has them.
    failures : number of processors -> report of the failure, until this many can be selected again.
    """

    def __init__(self, selection: Selection, report: ErrorReporter) -> None:
        self._selection, self._guard = selection, Guard("selection", selection, report)
        self.anywhere, self.network = selection.anywhere, selection.network
        self.failures: dict[int, str] = {}
        kind = type(selection)
        self._fits = "select" if kind.fits is Selection.fits else "fits"
        self._keep = "select" if kind.keep is Selection.keep else "keep"

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many of the free processors; None if no choice is acceptable."""
        fallback = self._noted(processors, space.free.first(processors) if self.anywhere else None)
        return self._guard.call("select", lambda: self._valid_choice(space, processors), fallback)

    def fits(self, space: Space, processors: int) -> bool:
        """Whether `select` would find an acceptable choice."""
        fallback = self._noted(processors, self.anywhere)
        return self._guard.call(
            self._fits, lambda: self._selection.fits(space.copy(), processors), fallback
        )

    def keep(self, then: Space, now: Space, processors: int) -> ProcSet:
        """Processors that must stay free for a job that starts later; see `Selection`."""
        return self._guard.call(
            self._keep,
            lambda: self._valid_kept(then, now, processors),
            self._noted(processors, ProcSet()),
        )

    def leaving(
        self, space: Space, groups: Mapping[int, ProcSet], processors: int, others: ProcSet = NONE
    ) -> tuple[int, ...] | None:
        """Groups of a job that leave; the newest ones if the user's selection fails."""
        return self._guard.call(
            "leaving",
            lambda: self._selection.leaving(space.copy(), dict(groups), processors, others),
            lambda _: leaving_groups(groups, processors),
        )

    def _noted(self, processors: int, result: Result) -> Callable[[str], Result]:
        """Make a fallback that notes the failure for this many processors."""

        def fallback(why: str) -> Result:
            self.failures[processors] = why
            return result

        return fallback

    def _valid_choice(self, space: Space, processors: int) -> ProcSet | None:
        """Result of the user's selection, if it is a set of this many free processors."""
        result: object = self._selection.select(space.copy(), processors)
        if result is None:
            if self.anywhere:
                raise ValueError(f"it declares `anywhere`, but refused {processors} processors")
        elif not isinstance(result, ProcSet):
            raise TypeError(f"it returned {result!r}, which is not a ProcSet")
        elif result.count() != processors:
            raise ValueError(f"it returned {result.count()} processors instead of {processors}")
        elif result - space.free:
            raise ValueError(f"it returned processors that are not free: {result - space.free}")
        self.failures.pop(processors, None)
        return result

    def _valid_kept(self, then: Space, now: Space, processors: int) -> ProcSet:
        kept: object = self._selection.keep(then.copy(), now.copy(), processors)
        if not isinstance(kept, ProcSet):
            raise TypeError(f"it returned {kept!r}, which is not a ProcSet")
        return kept & now.free


class ContainedEstimates:
    """Source of estimates whose predictor falls back on the users' estimates."""

    def __init__(self, estimates: Estimates, report: ErrorReporter) -> None:
        self._estimates, self._report = estimates, report

    def predictor(self) -> Predictor | None:
        """Return a contained predictor; None if the users' estimates are taken."""
        guard = Guard("estimates", self._estimates, self._report)
        return guard.call("predictor", self._valid_predictor, _none)

    def _valid_predictor(self) -> Predictor | None:
        predictor: object = self._estimates.predictor()
        if predictor is None:
            return None
        if not isinstance(predictor, Predictor):
            raise TypeError(f"derive the class of {predictor!r} from Predictor")
        if type(predictor).predict is Predictor.predict:
            raise TypeError(f"its predictor {type(predictor).__name__} has no method predict")
        return ContainedPredictor(predictor, self._report)


class ContainedPredictor(Predictor):
    """Predictor that returns the walltime where a user's predictor fails.

    Attributes
    ----------
    beyond_walltime : as the user's predictor has it.
    """

    def __init__(self, predictor: Predictor, report: ErrorReporter) -> None:
        self._predictor, self._guard = predictor, Guard("estimates", predictor, report)
        self.beyond_walltime = bool(predictor.beyond_walltime)

    def ended(self, job: Job) -> None:
        """Let the predictor learn from a job that has ended."""
        self._guard.call("ended", lambda: self._predictor.ended(shown(job)), _none)

    def predict(self, job: Job) -> float:
        """Run time to expect of a job that is being submitted, seconds."""
        return self._guard.call(
            "predict",
            lambda: _seconds(self._predictor.predict(shown(job))),
            lambda _: job.spec.walltime_s,
        )

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Quantiles of the run time to expect, seconds; None if there are none."""

        def quantiles() -> list[float] | None:
            values = self._predictor.quantiles(shown(job), probabilities)
            return None if values is None else [_seconds(value) for value in values]

        return self._guard.call("quantiles", quantiles, _none)

    def progressed(self, job: Job, point: ResizePoint) -> float | None:
        """Run time to expect of a job at a resize point, seconds; None: as before."""

        def progressed() -> float | None:
            predicted_s = self._predictor.progressed(shown(job), point)
            return None if predicted_s is None else _seconds(predicted_s)

        return self._guard.call("progressed", progressed, _none)

    def missed(self, job: Job) -> float:
        """Run time to expect of a job that ran as long as predicted, seconds.

        If the predictor fails, it is the walltime, and beyond that what the default deadline
        managers return.
        """

        def missed() -> float:
            predicted_s = _seconds(self._predictor.missed(shown(job)))
            if not predicted_s > job.estimate_s:
                raise ValueError(
                    f"a prediction must exceed the missed one, {job.estimate_s} s,"
                    f" got {predicted_s}"
                )
            return predicted_s

        def extend(_: str) -> float:
            within = job.estimate_s < job.walltime_s
            return job.walltime_s if within else self.deadlines.next_s(job)

        return self._guard.call("missed", missed, extend)

    def learned(self) -> object:
        """Data that the predictor has learned; None if it has none or fails."""

        def learned() -> object:
            data = self._predictor.learned()
            msgspec.json.encode(data)
            return data

        return self._guard.call("learned", learned, _none)

    def relearn(self, learned: object) -> None:
        """Let the predictor take over data that it had learned before."""
        self._guard.call("relearn", lambda: self._predictor.relearn(learned), _none)


def _none(_: str) -> None:
    """Fallback of a call without a result, or whose result may be missing."""


def _seconds(predicted_s: float) -> float:
    """Return a prediction that is neither negative nor infinite nor NaN as a float."""
    seconds = float(predicted_s)
    if not 0 <= seconds < inf:
        raise ValueError(f"a prediction must be >= 0 s and finite, got {predicted_s!r}")
    return seconds

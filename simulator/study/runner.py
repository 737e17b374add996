"""Executes the runs of a study or a sweep on an executor, and keeps their results in a file.

A finished run becomes a line of the file at once. If the program is killed, only the runs under way
are lost: the next one reads the file, drops an incomplete last line, and computes what is missing.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from reshape.errors import ReshapeError
from simulator.study.progress import is_computing
from simulator.study.study import Parameters, function

T = TypeVar("T")
RUNS = "runs.jsonl"


class RunFailure(NamedTuple):
    """Why a run has no result; `details` is a traceback if the function raised."""

    message: str
    details: str = ""


#: Result of a run as JSON, or its failure.
Outcome: TypeAlias = bytes | RunFailure
MakePool: TypeAlias = Callable[[int], Executor]


#: Submits a run to a pool. The result is None if the worker lacks what all runs share; the last
#: argument tells to send that, because a worker lacked it.
SubmitRun: TypeAlias = Callable[[Executor, T, bool], Future[Outcome | None]]


def compute(target: str, folder: str, parameters: Parameters) -> Outcome:
    """Run a study's function in this process; a failure is returned, not raised.

    Returns
    -------
    Its result as `as_json` writes it.
    """

    def result() -> Mapping[str, Any]:
        made = function(target, folder)(parameters)
        if not isinstance(made, Mapping):
            raise TypeError(f"{target} must give a mapping of names to values, got {made!r}")
        return made

    part = is_computing.set(True)
    try:
        return outcome_of(result)
    finally:
        is_computing.reset(part)


def outcome_of(result: Callable[[], Any]) -> Outcome:
    """Result of a run as `as_json` writes it, or its failure."""
    try:
        return as_json(result())
    except ReshapeError as error:
        return RunFailure(str(error))
    except Exception as error:
        return RunFailure(f"{type(error).__name__}: {error}", traceback.format_exc())


def as_json(data: Any) -> bytes:
    """Write plain data as JSON; NumPy numbers count as plain; NaN and infinity become null.

    Raises
    ------
    TypeError : part of it is not plain data.
    """

    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"a result is plain data (numbers, text, lists, mappings), got {value!r}")

    return msgspec.json.encode(data, enc_hook=plain)


class InlineExecutor(Executor):
    """Executes every call at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Processes(ProcessPoolExecutor):
    """Pool whose processes end at once when its block ends with an exception."""

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        """Wait for the runs under way, or end them after an exception."""
        for process in list((self._processes or {}).values()) if kind is not None else ():
            process.kill()  # a process that was forked may ignore or handle SIGTERM
        super().__exit__(kind, *error)


def processes(workers: int, start: str = "spawn") -> Executor:
    """Pool of processes that end when this one ends, or when its block ends with an exception.

    Parameters
    ----------
    start : "spawn", or "fork", by which they have everything that this process has defined.
    """
    context = multiprocessing.get_context(start)
    return _Processes(workers, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # end without a traceback
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the executor ends a broken pool by it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def outcomes(
    runs: Sequence[T], submit: SubmitRun[T], pool: Executor, width: int, make: MakePool | None
) -> Iterator[tuple[T, Outcome]]:
    """Compute runs, `width` at a time; each is given when it is done.

    If a worker dies (killed, out of memory), an executor does not report its run, and may fail all
    that are under way. These are then repeated one by one, each in a pool from `make`, to find it.

    Parameters
    ----------
    submit : submits one run to a pool.
    make : makes a pool of so many workers; None: nothing can take the place of the pool.

    Raises
    ------
    ReshapeError : a worker died, and there is no `make`.
    """
    waiting = deque(runs)
    asked: set[T] = set()  # runs whose worker lacks what all runs share
    with ExitStack() as pools:
        while waiting:
            flying: dict[Future[Outcome | None], T] = {}
            try:
                while waiting or flying:
                    while waiting and len(flying) < width:
                        future = submit(pool, waiting[0], waiting[0] in asked)
                        flying[future] = waiting.popleft()
                    done, _ = wait(flying, return_when=FIRST_COMPLETED)
                    for future in [future for future in flying if future in done]:
                        outcome = _outcome(future)
                        run = flying.pop(future)
                        if outcome is None:
                            asked.add(run)
                            waiting.appendleft(run)
                        else:
                            yield run, outcome
            except BrokenExecutor as error:
                if make is None:
                    raise ReshapeError(
                        f"the executor broke ({type(error).__name__}): one of its processes was"
                        " killed, or ended itself; give a function that makes executors, so that"
                        " the run that ended it can be found"
                    ) from None
                for run in flying.values():
                    yield run, _run_in_own_pool(run, submit, make)
                pool = pools.enter_context(make(width))


def _outcome(future: Future[Outcome | None]) -> Outcome | None:
    """Result of a run; an error that an executor reports of it alone is its failure."""
    try:
        return future.result()
    except BrokenExecutor:
        raise
    except Exception as error:  # of engines, each with its own, such as KilledWorker of dask
        return RunFailure(f"{type(error).__name__}: {error}")


def _run_in_own_pool(run: T, submit: SubmitRun[T], make: MakePool) -> Outcome:
    try:
        with make(1) as pool:
            outcome = _outcome(submit(pool, run, True))
            assert outcome is not None, "the worker got what all runs share"
            return outcome
    except BrokenExecutor:
        return RunFailure("its process was killed, or ended itself; was there enough memory?")


class _Line(msgspec.Struct, frozen=True):
    run: str
    parameters: dict[str, Any]
    result: msgspec.Raw


#: Each line of a file of results begins with this.
BEGIN = b'{"run":'


def is_result_file(path: Path) -> bool:
    """Whether a file has results of runs, a line of JSON each."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(BEGIN)) == BEGIN


class ResultFile(AbstractContextManager["ResultFile"]):
    """Results of finished runs by key, kept in a file if one is given, a line of JSON each.

    Parameters
    ----------
    path : of the file; None: results are kept in memory.
    key : key of the run and the parameters that a line names.
    fresh : forget what is there already.

    Raises
    ------
    ReshapeError : the file cannot be read or written, a line inside it is damaged, or another
        process writes to it.
    """

    def __init__(
        self,
        path: Path | None,
        key: Callable[[str, Mapping[str, Any]], bytes],
        *,
        fresh: bool = False,
    ) -> None:
        self._key = key
        self._results: dict[bytes, bytes] = {}
        self._lines: dict[bytes, bytes] = {}
        self._file: IO[bytes] | None = None
        try:
            if path is not None:
                self._open(path, fresh)
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self, path: Path, fresh: bool) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed by __exit__
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if fresh:
                self._file.truncate(0)
            self._file.seek(0)
            data = self._file.read()
        except BlockingIOError:
            raise ReshapeError(
                f"{path}: another process is writing to it; give another file, or another --out"
            ) from None
        except OSError as error:
            raise ReshapeError(f"{path} cannot be written: {error.strerror}") from None
        whole, _, cut = data.rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
            self._remember(line, f"{path}:{number}")
        if cut:  # the writer was killed, or the machine: then zeros may follow
            if not BEGIN.startswith(cut.rstrip(b"\0")[: len(BEGIN)]):
                raise ReshapeError(
                    f"{path}: its end is not a run; give the name of a new file, or of one with the"
                    " results of runs"
                )
            self._file.truncate(len(data) - len(cut))

    def _remember(self, line: bytes, where: str) -> None:
        try:
            read = msgspec.json.decode(line, type=_Line)
            if not bytes(read.result).startswith(b"{"):
                raise msgspec.DecodeError("its result is no mapping")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ReshapeError(
                f"{where}: is not a finished run ({error}); delete the line, and it is run again"
            ) from None
        key = self._key(read.run, read.parameters)
        self._results[key], self._lines[key] = bytes(read.result), line

    def get(self, key: bytes) -> bytes | None:
        """Result of a run as JSON; None: it is not done."""
        return self._results.get(key)

    def add(self, run: str, parameters: Mapping[str, Any], result: bytes) -> None:
        """Keep the result of a run, as JSON.

        Raises
        ------
        ReshapeError : it cannot be written; what was kept before stays.
        """
        line = msgspec.json.encode(_Line(run, dict(parameters), msgspec.Raw(result)))
        key = self._key(run, parameters)
        self._results[key], self._lines[key] = result, line
        if self._file is not None:
            try:
                left = line + b"\n"
                while left:
                    left = left[self._file.write(left) :]
            except OSError as error:
                raise ReshapeError(
                    f"{self._file.name} cannot be written: {error.strerror}; the finished runs"
                    " are kept, and the same command continues from there"
                ) from None

    def lines(self, first: Sequence[bytes]) -> bytes:
        """Contents of the file with the lines of some runs first, in this order, as far as done."""
        done = [key for key in dict.fromkeys(first) if key in self._lines]
        others = sorted(self._lines.keys() - set(done))
        return b"".join(self._lines[key] + b"\n" for key in [*done, *others])

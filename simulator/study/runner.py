"""Executes the runs of a study in other processes and keeps their results.

A finished run becomes a line of ``runs.jsonl`` at once. If the study is killed, only the runs under
way are lost: the next one reads the file, drops an incomplete last line, and computes what is
missing.
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
from simulator.study import is_computing
from simulator.study.study import TRACES, Parameters, Row, Study, function, identity
from simulator.traces.files import replace_all

T = TypeVar("T")
RUNS = "runs.jsonl"


class RunFailure(NamedTuple):
    """Why a run has no result; `details` is a traceback if the function raised."""

    message: str
    details: str = ""


#: Result of a run as JSON, or its failure.
Outcome: TypeAlias = bytes | RunFailure
MakePool: TypeAlias = Callable[[int], Executor]


def compute(target: str, folder: str, parameters: Parameters) -> Outcome:
    """Run a study's function in this process; a failure is returned, not raised.

    Returns
    -------
    Its result as `as_json` writes it.
    """
    part = is_computing.set(True)
    try:
        result = function(target, folder)(parameters)
        if not isinstance(result, Mapping):
            raise TypeError(f"{target} must give a mapping of names to values, got {result!r}")
        return as_json(result)
    except ReshapeError as error:
        return RunFailure(str(error))
    except Exception as error:
        return RunFailure(f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        is_computing.reset(part)


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
    runs: Sequence[T], call: Callable[[T], Outcome], pool: Executor, width: int, make: MakePool
) -> Iterator[tuple[T, Outcome]]:
    """Compute runs, `width` at a time; each is given when it is done.

    Parameters
    ----------
    call : computes one run in a process of the pool.

    If a worker dies (killed, out of memory), the executor does not report its run. All runs under
    way are then repeated one by one, each in a pool from `make`, to find it.
    """
    waiting = deque(runs)
    with ExitStack() as pools:
        while waiting:
            flying: dict[Future[Outcome], T] = {}
            try:
                while waiting or flying:
                    while waiting and len(flying) < width:
                        future = pool.submit(call, waiting[0])
                        flying[future] = waiting.popleft()
                    done, _ = wait(flying, return_when=FIRST_COMPLETED)
                    for future in [future for future in flying if future in done]:
                        outcome = future.result()
                        yield flying.pop(future), outcome
            except BrokenExecutor:
                for run in flying.values():
                    yield run, _run_in_own_pool(run, call, make)
                pool = pools.enter_context(make(width))


def _run_in_own_pool(run: T, call: Callable[[T], Outcome], make: MakePool) -> Outcome:
    try:
        with make(1) as pool:
            return pool.submit(call, run).result()
    except BrokenExecutor:
        return RunFailure("its process was killed, or ended itself; was there enough memory?")


class _Line(msgspec.Struct, frozen=True):
    run: str
    parameters: dict[str, Any]
    result: msgspec.Raw


class RunRecord(AbstractContextManager["RunRecord"]):
    """Results of finished runs, kept in a directory if one is given.

    Parameters
    ----------
    fresh : forget what is there already.

    Raises
    ------
    ReshapeError : the file cannot be read or written, a line inside it is damaged, or another
        process writes to it.
    """

    def __init__(self, study: Study, folder: Path | None, *, fresh: bool = False) -> None:
        self._study, self._folder = study, folder
        self._results: dict[bytes, bytes] = {}
        self._lines: dict[bytes, bytes] = {}
        self._file: IO[bytes] | None = None
        try:
            if folder is not None:
                self._open(folder / RUNS, fresh)
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
                f"{path}: another study is writing to it; give another --out"
            ) from None
        except OSError as error:
            raise ReshapeError(f"{path} cannot be written: {error.strerror}") from None
        whole, _, cut = data.rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
            self._remember(line, f"{path}:{number}")
        if cut:  # the writer was killed
            self._file.truncate(len(data) - len(cut))

    def _remember(self, line: bytes, where: str) -> None:
        try:
            read = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise ReshapeError(
                f"{where}: is not a finished run ({error}); delete the line, and it is run again"
            ) from None
        key = identity(read.run, read.parameters)
        self._results[key], self._lines[key] = bytes(read.result), line

    def __contains__(self, run: Parameters) -> bool:
        """Whether this run is done."""
        return identity(self._study.run, run) in self._results

    def add(self, run: Parameters, result: bytes) -> None:
        """Keep the result of a run, as JSON.

        Raises
        ------
        ReshapeError : it cannot be written; what was kept before stays.
        """
        named = {name: value for name, value in run.items() if name != TRACES}
        line = msgspec.json.encode(_Line(self._study.run, named, msgspec.Raw(result)))
        key = identity(self._study.run, run)
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

    def rows(self) -> list[Row]:
        """Rows of the study in its order; all of its runs must have finished."""
        return [
            Row(run, msgspec.json.decode(self._results[identity(self._study.run, run)]))
            for run in self._study.runs
        ]

    def finish(self, files: Mapping[str, bytes]) -> None:
        """Write the files of a report and the runs in their order, completely or not at all.

        Runs of earlier versions of the study file stay, after those of this one.
        """
        if self._folder is None:
            return
        mine = [identity(self._study.run, run) for run in self._study.runs]
        others = sorted(self._lines.keys() - set(mine))
        lines = b"".join(self._lines[key] + b"\n" for key in mine + others)
        replace_all({self._folder / name: data for name, data in {**files, RUNS: lines}.items()})

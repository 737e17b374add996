"""A batch system whose batch jobs are recorded in folders, so that none of them runs twice.

Each batch job has a folder, which the nodes share. A submission is an *attempt*; its batch job
begins with the atomic creation of a mark in the folder. A submission whose outcome is not known
(the client died, or the command failed or gave no answer) is settled by the same mark:

====================  ===========================================================================
the mark              what follows
====================  ===========================================================================
can be created here   the attempt is given up: if its batch job was accepted, it ends at once when
                      it starts; a further attempt may be made
exists                the attempt has begun: the mark holds the id of its batch job
====================  ===========================================================================

The batch job also notes its exit code in the folder, which few batch systems keep.

========================  =======================================================================
file                      contents
========================  =======================================================================
``script``                the script of the request
``attempts``              number of attempts, written before the last one is submitted
``begun-N``               mark of attempt N: Unix time and id; "given up" in place of the id
``id``                    id of the batch job, once it is known
``ended``                 Unix time and exit code
``.lock``                 held while a client submits or settles
========================  =======================================================================
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from scheduler.batch_systems.interface import (
    BatchRequest,
    BatchState,
    BatchStatus,
    BatchSystem,
    BatchSystemError,
)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,199}")
_GIVEN_UP = "given up"
_SCRIPT = """#!/bin/sh
# Attempt {attempt} to run the batch job {name}, at most one of which runs its script.
cd {folder} || exit 1
id="{id}"
mark=begun-{attempt}
part="$mark.$(uname -n).$$"
echo "$(date +%s.%N) $id" > "$part" || exit 1
if ! ln "$part" "$mark" 2> /dev/null; then
  rm -f "$part"
  read -r at begun < "$mark" || exit 1
  # The batch system restarts a batch job under its id.
  if [ "$begun" != "$id" ]; then
    echo "attempt {attempt} of {name} was given up before it began"
    exit 0
  fi
fi
rm -f "$part"
(cd {directory} && exec {script}) >> {output} 2>&1
code=$?
echo "$(date +%s.%N) $code" > "ended.$$" && mv "ended.$$" ended && rm -f script
exit $code
"""


class InDoubtError(BatchSystemError):
    """A batch job may have been accepted."""


class RecordedBatchSystem:
    """A batch system with a folder for each batch job; a name is submitted once.

    Parameters
    ----------
    batch : what submits, looks up and cancels.
    folder : of the folders, readable by its user only. The nodes must share it.
    """

    def __init__(self, batch: BatchSystem, folder: Path) -> None:
        self._batch, self._folder = batch, folder.absolute()
        self._names: dict[str, str] = {}  # id -> name
        self.name, self.id_expression = batch.name, batch.id_expression

    def submit(self, request: BatchRequest) -> str:
        """Submit a batch job and return its id; that of an earlier one of the same name, if any.

        Raises
        ------
        InDoubtError : it may have been accepted; the next call, or `find`, settles that.
        BatchSystemError : it was refused, or there was no answer. It never runs.
        """
        with self._locked(request.name) as folder:
            known = self._settled(folder)
            if known:
                return known
            attempt = _attempts(folder) + 1
            _write(folder / "script", request.script, 0o700)
            _write(folder / "attempts", str(attempt))
            try:
                found = self._batch.submit(self._wrapped(request, folder, attempt))
            except BatchSystemError as error:
                known = self._known_after(error, folder)
                if known:
                    return known
                raise
            try:
                self._note_id(folder, found)
            except OSError as error:
                self._withdraw(found, error)
            return found

    def check(self, request: BatchRequest) -> str:
        """Ask whether a batch job would be accepted; see `BatchSystem.check`."""
        return self._batch.check(request)

    def statuses(self, ids: Iterable[str]) -> dict[str, BatchStatus]:
        """Look up batch jobs; see `BatchSystem.statuses`. An exit code that was noted counts."""
        asked = list(ids)
        ended = {each: status for each in asked if (status := self._ended(each)) is not None}
        found = self._batch.statuses([each for each in asked if each not in ended])
        # A batch job may have noted its exit code while the batch system answered.
        return {
            each: ended.get(each) or self._ended(each) or self._with_start(each, found[each])
            for each in asked
        }

    def find(self, names: Iterable[str]) -> dict[str, str]:
        """Find batch jobs by their names; see `BatchSystem.find`.

        A name that is not found never begins to run: an attempt whose outcome is not known is given
        up.
        """
        found = {}
        for name in names:
            if (self._folder / name).is_dir():
                with self._locked(name) as folder:
                    if known := self._settled(folder):
                        found[name] = known
        return found

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel batch jobs; see `BatchSystem.cancel`."""
        self._batch.cancel([each for each in ids if self._ended(each) is None])

    def started_at(self, name: str) -> float | None:
        """Time at which the batch job of a name began to run, Unix seconds; None: it has not."""
        folder = self._folder / name
        begun = _read(folder / f"begun-{_attempts(folder)}")
        at, _, who = begun.partition(" ")
        return float(at) if who and who != _GIVEN_UP else None

    def _settled(self, folder: Path) -> str:
        """Id of the batch job of a folder; an attempt without a known outcome is given up."""
        known = _read(folder / "id")
        if known:
            self._names[known] = folder.name
            return known
        attempt = _attempts(folder)
        if attempt == 0:
            return ""
        mark = folder / f"begun-{attempt}"
        part = folder / f"{mark.name}.{secrets.token_hex(4)}"
        _write(part, f"{time.time():.9f} {_GIVEN_UP}")
        try:
            mark.hardlink_to(part)
        except FileExistsError:
            begun = _read(mark).partition(" ")[2]
            if begun == _GIVEN_UP:
                return ""
            self._note_id(folder, begun)
            return begun
        finally:
            part.unlink()
        return ""

    def _known_after(self, error: BatchSystemError, folder: Path) -> str:
        """Settle an attempt whose submission failed."""
        try:
            return self._settled(folder)
        except OSError as fault:
            raise InDoubtError(f"{error}; {folder} cannot be written: {fault.strerror}") from None

    def _withdraw(self, batch_id: str, fault: OSError) -> NoReturn:
        """Cancel a batch job whose id cannot be written."""
        why = f"the id {batch_id} cannot be written: {fault.strerror}"
        try:
            self._batch.cancel([batch_id])
        except BatchSystemError as error:
            raise InDoubtError(f"{why}; {error}") from None
        raise BatchSystemError(f"{why}; the batch job was cancelled")

    def _note_id(self, folder: Path, found: str) -> None:
        _write(folder / "id", found)
        self._names[found] = folder.name

    def _ended(self, batch_id: str) -> BatchStatus | None:
        """Status of a batch job that has noted its exit code."""
        if batch_id not in self._names:
            for path in self._folder.glob("*/id"):
                self._names[_read(path)] = path.parent.name
        name = self._names.get(batch_id)
        noted = "" if name is None else _read(self._folder / name / "ended")
        if name is None or not noted:
            return None
        at, code = noted.split()
        word = "COMPLETED" if code == "0" else "FAILED"
        status = BatchStatus(BatchState.ENDED, word, end=float(at), exit_code=int(code))
        return replace(status, start=self.started_at(name))

    def _with_start(self, batch_id: str, status: BatchStatus) -> BatchStatus:
        name = self._names.get(batch_id)
        if name is None or status.start is not None:
            return status
        return replace(status, start=self.started_at(name))

    def _wrapped(self, request: BatchRequest, folder: Path, attempt: int) -> BatchRequest:
        """Request whose script begins with the mark of the attempt."""
        script = _SCRIPT.format(
            attempt=attempt,
            name=request.name,
            folder=shlex.quote(str(folder)),
            id=self.id_expression,
            directory=shlex.quote(str(request.directory)),
            script=shlex.quote(str(folder / "script")),
            output=shlex.quote(str(request.output)),
        )
        return replace(request, script=script, output=folder / "messages")

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[Path]:
        """Make the folder of a name, and hold its lock."""
        if not _NAME.fullmatch(name):
            raise BatchSystemError(
                f"{name!r} cannot be the name of a batch job: use letters, digits, '_', '.', '-'"
            )
        folder = self._folder / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError as error:
            raise InDoubtError(f"{folder} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
        except OSError as error:
            raise InDoubtError(f"{folder} cannot be used: {error.strerror}") from None
        finally:
            os.close(lock)


def _attempts(folder: Path) -> int:
    return int(_read(folder / "attempts") or 0)


def _read(path: Path) -> str:
    """Read a small file; "" if there is none."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a small file durably, in one step."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

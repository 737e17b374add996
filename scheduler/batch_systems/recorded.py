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

The batch job also notes its exit code in the folder, which few batch systems keep;
`scheduler.batch_systems.job_folder` lists the files.

A folder is removed when its batch job has ended and is not needed any more. It is renamed first, so
that it is complete or gone. An attempt that begins after that finds no folder and ends at once.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shlex
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from reshape.files.durable_files import sync_folder
from scheduler.batch_systems.interface import (
    BatchRequest,
    BatchState,
    BatchStatus,
    BatchSystem,
    BatchSystemError,
)
from scheduler.batch_systems.job_folder import (
    GIVEN_UP,
    NAME,
    attempts_of,
    locked,
    read_contents,
    read_note,
    write_note,
)

log = logging.getLogger(__name__)

#: Seconds for which the folder of a batch job stays after its last change.
KEPT_S = 30 * 86400.0
#: Seconds until old folders are removed for the first time, and between two removals. By the first
#: time a caller that was restarted has asked for all batch jobs whose ends it has not seen.
FIRST_REMOVAL_S, REMOVAL_S = 3600.0, 86400.0
#: Most batch jobs that one removal of old folders looks up, since each may take a command.
MOST_LOOK_UPS = 100
_REMOVED = ".removed-"
_OVER = (BatchState.ENDED, BatchState.UNKNOWN)
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

    Notes
    -----
    There must be one caller, which asks for all batch jobs whose ends it has not noted: a folder is
    removed `KEPT_S` after its last change, if its batch job has ended and the latest call of
    `statuses` did not ask for it. The caller settles a submission without an answer by `find`, and
    may submit another batch job of a name when the first one has ended, as a pool that is added
    again does.
    """

    def __init__(self, batch: BatchSystem, folder: Path) -> None:
        self._batch, self._folder = batch, folder.absolute()
        self._names: dict[str, str] = {}  # id -> name
        self._next_removal = time.monotonic() + FIRST_REMOVAL_S
        self.name, self.id_expression = batch.name, batch.id_expression

    def submit(self, request: BatchRequest) -> str:
        """Submit a batch job and return its id; that of an earlier one of the same name, if any.

        An earlier one that has ended does not count, and is removed.

        Raises
        ------
        InDoubtError : it may have been accepted; the next call, or `find`, settles that.
        BatchSystemError : it was refused, or there was no answer. It never runs.
        """
        self._free_name(request.name)
        with self._locked(request.name) as folder:
            known = self._settled(folder)
            if known:
                return known
            attempt = attempts_of(folder) + 1
            write_note(folder / "script", request.script, 0o700)
            write_note(folder / "attempts", f"{attempt} {self.name}")
            try:
                id = self._batch.submit(self._wrapped(request, folder, attempt))
            except BatchSystemError as error:
                known = self._known_after(error, folder)
                if known:
                    return known
                raise
            try:
                self._note_id(folder, id)
            except OSError as error:
                self._withdraw(id, error)
            return id

    def check(self, request: BatchRequest) -> str:
        """Ask whether a batch job would be accepted; see `BatchSystem.check`."""
        return self._batch.check(request)

    def statuses(self, ids: Iterable[str]) -> dict[str, BatchStatus]:
        """Look up batch jobs; see `BatchSystem.statuses`. An exit code that was noted counts."""
        asked = list(ids)
        ended = {job: status for job in asked if (status := self._ended(job)) is not None}
        statuses = self._batch.statuses([job for job in asked if job not in ended])
        # A batch job may have noted its exit code while the batch system answered.
        result = {
            job: ended.get(job) or self._ended(job) or self._with_start(job, statuses[job])
            for job in asked
        }
        if time.monotonic() >= self._next_removal:
            self._next_removal = time.monotonic() + REMOVAL_S
            self._try_removal(time.time() - KEPT_S, asked)
        return result

    def find(self, names: Iterable[str]) -> dict[str, str]:
        """Find batch jobs by their names; see `BatchSystem.find`.

        A name that is not found never begins to run: an attempt whose outcome is not known is given
        up.
        """
        ids = {}
        for name in names:
            if (self._folder / name).is_dir():
                with self._locked(name) as folder:
                    if known := self._settled(folder):
                        ids[name] = known
        return ids

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel batch jobs; see `BatchSystem.cancel`."""
        self._batch.cancel([job for job in ids if self._ended(job) is None])

    def started_at(self, name: str) -> float | None:
        """Time at which the batch job of a name began to run, Unix seconds; None: it has not."""
        folder = self._folder / name
        begun = read_note(folder / f"begun-{attempts_of(folder)}")
        at, _, who = begun.partition(" ")
        return float(at) if who and who != GIVEN_UP else None

    def have_ended(self, names: Iterable[str]) -> list[str]:
        """Find out which batch jobs have ended, or were never submitted.

        A batch job whose latest attempt has no known outcome has not ended. If a batch job has not
        noted its exit code, the batch system is asked; what it does not list any more has ended.

        Raises
        ------
        BatchSystemError : the batch system does not answer.
        """
        contents = {name: read_contents(self._folder / name) for name in names}
        ids = {each.id: name for name, each in contents.items() if each.id and not each.is_settled}
        statuses = self._batch.statuses(ids) if ids else {}
        over = {ids[each] for each, status in statuses.items() if status.state in _OVER}
        return [name for name, each in contents.items() if each.is_settled or name in over]

    def remove(self, names: Iterable[str]) -> None:
        """Remove the folders of batch jobs that have ended, each in one step.

        Raises
        ------
        InDoubtError : a folder cannot be removed.
        """
        for name in names:
            if (self._folder / name).is_dir():
                self._names = {known: of for known, of in self._names.items() if of != name}
                with self._locked(name) as folder:
                    folder.rename(self._folder / f"{_REMOVED}{name}.{secrets.token_hex(4)}")
        if self._folder.is_dir():
            sync_folder(self._folder)

    def delete_removed(self) -> None:
        """Delete the files of removed folders, also of those that a process left that died."""
        for folder in self._folder.glob(f"{_REMOVED}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def remove_old(self, before: float, wanted: Collection[str]) -> list[str]:
        """Remove folders of ended batch jobs of this batch system.

        At most `MOST_LOOK_UPS` of those that have not noted their ends are removed.

        Parameters
        ----------
        before : Unix seconds; folders that were changed later stay.
        wanted : ids of batch jobs whose folders stay.

        Returns
        -------
        the names whose folders were removed

        Raises
        ------
        BatchSystemError, OSError : see `have_ended` and `remove`.
        """
        old: list[str] = []
        looked_up: list[str] = []
        for path in self._folders():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    contents = read_contents(path)
                    if contents.system == self.name and contents.id not in wanted:
                        (old if contents.is_settled else looked_up).append(path.name)
        ended = self.have_ended([*old, *looked_up[:MOST_LOOK_UPS]])
        self.remove(ended)
        self.delete_removed()
        return ended

    def _free_name(self, name: str) -> None:
        """Remove the folder of an earlier batch job that has ended."""
        if read_contents(self._folder / name).id and self.have_ended([name]):
            self.remove([name])
            self.delete_removed()

    def _try_removal(self, before: float, wanted: Collection[str]) -> None:
        try:
            removed = self.remove_old(before, wanted)
        except (BatchSystemError, OSError) as error:
            log.warning("cannot remove old batch jobs in %s: %s", self._folder, error)
            return
        if removed:
            log.info("removed the records of %d batch jobs in %s", len(removed), self._folder)

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []

    def _settled(self, folder: Path) -> str:
        """Id of the batch job of a folder; an attempt without a known outcome is given up."""
        known = read_note(folder / "id")
        if known:
            self._names[known] = folder.name
            return known
        attempt = attempts_of(folder)
        if attempt == 0:
            return ""
        mark = folder / f"begun-{attempt}"
        part = folder / f"{mark.name}.{secrets.token_hex(4)}"
        write_note(part, f"{time.time():.9f} {GIVEN_UP}")
        try:
            mark.hardlink_to(part)
        except FileExistsError:
            begun = read_note(mark).partition(" ")[2]
            if begun == GIVEN_UP:
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

    def _note_id(self, folder: Path, id: str) -> None:
        write_note(folder / "id", id)
        self._names[id] = folder.name

    def _ended(self, batch_id: str) -> BatchStatus | None:
        """Status of a batch job that has noted its exit code."""
        if batch_id not in self._names:
            for path in self._folders():
                if known := read_note(path / "id"):
                    self._names[known] = path.name
        name = self._names.get(batch_id)
        noted = "" if name is None else read_note(self._folder / name / "ended")
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
        return replace(
            request,
            script=script,
            output=folder / "messages",
            script_file=folder / f"attempt-{attempt}",
        )

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[Path]:
        """Make the folder of a name, and hold its lock."""
        if not NAME.fullmatch(name):
            raise BatchSystemError(
                f"{name!r} cannot be the name of a batch job: use letters, digits, '_', '.', '-'"
            )
        folder = self._folder / name
        try:
            with locked(folder):
                yield folder
        except OSError as error:
            raise InDoubtError(f"{folder} cannot be used: {error.strerror}") from None

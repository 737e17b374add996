"""A directory of checkpoints, and the run that it belongs to.

A run is a job with all its restarts, or one start of a program without a service. A directory
belongs to one run, so that no other one removes or mixes its checkpoints. Another run takes it over
by restarting from it.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Thread

import msgspec

from reshape.errors import ReshapeError
from reshape.files.durable_files import sync_folder, write_durably

MANIFEST_FILE = "manifest.json"
OWNER_FILE = "owner.json"
RESTART_VARIABLE = "RESHAPE_RESTART_FROM"
#: Variable with the folders of the service of a job, one a line.
OWN_FOLDERS_VARIABLE = "RESHAPE_OWN_FOLDERS"
_NAME = re.compile(r"iteration-(\d+)")


class Owner(msgspec.Struct, frozen=True):
    """The run that a directory belongs to.

    Attributes
    ----------
    key : secret-free identity of the run.
    run : the run in words, for messages.
    """

    key: str
    run: str


def checkpoints_in(path: Path) -> list[Path]:
    """Complete checkpoints of a directory, the latest iteration first; `path` if it is one.

    A folder without a manifest is not complete.

    Raises
    ------
    ReshapeError : there is no such directory, or it cannot be read.
    """
    if (path / MANIFEST_FILE).exists():
        return [path]
    try:
        return [folder for folder in _folders_in(path) if (folder / MANIFEST_FILE).exists()]
    except OSError as error:
        raise ReshapeError(f"{path} cannot be read: {error.strerror}") from None


def _folders_in(path: Path) -> list[Path]:
    """Folders of checkpoints, complete or not, the latest iteration first."""
    names = [(int(m[1]), m[0]) for m in map(_NAME.fullmatch, os.listdir(path)) if m]
    return [path / name for _, name in sorted(names, reverse=True)]


def checkpoints_to_restart_from(path: Path) -> list[Path]:
    """Complete checkpoints of a directory that a user names, the latest iteration first.

    Raises
    ------
    ReshapeError : there is none.
    """
    if not path.is_dir():
        raise ReshapeError(f"cannot restart: there is no directory {path}")
    folders = checkpoints_in(path)
    if not folders:
        raise ReshapeError(
            f"cannot restart: {path} holds no complete checkpoint (iteration-N/{MANIFEST_FILE}); "
            "name the directory of app.checkpoint, or start without a restart"
        )
    return folders


def _refuse_own_folders(path: Path) -> None:
    """Refuse a place in a folder of the service, after all links."""
    real = path.resolve()
    for own in os.environ.get(OWN_FOLDERS_VARIABLE, "").splitlines():
        for folder in (real, *real.parents):
            with suppress(OSError):  # one of them does not exist here
                if folder.samefile(own):
                    raise ReshapeError(
                        f"{path} is in {own}, a folder of the service: choose another dir in"
                        " app.checkpoint"
                    )


class CheckpointDirectory:
    """The directory in which a run keeps its checkpoints; used by one process at a time.

    Parameters
    ----------
    path : absolute path.
    owner : the present run.
    """

    def __init__(self, path: Path, owner: Owner) -> None:
        self.path, self._owner = path, owner
        self._removal: Thread | None = None

    def claim(self, restart_from: Path | None) -> list[Path]:
        """Make this the directory of the run, created if it does not exist.

        Parameters
        ----------
        restart_from : directory or checkpoint that the run restarts from if it has written none.

        Returns
        -------
        checkpoints to restart from, the latest iteration first; empty if the run begins.

        Raises
        ------
        ReshapeError : it belongs to another run, cannot be created, has folders named like
            checkpoints of no run, or is in a folder of the service; or there is no checkpoint to
            restart from.
        """
        _refuse_own_folders(self.path)
        folders = checkpoints_in(self.path) if self._is_own() else []
        if not folders and restart_from is not None:
            folders = checkpoints_to_restart_from(restart_from)
        try:
            self.path.mkdir(0o755, parents=True, exist_ok=True)
            self._refuse_foreign(restart_from)
            with suppress(FileExistsError):
                self._write_owner(replace=False)
                return folders
            owner = self._read_owner()
            if owner.key == self._owner.key:
                return folders
            if not self._is_source(restart_from):
                raise ReshapeError(self._belongs_to(owner))
            self._write_owner(replace=True)
        except OSError as error:
            raise ReshapeError(
                f"cannot use {self.path} for checkpoints: {error.strerror}; choose another dir in "
                "app.checkpoint"
            ) from None
        return folders

    def _belongs_to(self, owner: Owner) -> str:
        """Say why another run does not get the directory, and what its user may do."""
        if not checkpoints_in(self.path):
            return (
                f"{self.path} is the directory of another run, {owner.run}, which has written no "
                "checkpoint yet: remove it if that run has ended, or choose another dir"
            )
        return (
            f"{self.path} has the checkpoints of another run, {owner.run}: restart from them "
            f"(reshape submit --restart-from {self.path}, or without a service "
            f"{RESTART_VARIABLE}={self.path}), choose another dir, or remove it"
        )

    def release(self) -> None:
        """Remove the directory of a run that ends without a checkpoint, so that others may use it.

        Files that are not of this module remain, and so does the directory then.
        """
        with suppress(OSError, ReshapeError):
            if self._is_own() and not _folders_in(self.path):
                (self.path / OWNER_FILE).unlink()
                self.path.rmdir()

    def _refuse_foreign(self, restart_from: Path | None) -> None:
        """Refuse a directory of no run with folders that `prune` would remove."""
        if (self.path / OWNER_FILE).exists() or self._is_source(restart_from):
            return
        if folders := _folders_in(self.path):
            raise ReshapeError(
                f"{self.path} has a folder {folders[0].name} and no {OWNER_FILE}, so that it may be"
                " something else than a checkpoint: choose another dir in app.checkpoint, or"
                " restart from it"
            )

    def begin(self, iteration: int) -> Path:
        """Create the empty folder of a checkpoint; what is left of an earlier attempt is removed.

        Waits for the end of the last `prune`.

        Raises
        ------
        ReshapeError : the directory belongs to another run now.
        OSError : no room, or no right to write.
        """
        self.wait()
        owner = self._read_owner()
        if owner.key != self._owner.key:
            raise ReshapeError(f"{self.path} was taken over by {owner.run}")
        folder = self.path / f"iteration-{iteration}"
        self.remove(folder)
        folder.mkdir(0o700)
        return folder

    def remove(self, folder: Path) -> None:
        """Remove a checkpoint. From its first step on it is not a checkpoint any more."""
        with suppress(OSError):
            (folder / MANIFEST_FILE).unlink(missing_ok=True)
            shutil.rmtree(folder)

    def prune(self, newest: Path, keep: int) -> None:
        """Make the entry of a new checkpoint durable, and remove all but the `keep` latest ones.

        Those of later iterations belong to a continuation that was given up. Folders that are not
        complete are removed, too. A thread removes them, since that may take longer than writing;
        a process does not end before it is done.
        """
        sync_folder(self.path)
        complete = checkpoints_in(self.path)
        index = complete.index(newest)
        remaining = complete[index : index + keep]
        old = [folder for folder in _folders_in(self.path) if folder not in remaining]
        self._removal = Thread(target=self._remove_all, args=(old,))
        self._removal.start()

    def wait(self) -> None:
        """Wait until the last `prune` has removed everything."""
        if self._removal is not None:
            self._removal.join()

    def _remove_all(self, folders: list[Path]) -> None:
        for folder in folders:
            self.remove(folder)

    def _is_own(self) -> bool:
        """Whether the run has had the directory before."""
        try:
            return self._read_owner().key == self._owner.key
        except OSError:
            return False

    def _is_source(self, restart_from: Path | None) -> bool:
        if restart_from is None:
            return False
        return any(
            source.exists() and source.samefile(self.path)
            for source in (restart_from, restart_from.parent)
        )

    def _write_owner(self, *, replace: bool) -> None:
        data = msgspec.json.encode(self._owner)
        write_durably(self.path / OWNER_FILE, data, 0o644, replace=replace)

    def _read_owner(self) -> Owner:
        try:
            return msgspec.json.decode((self.path / OWNER_FILE).read_bytes(), type=Owner)
        except msgspec.MsgspecError as error:
            raise ReshapeError(
                f"{self.path / OWNER_FILE} is damaged ({error}): remove it if no job uses the "
                "directory"
            ) from None

"""The service directory: files and locks of a service.

    server.json     endpoint, process and start time of the service (removed when it ends)
    secret          secret that the service and its agents share
    memory-folder   name of the folder in /dev/shm that holds the shared memory of the jobs, on
                    every host where no other user has taken it
    socket-folder   name of the folder of the socket, if it is not in the directory itself (removed
                    when the service ends and no job continues)
    journal.db      the journal (SQLite)
    journal.mark    how far the journal was written
    access/         keys and access files for TCP (scheduler.node.access_keys)
    lock            lock of the service; agent-NODE.lock is the lock of an agent
    *.log           logs of the service and of the agents

Only its user can access the directory (mode 0700). It contains the ZeroMQ socket, unless the path
would exceed the limit of the operating system (107 bytes). The socket is then in a folder below the
system's temporary directory. Folders outside of the directory have random names, so that no other
user can create them in advance; :mod:`reshape.files.private_folder` verifies them.

An agent on a host that does not have this directory has a `HostPlace` instead. The name of the
folder for shared memory is random and the same on all hosts, except where another user has taken
it. Agents therefore set the paths in the environment of a job's processes.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import secrets
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reshape.errors import ReshapeError
from reshape.files.private_folder import make_private, own_folder
from reshape.wire.access import AccessFile, read_access, write_private
from scheduler.text.plain import is_utf8

if TYPE_CHECKING:
    from scheduler.protocol.agent_messages import AgentSettings

MEMORY = Path("/dev/shm")
#: Name of the access file for the processes of jobs, in the folder `JobFolders.memory`.
JOB_ACCESS = "job.json"


class Lock:
    """A file that one process locks at a time; the kernel unlocks it when the process ends.

    Parameters
    ----------
    path : the file; it is created.

    Raises
    ------
    BlockingIOError : another process has locked it.
    OSError : it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, _locked(path)

    def keep(self) -> bool:
        """Lock the file again if it was removed; return whether this process has locked it.

        Raises
        ------
        OSError : it cannot be opened.
        """
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                return True
        try:
            file = _locked(self._path)
        except BlockingIOError:
            return False
        self.release()
        self._file = file
        return True

    def release(self) -> None:
        """Unlock the file."""
        os.close(self._file)


def _locked(path: Path) -> int:
    """Open and lock a file; return its descriptor."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


@contextmanager
def hold(path: Path) -> Iterator[Lock | None]:
    """Hold the lock of a file; yields None if another process holds it."""
    try:
        lock = Lock(path)
    except BlockingIOError:
        yield None
        return
    try:
        yield lock
    finally:
        lock.release()


class JobFolders(ABC):
    """Paths of the shared memory of jobs on this host."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the folder for shared memory; it identifies the service on all hosts."""

    @property
    def memory(self) -> Path:
        """Folder in /dev/shm for the shared memory of all jobs of a service on this host.

        It has another name than that of the service where a user has taken that name, as is
        possible while the folder does not exist. Nothing of this user lies under it then.
        """
        return own_folder(MEMORY / self.name)

    def shm(self, job: int) -> Path:
        """Return the shared-memory folder of a job; `make_job_folder` creates it."""
        return self.memory / f"job-{job}"

    @property
    def job_access(self) -> Path:
        """Access file with which the processes of jobs reach a service on another host."""
        return self.memory / JOB_ACCESS

    @abstractmethod
    def write_job_access(self) -> None:
        """Write the access file for the processes of jobs, if they reach the service by one.

        Raises
        ------
        ReshapeError : the folder for shared memory is not safe to use, or is full.
        """

    def make_job_folder(self, job: int) -> None:
        """Create the shared-memory folder of a job, or verify the existing one.

        A program that removes old files may have removed all that was in the folder of the service.

        Raises
        ------
        ReshapeError : the folder cannot be created, or other users have access to it.
        """
        try:
            if not self.job_access.exists():
                self.write_job_access()
            make_private(self.memory)
            make_private(self.shm(job))
        except OSError as error:
            raise ReshapeError(f"cannot create {self.shm(job)}: {error.strerror}") from None

    def jobs_with_folder(self) -> list[int]:
        """Return the numbers of all jobs that have a shared-memory folder on this host."""
        try:
            names = os.listdir(self.memory)
        except OSError:
            return []
        return sorted(int(name[4:]) for name in names if re.fullmatch(r"job-\d+", name))

    def remove_all(self) -> None:
        """Remove the shared memory of all jobs; the folder too, if nothing else is in it."""
        for job in self.jobs_with_folder():
            shutil.rmtree(self.shm(job), ignore_errors=True)
        for path in [self.job_access, *self.memory.glob("end-*")]:
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):  # an agent that was started by hand uses it
            self.memory.rmdir()


_LONGEST_SOCKET_PATH = 100
#: Longest path of a temporary directory in which there is room for a folder with sockets.
_LONGEST_TEMPORARY = 107 - len("/reshape-0123456789abcdef/gate-31")
#: Sockets between a gate and its service: connections whose keys are verified at the same time.
LANES = 32


def _check_temporary(directory: Path) -> None:
    """Check that the temporary directory of the system can hold the sockets of a service."""
    temporary = tempfile.gettempdir()
    if len(os.fsencode(temporary)) > _LONGEST_TEMPORARY:
        raise ReshapeError(
            f"there is no place for a socket: the paths of {directory} and of the temporary"
            f" directory {temporary} are too long; choose a --dir of at most"
            f" {_LONGEST_SOCKET_PATH - len('/socket')} bytes, or set TMPDIR to a path of at most"
            f" {_LONGEST_TEMPORARY}"
        )


#: Files of which a service directory has one at least, after any damage.
_MARKS = frozenset({"memory-folder", "journal.db", "journal.mark"})
#: What other commands write into ~/.reshape, perhaps before there is a service.
_EARLIER = re.compile(r"submissions|agent-.*\.log(\.\d+)?")


class ServiceDirectory(JobFolders):
    """Paths and locks of one service.

    Parameters
    ----------
    path : the directory; `create` makes it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(os.path.abspath(Path(path).expanduser()))
        self._name = ""
        self._descriptor = -1
        self._texts: dict[str, str] = {}  # of the files that `restore` writes

    def keep_open(self) -> None:
        """Keep the directory open until this process ends: `follow` finds it, locks stay in it."""
        self._descriptor = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def follow(self) -> None:
        """Take the present path of the directory if it was moved since `keep_open`."""
        path = Path(os.readlink(f"/proc/self/fd/{self._descriptor}"))
        if self._is_at(path):
            self.path = path

    @property
    def is_in_place(self) -> bool:
        """Whether it was neither moved nor removed since `keep_open`."""
        return self._is_at(self.path)

    def _is_at(self, path: Path) -> bool:
        with suppress(OSError):  # it was removed
            return os.path.samestat(os.stat(path), os.fstat(self._descriptor))
        return False

    def create(self) -> None:
        """Create the directory for its user only, or verify an existing one.

        Raises
        ------
        ReshapeError : the directory cannot be created, belongs to another user, has files and is
            not that of a service, or has a path that is not UTF-8 text or leaves no place for a
            socket. Nothing was changed.
        """
        if not is_utf8(str(self.path)):
            raise ReshapeError(
                f"the path {str(self.path)!r} is not UTF-8 text: name another directory with --dir"
            )
        if not self._socket_fits:
            _check_temporary(self.path)
        try:
            self._refuse_foreign()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._restrict()
            self._write_once("memory-folder", f"reshape-{secrets.token_hex(8)}")  # the first mark
            self._write_once("secret", secrets.token_hex(16))
            if not self._socket_fits:
                self._write_once("socket-folder", f"reshape-{secrets.token_hex(8)}")
                make_private(self.socket.parent)
        except OSError as error:
            raise ReshapeError(f"cannot use the directory {self.path}: {error.strerror}") from None
        names = ("memory-folder", "secret") + (() if self._socket_fits else ("socket-folder",))
        self._texts = {name: self._read(name) for name in names}

    def restore(self) -> None:
        """Write the secret and the names of folders again that were removed since `create`.

        Raises
        ------
        OSError : they cannot be written.
        """
        for name, text in self._texts.items():
            self._write_once(name, text)

    def _refuse_foreign(self) -> None:
        """Refuse a folder with files of something else, as the current one that `.` names."""
        try:
            names = set(os.listdir(self.path))
        except FileNotFoundError:
            return
        others = sorted(name for name in names if not _EARLIER.fullmatch(name))
        if others and not names & _MARKS:
            raise ReshapeError(
                f"{self.path} has other files ({others[0]!r}) and is not the directory of a"
                " service: name a new or empty one with --dir"
            )

    def _restrict(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid != os.getuid():
                raise ReshapeError(f"{self.path} belongs to another user: choose another --dir")
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)

    def _write_once(self, name: str, text: str) -> None:
        """Write a file of the directory, unless it exists."""
        path = self.path / name
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
        except OSError:  # the disk is full; an empty file would count as written
            path.unlink()
            raise

    @property
    def _socket_fits(self) -> bool:
        return len(os.fsencode(self.path / "socket")) <= _LONGEST_SOCKET_PATH

    @property
    def socket(self) -> Path:
        """Socket of the service for processes of its user on this host."""
        if self._socket_fits:
            return self.path / "socket"
        return Path(tempfile.gettempdir()) / self._read("socket-folder") / "socket"

    def _read(self, name: str) -> str:
        try:
            text = (self.path / name).read_text().strip()
        except OSError as error:
            raise ReshapeError(
                f"cannot read {self.path / name}: {error.strerror}; start a service there with"
                f" 'reshape serve --dir {self.path}'"
            ) from None
        if not text:  # of the names of folders and of the secret, none may be empty
            raise ReshapeError(
                f"{self.path / name} is empty: end the service, remove this file, and start the"
                " service again"
            )
        return text

    @property
    def endpoint(self) -> str:
        """ZeroMQ address of the service."""
        return f"ipc://{self.socket}"

    @property
    def lanes(self) -> list[Path]:
        """Sockets of the service for its gate (scheduler.service.gate_process)."""
        return [self.socket.with_name(f"gate-{lane}") for lane in range(LANES)]

    @property
    def owner(self) -> str:
        """Name of the user of this process, who owns the directory; variables do not change it."""
        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # the system has no entry for this user
            return str(os.getuid())

    @property
    def server_file(self) -> Path:
        """File in which clients find the endpoint of the service."""
        return self.path / "server.json"

    @property
    def journal(self) -> Path:
        """Database of the journal."""
        return self.path / "journal.db"

    def release_socket(self) -> None:
        """Remove the folder of the socket, if it is not in the directory itself.

        Its name is forgotten too: other users have seen it and could take it before the next
        service starts.
        """
        if not self._socket_fits:
            with suppress(OSError):  # another program has put a file there
                for path in (self.socket, *self.lanes):
                    path.unlink(missing_ok=True)
                self.socket.parent.rmdir()
                (self.path / "socket-folder").unlink()

    def log(self, name: str) -> Path:
        """Return the log file of the service or of an agent."""
        return self.path / f"{name}.log"

    @property
    def name(self) -> str:
        """Name of the folder for shared memory; it identifies the service on all hosts."""
        if not self._name:
            self._name = self._read("memory-folder")
        return self._name

    def read_job_access(self) -> AccessFile | None:
        """Read the access file of jobs with processes on other hosts; None if there is none."""
        path = self.path / "access" / "job.json"
        return read_access(path) if path.exists() else None

    def write_job_access(self) -> None:
        """Copy the access file of jobs, if there is one."""
        if (access := self.read_job_access()) is not None:
            make_private(self.memory)
            write_private(self.job_access, access)

    def read_secret(self) -> str:
        """Return the secret with which agents prove that they belong to the service."""
        return self._read("secret")

    @property
    def _opened(self) -> Path:
        """Path that leads to the directory even after it was moved, if it is kept open."""
        return self.path if self._descriptor < 0 else Path(f"/proc/self/fd/{self._descriptor}")

    def lock(self) -> AbstractContextManager[Lock | None]:
        """Hold the lock of the service; yields None if another service holds it."""
        return hold(self._opened / "lock")

    def agent_lock(self, node: str) -> AbstractContextManager[Lock | None]:
        """Hold the lock of the agent of a node; yields None if another agent holds it."""
        return hold(self._opened / f"agent-{node}.lock")


class HostPlace(JobFolders):
    """What an agent on another host has instead of the directory of its service.

    Parameters
    ----------
    access : access file of the role agent.
    settings : answer of the service to the arrival of the agent.
    """

    def __init__(self, access: AccessFile, settings: AgentSettings) -> None:
        self.access, self.settings = access, settings
        self.endpoint = access.endpoint

    @property
    def name(self) -> str:
        """Name of the folder for shared memory; it identifies the service on all hosts."""
        return self.settings.memory

    def read_secret(self) -> str:
        """Return no secret: the key of the connection proves what this agent is."""
        return ""

    def write_job_access(self) -> None:
        """Write the access file that the service has sent."""
        make_private(self.memory)
        write_private(self.job_access, self.settings.job_access)

    def agent_lock(self, node: str) -> AbstractContextManager[Lock | None]:
        """Hold the lock of a node's agent on this host; yields None if another agent holds it."""
        make_private(self.memory)
        return hold(self.memory / f"agent-{node}.lock")

    def is_shared(self, node: str) -> bool:
        """Whether an agent of this service other than that of a node runs on this host."""
        own = self.memory / f"agent-{node}.lock"
        return any(_is_held(path) for path in self.memory.glob("agent-*.lock") if path != own)

    def remove(self, node: str) -> None:
        """Remove the files of the agent of a node; the folder too, if nothing else is in it."""
        (self.memory / f"agent-{node}.lock").unlink(missing_ok=True)
        if not self.is_shared(node):
            self.job_access.unlink(missing_ok=True)
        with suppress(OSError):  # another agent of this service uses it
            self.memory.rmdir()


def _is_held(lock: Path) -> bool:
    """Whether a process holds a lock."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False

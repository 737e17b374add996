"""Start processes for an agent: open their output, change directory, execute a command.

This file is executed as a script, as one small process beside the agent:

    python -I -S starter.py SOCKET

It forks for each start, which takes a tenth of the time of a new interpreter. The child opens the
files, so that a file system that does not respond, or a named pipe without a reader, blocks only
this child and neither the agent nor another start. The child is made by two forks: when the process
between them ends, the agent, a subreaper, becomes its parent. The agent waits for it as for any
child, and the kernel kills it if the agent dies. The end of this process has no effect on it.

A request is its length (8 bytes), with file descriptors, and in the format of `marshal` what to
start: the arguments of `ProcessLauncher.start` and the bounds by name. The answer is the number of
the new process (8 bytes, signed), or the negative number of the error of the system for which there
is none. A child that cannot send its number ends before it has done anything.

The first file descriptor is the status. It is closed when the command is executed; otherwise the
reason of the failure is written to it, after "node: " or "job: " for whose reason it is, and the
exit code is 126. The command is searched on the PATH of its environment.

An mpiexec over several hosts, ``mpiexec -launcher manual``, prints one command for each host, which
starts the proxy of the host, and waits until all proxies have connected. The child stays as its
parent: it starts the first proxy and reports the commands of the others, ``0 proxies 0`` and a JSON
list of lists; agents start those on their hosts. From then on it copies what mpiexec prints, which
is the output of the job, and ends as mpiexec does. Hydra gives the environment of mpiexec to all
processes of a job, on top of that of their proxy. The variables RESHAPE_AGENT, RESHAPE_CPUS and
RESHAPE_REPORT, and those with paths in shared memory, differ between hosts, so only the proxies
have them.

An mpiexec or a proxy continues to ignore SIGPIPE, as the interpreter does. The mpiexec of MPICH
writes to proxies that have ended already if a program ends within milliseconds of its start, and
SIGPIPE would kill it. A proxy sets its own handler of SIGPIPE, so that the processes that it starts
have the default action.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import socket
import sys

# Each start copies what is imported here, so there is little.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import subprocess
    from types import FrameType
    from typing import Any, NoReturn
else:
    import _signal as signal
if TYPE_CHECKING or __package__:
    from scheduler.node.launching import job_bounds, prctl, rank
else:  # the package is not on the path of an isolated interpreter
    sys.path.append(os.path.dirname(__file__))
    import job_bounds
    import prctl
    import rank

#: Variable of `reshape.checkpoints.directory`.
RESTART_VARIABLE = "RESHAPE_RESTART_FROM"
#: Exit code of a command that could not be started.
CANNOT_START = 126
#: Errors of a process that a node has no room for.
NO_ROOM = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: Limits of a submission, by the error of a process that reaches one of them.
_LIMITED = {errno.ENOMEM: ("AS", "DATA"), errno.EMFILE: ("NOFILE",)}
#: Variables that differ between the hosts of a job.
_OF_HOST = ["RESHAPE_AGENT", "RESHAPE_CPUS", "RESHAPE_REPORT"]
_OF_HOST += ["RESHAPE_SHM", "RESHAPE_SERVER", "RESHAPE_OWN_FOLDERS"]
_LINE, _END = b"HYDRA_LAUNCH: ", b"HYDRA_LAUNCH_END"
_LOST = b"\nreshape: output is missing here: there was no room for it\n"
#: Seconds that the proxy may take to end after mpiexec.
_PROXY_S = 5.0
#: Bytes of the length of a request, and of an answer.
NUMBER_BYTES = 8
#: File descriptors of a request at most.
MOST_DESCRIPTORS = 8


def main() -> None:
    """Serve the agent that has started this process, until it closes the socket."""
    gc.disable()  # a collection would copy the pages that all children share
    agent = os.getppid()
    prctl.die_with_parent()  # an agent that is gone by now has closed the socket
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        while received := _receive(connection):
            _fork(agent, connection, *received)


def _receive(connection: socket.socket) -> tuple[bytes, list[int]] | None:
    """Wait for a request; return it with its file descriptors, None at the end."""
    length, descriptors, _flags, _address = socket.recv_fds(
        connection, NUMBER_BYTES, MOST_DESCRIPTORS
    )
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    left = int.from_bytes(length, "little")
    parts = []
    while left and (part := connection.recv(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return None if left or not parts else (b"".join(parts), descriptors)


def _answer(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(NUMBER_BYTES, "little", signed=True))


def _fork(agent: int, connection: socket.socket, request: bytes, descriptors: list[int]) -> None:
    """Start the process of a request, as a child of the agent."""
    try:
        between = os.fork()
        if between == 0:
            _fork_again(agent, connection, request, descriptors)
        _, status = os.waitpid(between, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            _answer(connection, -code if code > 0 else -errno.EAGAIN)
    except OSError as error:
        _answer(connection, -(error.errno or errno.EAGAIN))
    for descriptor in descriptors:
        os.close(descriptor)


def _fork_again(
    agent: int, connection: socket.socket, request: bytes, descriptors: list[int]
) -> NoReturn:
    code = errno.EAGAIN
    try:
        between, start_request = os.getpid(), marshal.loads(request)
        if fork(start_request["cgroup"]) == 0 and _is_child_of(agent, between, connection):
            start(start_request, descriptors)
        code = 0
    except OSError as error:
        code = error.errno or code
    finally:
        os._exit(code)


def _is_child_of(agent: int, between: int, connection: socket.socket) -> bool:
    """Become a child of the agent that dies with it, and answer; whether the agent is there."""
    try:
        while (parent := os.getppid()) == between:
            os.sched_yield()
        prctl.die_with_parent()
        if not parent == agent == os.getppid():
            return False
        os.setsid()
    except OSError as error:
        _answer(connection, -(error.errno or errno.EAGAIN))
        return False
    _answer(connection, os.getpid())
    connection.close()
    return True


def fork(cgroup: str) -> int:
    """Fork this process, if possible into a control group; return as `os.fork` does."""
    if cgroup:
        try:
            return prctl.fork_into(cgroup)
        except OSError:  # the processes are found by their environments
            pass
    return os.fork()


def start(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Execute the command of a request in this process, or refuse the start with the reason."""
    status, environment, command = descriptors[0], request["environment"], request["command"]
    try:
        prepare(status, request)
        environment["RESHAPE_REPORT"] = str(descriptors[1])
        os.set_inheritable(descriptors[1], True)
        set_limits(status, request)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ignored by the interpreter
        if request["is_program"]:
            become_program(command, environment)
        if not request["spans"]:
            os.execvpe(command[0], command, environment)
        mpiexec = start_mpiexec(command, environment, status)
    except Exception as error:  # of any kind: there may be too little memory for an import
        is_job = is_of_job(error, request)
        if request["is_program"]:
            rank.tell(2, f"cannot start {command[0]}: {os.strerror(number_of(error))}")
        shown = command[0] if command[0].isprintable() else repr(command[0])
        fail(status, f"cannot start {shown}", error, is_job=is_job)
    os.close(status)
    try:
        span_hosts(mpiexec, environment, descriptors[1])
    except Exception as error:  # the output of the job is the only place left for it
        rank.tell(2, f"reshape: cannot run {command[0]} over several hosts: {error}")
        os._exit(CANNOT_START)


def set_limits(status: int, request: dict[str, Any]) -> None:
    """Set the resource limits of a request; the output names those that are lower here."""
    try:
        lower = job_bounds.take_limits(request["limits"])
    except (OSError, ValueError, OverflowError) as error:
        fail(status, "cannot set the limits of the submission", error, is_job=True)
    for text in lower if request["output"] else ():
        rank.tell(2, f"reshape: {text}")


def become_program(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Execute the program of a job, on the CPUs of rank 0 and with a report of its start.

    A file without a format that the system knows is a script of the shell, as for hydra.

    Raises
    ------
    OSError, ValueError : it cannot be executed.
    """
    report = int(environment.pop("RESHAPE_REPORT"))
    os.set_inheritable(report, False)
    if cpus := rank.cpus_of("0", environment.pop("RESHAPE_CPUS", "")):
        rank.bind(cpus)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ignored by the interpreter
    rank.tell(report, f"0 begun {os.getpid()}")
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    shell = rank.by_shell(command, environment.get("PATH", os.defpath))
    os.execve(shell[0], shell, environment)


def prepare(status: int, request: dict[str, Any]) -> None:
    """Open the output of a request and enter its directory."""
    environment, cwd = request["environment"], request["cwd"]
    mode = 0o644
    if request["umask"] is not None:
        os.umask(request["umask"])
        mode = 0o666
    own = environment.get(job_bounds.VARIABLE, "").splitlines()
    action = ""
    try:
        for path, numbers in ((request["output"], (1, 2)), (request["error"], (2,))):
            if path:
                action = f"cannot write the output {path}"
                truncate = request["truncate"]
                descriptor = open_for_appending(path, mode, truncate=truncate, own=own)
                for number in numbers:
                    os.dup2(descriptor, number)
                os.close(descriptor)
        action = f"cannot start in {cwd}"
        if cwd:
            os.chdir(cwd)
            job_bounds.refuse_own(job_bounds.folder_around(".", own))
        restart_from = environment.get(RESTART_VARIABLE, "")
        action = f"cannot restart from {restart_from}"
        if restart_from:
            job_bounds.refuse_own(job_bounds.folder_around(restart_from, own))
    except (OSError, ValueError) as error:
        is_job = number_of(error) not in NO_ROOM
        fail(status, action, error, is_job=is_job)


def fail(status: int, action: str, error: Exception, *, is_job: bool) -> NoReturn:
    """Write the reason of a failure to STATUS and end.

    Parameters
    ----------
    is_job : whether it is a reason of the job, and not one of the node.
    """
    whose = "job" if is_job else "node"
    of_system = isinstance(error, OSError) and error.strerror
    why = of_system or str(error) or type(error).__name__
    os.write(status, f"{whose}: {action}: {why}".encode(errors="replace"))
    os._exit(CANNOT_START)


def number_of(error: Exception) -> int:
    """Error number of the system; EINVAL for an argument that cannot be passed to it."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    return (isinstance(error, OSError) and error.errno) or errno.EINVAL


def is_of_job(error: Exception, request: dict[str, Any]) -> bool:
    """Whether a command cannot be started for a reason of its job, and not of the node.

    A lack of memory or descriptors is one of the job if the submission limits them, else one of the
    node.
    """
    number, limits = number_of(error), request["limits"]
    low = [name for name in _LIMITED.get(number, ()) if limits.get(name, -1) >= 0]
    if low or number in (errno.E2BIG, errno.EINVAL):
        return True
    return request["is_program"] and number not in NO_ROOM


def open_for_appending(path: str, mode: int, *, truncate: bool, own: list[str]) -> int:
    """Open an output file to append to; return its descriptor.

    Parameters
    ----------
    mode : of a new file, less the umask.
    truncate : whether to empty it first.
    own : folders of the service.

    Raises
    ------
    OSError : see `job_bounds.open_output`.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptor = job_bounds.open_output(path, flags, mode, own)
    if truncate and not job_bounds.is_null(os.fstat(descriptor)):
        os.ftruncate(descriptor, 0)
    return descriptor


# ---------------------------------------------------------------- an mpiexec over several hosts


def start_mpiexec(
    command: list[str], environment: dict[str, str], status: int
) -> subprocess.Popen[bytes]:
    """Start an mpiexec that waits for proxies.

    Parameters
    ----------
    status : file descriptor that gets the reason if mpiexec cannot be bound to this process; it
        then ends at once.

    Raises
    ------
    OSError, ValueError : it cannot be started.
    """
    import subprocess  # late: each start copies what is imported

    def bind() -> None:
        """Let the kernel kill mpiexec when this process dies; its proxies then end theirs."""
        try:
            prctl.die_with_parent()
        except OSError as error:
            fail(status, "cannot bind mpiexec to its parent", error, is_job=False)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ignored by the interpreter

    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        env={name: value for name, value in environment.items() if name not in _OF_HOST},
        restore_signals=False,  # SIGPIPE stays ignored
        preexec_fn=bind,  # noqa: PLW1509 - this process has one thread
    )


def span_hosts(
    mpiexec: subprocess.Popen[bytes], environment: dict[str, str], report: int
) -> NoReturn:
    """Start the proxies of an mpiexec over several hosts, copy its output, and end as it does."""
    import json
    import subprocess

    _forward_signals(mpiexec)
    commands = _proxy_commands(mpiexec)
    rank.tell(report, f"0 proxies 0 {json.dumps(commands[1:])}")
    proxy = None
    if commands:
        proxy = subprocess.Popen(
            commands[0], env=environment, stdin=subprocess.DEVNULL, pass_fds=[report]
        )
    _copy_output(mpiexec)
    code = mpiexec.wait()
    if proxy is not None:
        try:
            proxy.wait(_PROXY_S)
        except subprocess.TimeoutExpired:
            proxy.kill()
            proxy.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _proxy_commands(mpiexec: subprocess.Popen[bytes]) -> list[list[str]]:
    """Read the commands of the proxies; what else mpiexec prints is output."""
    import shlex

    assert mpiexec.stdout is not None
    commands = []
    for line in mpiexec.stdout:
        if line.startswith(_END):
            break
        if line.startswith(_LINE):
            commands.append(shlex.split(line.removeprefix(_LINE).decode()))
        else:
            os.write(1, line)
    return commands


def _copy_output(mpiexec: subprocess.Popen[bytes]) -> None:
    """Copy what mpiexec prints; while the disk is full, the job continues without its output."""
    assert mpiexec.stdout is not None
    is_lost = False
    while data := mpiexec.stdout.read1(1 << 16):  # type: ignore[attr-defined]
        view = memoryview(_LOST + data if is_lost else data)
        try:
            while view:
                view = view[os.write(1, view) :]
                is_lost = False
        except OSError:
            is_lost = True


def _forward_signals(mpiexec: subprocess.Popen[bytes]) -> None:
    def forward(number: int, _frame: FrameType | None) -> None:
        mpiexec.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)


if __name__ == "__main__":
    main()

"""Run the program of one rank on its CPUs, and report how it begins and ends.

This file is executed as a script, by hydra, once for each rank.

    python -I -S rank.py PROGRAM [ARGUMENT]...

mpiexec has one exit code for all ranks, in which the exit code 11 and the signal 11 are the same
number, and it has none of its own program if a rank ends while the others start. Only the parent of
a process learns how it has ended, so this process stays as the parent of the program. It writes
lines to the file descriptor RESHAPE_REPORT, a pipe that the agent of the node reads:

    RANK begun PID              the program runs; PID is this process
    RANK refused ERRNO PROGRAM  the program cannot be executed
    RANK ended STATUS           wait status of the program

Then it ends as the program did. The program has the session and the process group of this process,
so that a signal of hydra, which goes to the process group, reaches it directly.

The variable RESHAPE_CPUS has the CPUs of the ranks on this host, as ``RANK:CPU,CPU ...``; hydra
sets PMI_RANK. The program and all that it starts inherit the binding. A rank that the variable does
not name, or whose CPUs the system refuses, is not bound.
"""

from __future__ import annotations

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import typing, or signal, takes as long as all that is done here
    import signal
    from typing import NoReturn
else:
    import _signal as signal

_CPUS, _REPORT = b"RESHAPE_CPUS", b"RESHAPE_REPORT"
#: Exit code of a program that cannot be executed.
CANNOT_EXECUTE = 127
_ENOEXEC = 8
#: Characters of the name of a program in a report; a pipe takes short lines as a whole.
_LONGEST = 200
#: Signals that the interpreter ignores, and the program is not to ignore.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


def main() -> None:
    """Run the command of the arguments on the CPUs of this rank."""
    command, environment = sys.argv[1:], posix.environ
    rank = environment.get(b"PMI_RANK", b"0").decode()
    report = int(environment.pop(_REPORT))
    posix.set_inheritable(report, False)
    if cpus := cpus_of(rank, environment.pop(_CPUS, b"").decode()):
        bind(cpus)
    # From here on, a signal to the process group ends the program, and not this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = spawn(command, before)
    except OSError as error:
        name = command[0][:_LONGEST].replace("\n", " ")
        tell(report, f"{rank} refused {error.errno} {name}")
        posix.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode(errors="replace"))
        posix._exit(CANNOT_EXECUTE)
    tell(report, f"{rank} begun {posix.getpid()}")
    _, status = posix.waitpid(pid, 0)
    tell(report, f"{rank} ended {status}")
    end_like(status)


def cpus_of(rank: str, text: str) -> set[int]:
    """Return the CPUs of a rank in the text of RESHAPE_CPUS; empty: it is not to be bound."""
    by_rank = dict(part.split(":", 1) for part in text.split())
    return {int(cpu) for cpu in by_rank[rank].split(",")} if rank in by_rank else set()


def bind(cpus: set[int]) -> None:
    """Bind this process to CPUs; say so on the standard error if the system refuses."""
    try:
        posix.sched_setaffinity(0, cpus)
    except OSError as error:
        text = f"a rank is not bound to the CPUs {sorted(cpus)}: {error.strerror}\n"
        posix.write(2, text.encode())


def spawn(command: list[str], mask: set[int]) -> int:
    """Start a command with a signal mask; return its process number.

    A file without a format that the system knows is a script of the shell, as for hydra.

    Raises
    ------
    OSError : it cannot be executed.
    """
    path, environment = command[0], posix.environ
    try:
        return posix.posix_spawnp(path, command, environment, setsigmask=mask, setsigdef=_IGNORED)
    except OSError as error:
        if error.errno != _ENOEXEC:
            raise
    shell = by_shell(command)
    return posix.posix_spawn(shell[0], shell, environment, setsigmask=mask, setsigdef=_IGNORED)


def by_shell(command: list[str], search_path: str | None = None) -> list[str]:
    """Return the command by which the shell runs a file that the system cannot execute."""
    path = command[0]
    if "/" not in path:
        import shutil

        path = shutil.which(path, path=search_path) or path
    return ["/bin/sh", path, *command[1:]]


def tell(report: int, line: str) -> None:
    """Write a line for the agent, or into the output, if that is possible."""
    try:
        posix.write(report, f"{line}\n".encode(errors="replace"))
    except OSError:
        return


def end_like(status: int) -> NoReturn:
    """End this process as the program has ended.

    After a signal, hydra ends the other ranks and prints that the application has a problem. A
    signal that this process has received, too, was sent to the process groups of all ranks in order
    to end them. The exit code that a shell would report then stands for the signal.
    """
    code = posix.waitstatus_to_exitcode(status)
    if code < 0 and -code not in signal.sigpending():
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has dumped its core
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        posix.kill(posix.getpid(), -code)
    posix._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()

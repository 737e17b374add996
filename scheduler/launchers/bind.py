"""Bind one rank to its CPUs, then execute its program.

This file is executed as a script, by hydra, once for each rank.

    python -I -S bind.py PROGRAM [ARGUMENT]...

The variable RESHAPE_CPUS has the CPUs of the ranks on this host, as ``RANK:CPU,CPU ...``; hydra
sets PMI_RANK. The program and all that it starts inherit the binding. A rank that the variable does
not name, or whose CPUs the system refuses, is not bound.
"""

from __future__ import annotations

import os
import signal
import sys

_CPUS = "RESHAPE_CPUS"


def main() -> None:
    """Execute the command of the arguments on the CPUs of this rank."""
    command, rank = sys.argv[1:], os.environ.get("PMI_RANK", "")
    for part in os.environ.pop(_CPUS, "").split():
        number, _, cpus = part.partition(":")
        if number == rank:
            bind({int(cpu) for cpu in cpus.split(",")})
    for number_of_signal in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by the interpreter
        signal.signal(number_of_signal, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(127)


def bind(cpus: set[int]) -> None:
    """Bind this process to CPUs; say so on the standard error if the system refuses."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        text = f"a rank is not bound to the CPUs {sorted(cpus)}: {error.strerror}\n"
        os.write(2, text.encode())


if __name__ == "__main__":
    main()

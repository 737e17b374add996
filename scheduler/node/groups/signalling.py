"""Signals to the programs of a group, at the request of a user or before the end of a walltime.

They go to the programs of the ranks and to what these have started, and not to mpiexec, which would
take most of them for an order to end the group. Of a script they go to what it has started, or to
the script alone; an mpiexec that it has started gets none either.
"""

from __future__ import annotations

import contextlib

import psutil

from scheduler.node.groups.processes import ProcessTree

#: Programs that start ranks and would end them on a signal.
_STARTERS = frozenset(
    {"mpiexec", "mpiexec.hydra", "mpirun", "hydra_pmi_proxy", "orterun", "prterun", "prted"}
)


def signal_programs(tree: ProcessTree, number: int, *, to_script: bool) -> None:
    """Send a signal to the programs of a group on this host.

    Parameters
    ----------
    to_script : whether a script gets it alone, without what it has started.
    """
    assert tree.start is not None
    for number_of_parent in tree.start.ranks.running():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(number_of_parent)
            # The first process of a group with a script is the script itself.
            chosen = [process] if to_script else process.children(recursive=True)
            for each in chosen:
                _send(each, number)


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.Error):
        if process.name() not in _STARTERS:
            process.send_signal(number)  # verifies the start time of the process first

"""Signals reach programs, or a script alone, also after a restart of the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command_line import invoke
from waiting import wait_until

#: Either the script or its child gets the signal; the one that gets it makes a file of its name.
SCRIPT = """#!/bin/sh
#SBATCH --signal=B:USR1@60
trap 'touch script' USR1 USR2
sh -c 'trap "touch child; exit 7" USR1 USR2; touch up-1; while :; do sleep 0.05; done' &
until test -e child; do wait; done
wait $!
"""
PROGRAM = "trap 'exit 0' USR2; touch up-$PMI_RANK-2; while :; do sleep 0.05; done"


def test_signals_reach_those_that_they_are_for(served: Any) -> None:
    served.start("--processors", "3", "--scenario", "easy")

    def command(name: str, *words: object) -> None:
        invoke(name, "--dir", served.directory, *words, cwd=served.work)

    def there(name: str) -> Path:
        path = served.work / name
        wait_until(path.exists)
        return path

    (served.work / "job.sh").write_text(SCRIPT)
    command("batch", "--walltime", "1h", "job.sh")
    command("submit", "-n", 2, "--", "sh", "-c", PROGRAM)
    there("up-1"), there("up-0-2"), there("up-1-2")
    served.kill()
    served.start(*served.options)
    served.until(1, "RUNNING")
    command("update", 1, "--walltime", "60s")  # so that 60 s of it are left
    there("script").unlink()
    assert not (served.work / "child").exists()
    command("cancel", "--signal", "USR2", "1,2")
    assert served.wait(1).exit_code == 7
    assert not (served.work / "script").exists()
    assert served.wait(2).state == "COMPLETED"
    hook = "echo $RESHAPE_JOB $RESHAPE_JOB_STATE $RESHAPE_EXIT_CODE > told; echo done; mv told hook"
    command("submit", "-n", 1, "--hook-end", hook, "--", "sh", "-c", "exit 4")
    assert there("hook").read_text() == "3 FAILED 4\n"
    assert served.output(3).endswith("done\n")

"""Options that Slurm's commands do not have here: each is named before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.client.scripts.slurm_options import Known
from scheduler.client.slurm.programs import PROGRAMS, main

#: Command -> what follows its odd options, and these.
ODD = {
    "sbatch": (
        "--wrap true",
        "--foo --memm=4 --bogus=1 --walltime=3 --queue=x --procs=4 --max=8 --test-only -Z -y",
    ),
    "srun": (
        "true",
        "--foo --pty --label --jobid=3 --multi-prog --array=0-3 --bcast --wrap=x --epilog=x -Z",
    ),
    "squeue": (
        "",
        "--foo --json --iterate=3 --steps --account=x --nodelist=n1 --yaml --user-x -z -s",
    ),
    "sacct": ("", "--foo --json --long --accounts=x --nodes=n1 --units=M --whole --file=x -z -q"),
    "sinfo": (
        "",
        "--foo --json --states=idle --list-reasons --dead --responding --future -z -i -R",
    ),
    "scancel": (
        "1",
        "--foo --interactive --account=x --qos=x --nodelist=n --wckey=x --ctld --reserve=x -i -w",
    ),
    "scontrol": ("", "ping-x reboot shutdown takeover create delete write token abort suspend"),
    "salloc": ("", "-n --ntasks=2 --pty -N1 --time=3 bash --foo --x -J --exclusive"),
}


@pytest.mark.parametrize("command", PROGRAMS)
def test_an_odd_option_is_named(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RESHAPE_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("RESHAPE_ACCESS", raising=False)
    rest, options = ODD[command]
    assert len(options.split()) == 10
    for option in options.split():
        assert main(command, "RESHAPE_DIR", "", [option, *rest.split()]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f"{command}: error: ")
        named = option.partition("=")[0] if command != "salloc" else "salloc"
        assert named in told.err
        assert "service" not in told.err or command == "salloc"


def test_options_are_read_as_getopt_does() -> None:
    known = Known.of("list", "noheader:n exact:X", "jobs:j sort:S state:s", json="write it")
    assert known.parse(["-nXj", "1", "-j2", "--sta=R", "7", "--sort", "-p"]) == (
        {"noheader": "", "exact": "", "jobs": "1,2", "state": "R", "sort": "-p"},
        ["7"],
    )

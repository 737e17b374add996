"""Options that Slurm's commands do not have here: each is named before anything is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reshape.errors import ReshapeError
from scheduler.client.requests.slurm_manual import Known
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
        "--foo --json --iterate=3 --steps --account=x --licenses=a --yaml --user-x -z -s",
    ),
    "sacct": ("", "--foo --json --long --accounts=x --nodes=n1 --reason=M --qos=a --file=x -z -q"),
    "sinfo": (
        "",
        "--foo --json --sort=N --list-reasons --reservation --Format=x --yaml -z -i -R",
    ),
    "scancel": (
        "1",
        "--foo --interactive --account=x --qos=x --nodelist=n --wckey=x --cron --reserve=x -i -w",
    ),
    "scontrol": ("", "ping-x reboot shutdown takeover --json delete write token --fo suspend"),
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
        assert str(tmp_path) not in told.err, "nothing is asked of the service"


def test_options_are_read_as_getopt_does() -> None:
    known = Known.of(
        "list",
        "noheader:n exact:X jobs=:j sort=:S users|user=:u nice?",
        "all",
        {"json:J": "write it"},
    )
    arguments: list[str] = []
    words = ["-nXj", "1", "-j2", "--use=R", "7", "--sort", "-p", "--all"]
    options = {"noheader": "", "exact": "", "jobs": "1,2", "users": "R", "sort": "-p", "all": ""}
    assert known.parse(words, arguments=arguments) == options
    assert known.parse(["--nice", "5", "--nice=3"], arguments=arguments) == {"nice": "3"}
    assert arguments == ["7", "5"]
    for words, told in (
        (["--json"], "--json is not there: write it"),
        (["-nJ"], "--json (-J) is not there: write it"),
        (["--exact=yes"], "--exact has no value, got 'yes'"),
        (["--jobs"], "--jobs needs a value"),
        (["--jbos=3"], "list has no option --jbos; did you mean jobs?"),
        (["7"], "'7' is no option of list"),
    ):
        with pytest.raises(ReshapeError, match=re.escape(told)):
            known.parse(words)


def test_variables_stand_for_options(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known.of(
        "list", "all format=:o long:l name=", "", {"json": "write it"},
        "LIST_ALL LIST_FORMAT LIST_NAMES:name LIST_JSON",
    )  # fmt: skip
    for name, value in {"LIST_ALL": "1", "LIST_FORMAT": "%i", "LIST_NAMES": ""}.items():
        monkeypatch.setenv(name, value)
    assert known.parse([]) == {"all": "", "format": "%i"}
    assert known.parse(["-o%j"]) == {"all": "", "format": "%j"}
    assert known.parse(["-l"], ("format", "long")) == {"all": "", "long": ""}
    monkeypatch.setenv("LIST_ALL", "false")
    assert known.parse([]) == {"format": "%i"}
    monkeypatch.setenv("LIST_JSON", "1")
    with pytest.raises(ReshapeError, match="LIST_JSON: --json is not there: write it"):
        known.parse([])

"""Advance reservations of a real service: commands, waiting jobs, recovery and replay."""

from __future__ import annotations

import getpass
import json
from datetime import datetime, timedelta
from typing import Any

from click.testing import CliRunner

from reshape.__main__ import main
from scheduler.protocol import messages as m
from scheduler.text.formats import format_moment


def call(served: Any, *words: str, code: int = 0) -> str:
    """Run a command of `reshape` for the service and return its output."""
    place = ["--dir", str(served.directory)]
    result = CliRunner().invoke(main, [words[0], *words[1:2], *place, *words[2:]])
    assert result.exit_code == code, result.output
    return result.output


def info_of(served: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(served, "reserve", "info", name, "--json"))[0]
    return found


def create(served: Any, name: str, begins_in_s: float) -> dict[str, Any]:
    """Reserve three processors for ten minutes."""
    start = (datetime.now() + timedelta(seconds=begins_in_s)).isoformat()
    created = call(
        served, "reserve", "create", "--name", name, "--processors", "3", "--start", start,
        "--duration", "10:00", "--user", getpass.getuser(), "--json",
    )  # fmt: skip
    (reservation,) = json.loads(created)
    assert (reservation["state"], reservation["processors"]) == ("INACTIVE", 3)
    found: dict[str, Any] = reservation
    return found


def test_a_reservation_keeps_its_processors_for_its_jobs(served: Any) -> None:
    """Also after the service was killed, and the journal replays to the same decisions."""
    served.start("--processors", "4", "--scenario", "easy")
    reservation = create(served, "course", begins_in_s=1800.0)
    early = ("--processors", "2", "--duration", "1:00:00")
    refused = call(served, "reserve", "create", *early, code=1)
    assert "because of reservation course; they are from 20" in refused

    inside = served.submit(["true"], 3, walltime_s=60.0, reservation="course")
    long = served.submit(["true"], 2, walltime_s=3600.0)
    short = served.submit(["true"], 2, walltime_s=600.0)
    assert served.wait(short).state == "COMPLETED"
    assert served.job(long).state == "PENDING"
    assert "reservation course begins at 20" in served.story(inside)
    assert "not available until it would end (course)" in served.story(long)
    forecast = call(served, "queue", "--start")
    assert format_moment(reservation["begin"]) in forecast
    assert format_moment(reservation["end"]) in forecast, "start of the long job"

    served.kill()
    served.start()
    assert info_of(served, "course")["queued"] == [inside]
    soon = create(served, "soon", begins_in_s=2.0)
    started = served.submit(["true"], 3, walltime_s=60.0, reservation="soon")
    job = served.wait(started)
    assert job.state == "COMPLETED"
    assert job.started_at >= soon["begin"]
    assert served.job(long).state == served.job(inside).state == "PENDING"
    assert info_of(served, "soon")["state"] == "ACTIVE"

    served.ask(m.ChangeJobs.one(inside, m.CancelJob()))
    for name in ("soon", "course"):
        call(served, "reserve", "cancel", name)
    assert served.wait(long).state == "COMPLETED"
    assert "course" not in call(served, "reserve", "list")
    served.end()
    replayed = CliRunner().invoke(main, ["replay", str(served.directory)])
    assert replayed.exit_code == 0, replayed.output
    assert "identical" in replayed.output


def test_submissions_to_a_reservation_are_checked(served: Any) -> None:
    served.start("--processors", "4", "--scenario", "easy")
    call(
        served, "reserve", "create", "--name", "r", "--processors", "2", "--duration", "10:00",
        "--users", "ann,bob", "--start", "now+1:00:00",
    )  # fmt: skip
    assert "r " in call(served, "reserve", "list")
    described = call(served, "reserve", "info", "r").splitlines()
    told = dict(line.split(maxsplit=1) for line in described)
    assert (told["Name:"], told["Duration:"], told["Procs:"]) == ("r", "00:10:00", "2")
    assert (told["Users:"], told["Jobs:"], told["Queued:"]) == ("ann,bob", "-", "-")
    for options, message in (
        (("--reservation", "s"), "there is no reservation 's'"),
        (("--reservation", "r"), "may not use reservation r, only ann, bob"),
    ):
        result = CliRunner().invoke(
            main, ["submit", "--dir", str(served.directory), "-n", "1", *options, "--", "true"]
        )
        assert result.exit_code == 1
        assert message in result.output
    for words, message in (
        (("--duration", "5:00"), "give either --processors or --nodes"),
        (("--processors", "2", "--nodes", "local", "--duration", "5"), "give either"),
    ):
        assert message in call(served, "reserve", "create", *words, code=2)
    missing = call(served, "reserve", "create", "--nodes", "x", "--duration", "5:00", code=1)
    assert "there is no node 'x'" in missing
    past = ("--processors", "1", "--duration", "5:00", "--start", "2020-01-01")
    assert "would end before now" in call(served, "reserve", "create", *past, code=1)
    assert "there is no reservation 'q'" in call(served, "reserve", "cancel", "q", code=1)

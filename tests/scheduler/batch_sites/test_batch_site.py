"""A site that stands for a batch system, through PSI/J and real processes of this machine."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire import messages as m
from scheduler.batch_sites.site import BatchSite
from scheduler.client.asking import list_jobs, service_info, wait_for
from scheduler.client.forecasting import expected_starts
from scheduler.client.sites.records import RETRIED_S
from scheduler.client.sites.submitting import OutcomeUnknownError, retry

pytest.importorskip("psij", reason="the extra 'psij' is not installed")

#: PSI/J does not close the pipes of its processes.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
#: The client dies when it calls this function for the nth time.
DIES = """
import importlib, os, signal, sys
module, name, count = importlib.import_module({module!r}), {name!r}, [0]
original = getattr(module, name)
def dying(*arguments, **options):
    count[0] += 1
    if count[0] == {nth}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **options)
setattr(module, name, dying)
from reshape.__main__ import main
main(sys.argv[1:])
"""


class Site:
    """The sites file of one batch site of two processors, and the commands that act on it."""

    def __init__(self, here: Path) -> None:
        self.here, self.sites, self.file = here, here / "sites.yaml", here / "local.yaml"
        self.file.write_text("system: psij-local\njobs: jobs\nprocessors_per_node: 2\n")
        self.sites.write_text("sites: [{name: here, batch: local.yaml}]\n")

    def run(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.started([sys.executable, "-m", "reshape", *map(str, words)], code)

    def started(self, command: list[str], code: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.here, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def submission(self, script: str, *options: object) -> list[str]:
        words = ("submit", "--sites", self.sites, "--metric", "queue", "-n", 1, *options)
        return [*map(str, words), "--", "sh", "-c", script]

    def submit(self, script: str, *options: object, code: int = 0) -> str:
        done = self.run(*self.submission(script, *options), code=code)
        return done.stdout + done.stderr


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("RESHAPE_SUBMISSIONS", str(tmp_path / "records"))
    yield Site(tmp_path)
    gc.collect()


def test_a_job_from_submission_to_end(site: Site) -> None:
    script = "echo $PMI_RANK; while [ ! -e go ]; do sleep 0.1; done"
    out = site.submit(script, "-n", 2, "--name", "ranks")
    assert "submitted job here:1, key " in out
    listing = site.run("queue", "--sites", site.sites).stdout.splitlines()
    assert listing[1].split()[:3] == ["here", "1", "ranks"]
    explained = site.run("explain", "--sites", site.sites, "here:last").stdout
    assert "submitted to psij-local as " in explained
    (site.here / "go").touch()
    ended = site.run("wait", "--sites", site.sites, "here:1").stdout
    assert ended == "job here:1: COMPLETED 0:0\n"
    assert sorted((site.here / "reshape-1.out").read_text().split()) == ["0", "1"]
    assert site.run("queue", "--sites", site.sites).stdout.splitlines()[1:] == []
    failed = site.run(*site.submission("exit 7", "--wait"), code=7)
    assert "job here:2: FAILED 7:0" in failed.stdout
    found = service_info(site.file)
    assert (found.queued, found.running, found.ended) == (0, 0, 2)


def test_a_job_can_be_cancelled(site: Site) -> None:
    site.submit("sleep 60")
    with pytest.raises(ServiceUnavailable, match=r"job 1 has not ended within 0.1 s"):
        BatchSite(site.file).request(m.Wait(job=1), 0.1)
    assert site.run("cancel", "--sites", site.sites, "here:1").stdout == "cancelled job here:1\n"
    ended = site.run("wait", "--sites", site.sites, "here:1", code=128 + signal.SIGTERM)
    assert ended.stdout == "job here:1: CANCELLED 0:15\n"
    again = site.run("cancel", "--sites", site.sites, "here:1", code=1)
    assert "job 1 has ended already (CANCELLED)" in again.stderr
    unknown = site.run("wait", "--sites", site.sites, "here:2", code=1)
    assert "there is no job 2" in unknown.stderr


def test_it_gives_no_quotes_and_says_so(site: Site) -> None:
    refused = site.run(*site.submission("true", "--metric", "wait"), code=3)
    assert "site here is passed over: it quotes no start" in refused.stderr
    table = site.run(*site.submission("true", "--test-only"))
    assert table.stdout.splitlines()[1].endswith("it gives no quotes")
    found = json.loads(site.run(*site.submission("true", "--test-only", "--json")).stdout)
    assert found["chosen"] == "here"
    assert found["sites"][0]["quote"]["start"] is None
    assert service_info(site.file).ended == 0, "nothing was submitted"
    with pytest.raises(ReshapeError, match="the batch system psij-local gives no quotes"):
        expected_starts(site.file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-n", 3], "the job asks for 3 processors and psij-local gives a job at most 2"),
        (["--requeue"], "--requeue needs a service; a job of psij-local runs without one"),
        (["--reservation", "ours"], "--reservation needs a service"),
    ],
)
def test_what_it_cannot_run_is_refused(site: Site, options: list[object], message: str) -> None:
    assert message in site.submit("true", *options, code=3)
    assert service_info(site.file).ended == 0


@pytest.mark.parametrize(
    ("module", "name", "nth", "is_sent"),
    [
        ("scheduler.client.sites.records", "write", 1, False),
        ("scheduler.batch_sites.job_records", "write_durably", 1, True),  # the open job
        ("scheduler.batch_sites.job_records", "write_durably", 2, True),  # the number
        ("scheduler.batch_sites.job_records", "write_durably", 3, True),  # the job
        ("scheduler.batch_systems.recorded", "write_note", 2, True),  # the attempt
        ("scheduler.batch_systems.recorded", "write_note", 3, True),  # the id, after the submission
        ("scheduler.batch_sites.job_records", "write_durably", 4, True),  # the job with the id
        ("scheduler.client.sites.records", "write", 2, True),  # accepted
    ],
)
def test_a_client_that_is_killed_at_any_step_leaves_one_job(
    site: Site, module: str, name: str, nth: int, is_sent: bool
) -> None:
    program = DIES.format(module=module, name=name, nth=nth)
    words = site.submission("echo once; sleep 0.3", "--key", "K", "--output", "out")
    site.started([sys.executable, "-c", program, *words], -signal.SIGKILL)
    if not is_sent:
        with pytest.raises(ReshapeError, match="no submission with the key K was sent"):
            retry("K", 5.0)
        return
    assert retry("K", 5.0).job == retry("K", 5.0).job == 1
    ended = wait_for(site.file, 1)
    assert ended is not None
    assert (ended.state, ended.exit_code) == ("COMPLETED", 0)
    assert [job.job for job in list_jobs(site.file, ended=True).jobs] == [1]
    assert (site.here / "out").read_text() == "once\n"


def test_without_an_answer_the_outcome_is_not_known(site: Site) -> None:
    folder = site.here / "jobs" / "jobs"
    folder.mkdir(parents=True)
    (folder / "K").write_text("in the way")
    submission = m.Submission(argv=["true"], processors=1, walltime_s=60.0, key="K")
    with pytest.raises(ServiceUnavailable, match=r"K/job.json cannot be read: "):
        BatchSite(site.file).request(m.Submit(submission=submission), 5.0)


def test_an_accepted_job_is_found_again_though_its_site_has_become_smaller(site: Site) -> None:
    site.submit("sleep 0.1", "-n", 2, "--key", "K")
    site.file.write_text("system: psij-local\njobs: jobs\nprocessors_per_node: 1\n")
    retried = site.run("submit", "--sites", site.sites, "--retry", "K").stdout
    assert retried == "submitted job here:1, key K\n"
    submission = m.Submission(argv=["true"], processors=2, walltime_s=60.0, key="K")
    answer = BatchSite(site.file).request(m.Submit(submission=submission), 5.0)
    assert isinstance(answer, m.Submitted)
    assert answer.job == 1


def test_a_submission_is_not_repeated_after_its_site_may_have_removed_it(site: Site) -> None:
    lost = ("scheduler.client.sites.records", "write", 2)  # accepted, which the client cannot note
    program = DIES.format(module=lost[0], name=lost[1], nth=lost[2])
    words = site.submission("echo once", "--key", "K", "--output", "out")
    site.started([sys.executable, "-c", program, *words], -signal.SIGKILL)
    record = site.here / "records" / "K.json"
    written = record.stat().st_mtime
    (site.here / "jobs" / "jobs").rename(site.here / "away")
    (site.here / "jobs" / "jobs").write_text("in the way")
    with pytest.raises(OutcomeUnknownError, match="site here cannot be asked"):
        retry("K", 5.0)
    assert record.stat().st_mtime == written, "a repetition does not make the record younger"
    os.utime(record, (written, written - RETRIED_S - 1.0))
    with pytest.raises(ReshapeError, match="was sent to site here more than 30 days ago"):
        retry("K", 5.0)
    assert record.exists()


def test_other_requests_are_refused(site: Site) -> None:
    with pytest.raises(ReshapeError, match=r"ListNodes needs a service; .*local.yaml is a batch"):
        BatchSite(site.file).request(m.ListNodes(), 5.0)


def test_an_unknown_batch_system_is_named(site: Site) -> None:
    site.file.write_text("system: sge\njobs: jobs\nprocessors_per_node: 2\n")
    assert "there is no batch system 'sge': use slurm, psij-slurm" in site.submit("true", code=3)

"""The choice between sites by their answers, questions at once, and records of submissions."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import msgspec
import pytest
from job_infos import ended

from reshape.errors import ReshapeError
from scheduler import Client
from scheduler.client.sites.answers import SiteAnswers, at_once, at_site
from scheduler.client.sites.sites_file import Site
from scheduler.client.sites.submitting import (
    KEPT_S,
    SubmissionRecord,
    ranked,
    read_record,
    remove_old_records,
    remove_record,
    request_of,
    retry,
    write_record,
)
from scheduler.forecasts.answers import Quote
from scheduler.protocol import messages as m

SUBMISSION = m.Submission(argv=["true"], processors=2, walltime_s=3600.0)


def answers(
    name: str, wait_s: float | None, price: float = 1.0, queued: int = 0, work: float = 0.0
) -> SiteAnswers:
    info = m.Info(
        pid=1,
        started_at=0.0,
        now=0.0,
        scenario="easy",
        processors=4,
        free=1,
        nodes=[],
        queued=queued,
        running=2,
        ended=3,
        directory="",
        version="",
    )
    quoted = Quote(0.0, None, None, None, None, "", ())
    if wait_s is not None:
        quoted = Quote(0.0, wait_s, wait_s + 3600, wait_s, 1 + wait_s / 3600, "0-1", ())
    jobs = [ended(1, 0.0, None, 0.0, requested=1, walltime_s=work)]
    return SiteAnswers(Site(name, name, cost_per_unit=price), info, quoted, jobs)


SITES = [
    answers("a", 60.0, price=9.0, queued=3, work=50.0),
    answers("b", 600.0, price=1.0, queued=2, work=90.0),
    answers("c", None, price=0.5, queued=1, work=70.0),
]


@pytest.mark.parametrize(
    ("metric", "order", "left_out"),
    [
        ("wait", "ab", "c"),
        ("slowdown", "ab", "c"),
        ("cost", "ba", "c"),
        ("work", "acb", ""),
        ("queue", "cba", ""),
    ],
)
def test_sites_are_ordered_by_the_metric(metric: str, order: str, left_out: str) -> None:
    found, without = ranked(metric, request_of(SUBMISSION), SITES)
    assert "".join(site.name for site in found) == order
    assert "".join(without) == left_out


def test_a_cost_limit_leaves_dear_sites_out() -> None:
    found, without = ranked("wait", request_of(SUBMISSION, 5.0), SITES[:2])
    assert [site.name for site in found] == ["b"]
    assert without == {"a": "the job would cost 18, above 5"}


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ReshapeError, match="--metric: 'waits' is no metric; did you mean wait"):
        ranked("waits", request_of(SUBMISSION), SITES)


def test_a_site_gets_the_walltime_for_its_speed() -> None:
    slow = Site("a", "a", cpu_factor=2.5)
    assert at_site(SUBMISSION, slow).walltime_s == 9000.0


def test_sites_that_fail_or_are_late_do_not_hold_up_the_others() -> None:
    is_over = threading.Event()

    def question(site: Site, _client: Client) -> str:
        if site.name == "late":
            is_over.wait()
        if site.name == "away":
            raise ReshapeError("no service there")
        return site.name.upper()

    sites = [Site(name, name) for name in ("late", "away", "good")]
    found = at_once(sites, question, 0.3)
    is_over.set()
    assert found == (
        {"good": "GOOD"},
        {"away": "no service there", "late": "did not answer within 0.3 s"},
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESHAPE_SUBMISSIONS", str(tmp_path / "records"))
    return tmp_path / "records"


def test_a_record_is_private_and_can_be_read_again(folder: Path) -> None:
    record = SubmissionRecord("k", "a", "/a", SUBMISSION)
    write_record(record)
    assert read_record("k") == record
    assert stat.S_IMODE((folder / "k.json").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["k.json"]
    remove_record("k")
    assert read_record("k") is None


def test_old_records_of_accepted_submissions_are_removed(folder: Path) -> None:
    kept = {
        "sent": SubmissionRecord("sent", "a", "/a", SUBMISSION),
        "accepted": SubmissionRecord("accepted", "a", "/a", None, 7),
    }
    for record in kept.values():
        write_record(record)
    for key, age_s in {"accepted": KEPT_S - 60, "sent": KEPT_S + 60}.items():
        os.utime(folder / f"{key}.json", (time.time() - age_s,) * 2)
    remove_old_records()
    assert {key: read_record(key) for key in kept} == kept
    os.utime(folder / "accepted.json", (time.time() - KEPT_S - 60,) * 2)
    remove_old_records()
    assert read_record("accepted") is None
    assert read_record("sent") == kept["sent"]


def test_a_damaged_record_and_a_wrong_key_are_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "k.json").write_text("{")
    with pytest.raises(ReshapeError, match="cannot be read"):
        read_record("k")
    with pytest.raises(ReshapeError, match="is no submission key"):
        read_record("../k")


def test_an_accepted_submission_is_not_sent_again(folder: Path) -> None:
    write_record(SubmissionRecord("k", "a", "/nowhere", None, 7))
    assert retry("k", 1.0).job == 7
    with pytest.raises(ReshapeError, match="no submission with the key other"):
        retry("other", 1.0)


def test_a_request_has_the_sizes_of_the_submission() -> None:
    """Sizes that the sites refuse are left to them, whose errors name the options."""
    for least, most, sizes in (
        (1, 8, (1, 2, 8)),
        (None, None, (2, 2, 2)),
        (3, 1, (2, 2, 2)),
    ):
        asked = msgspec.structs.replace(SUBMISSION, min_processors=least, max_processors=most)
        spec = request_of(asked).spec
        assert (spec.min_processors, spec.processors, spec.largest) == sizes
        sent = at_site(asked, Site("a", "a"))
        assert (sent.min_processors, sent.max_processors) == (least, most)

"""A service that answers with another message than it should: one clear error, nothing is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from answering import service
from command_line import invoke

from reshape.errors import ReshapeError
from reshape.wire.codec import encode
from reshape.wire.connection import SERVER_FILE, ServerFile
from scheduler.client.sites.submitting import (
    RECORDS_VARIABLE,
    OutcomeUnknownError,
    SubmissionRecord,
    read_record,
    send,
    write_record,
)
from scheduler.protocol import messages as m

ERROR = "the service sends the answer Done where {} is expected: use the same release on both sides"


@pytest.fixture
def confused(tmp_path: Path) -> Iterator[Path]:
    """Directory of a service that answers everything with Done."""
    endpoint = f"ipc://{tmp_path}/socket"
    file = ServerFile(endpoint=endpoint, pid=os.getpid(), started_at=time.time())
    (tmp_path / SERVER_FILE).write_bytes(msgspec.json.encode(file))
    with service(endpoint, lambda message: [encode(m.Done(id=message.id))]):
        yield tmp_path


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["node", "list"], "Nodes"),
        (["pool", "list"], "PoolList"),
        (["reserve", "list"], "Reservations"),
        (["history"], "JobListing"),
        (["queue"], "JobListing"),
        (["explain"], "Explanation"),
        (["submit"], "Submitted"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_command_names_the_answer_that_it_does_not_expect(
    confused: Path, command: list[str], kind: str
) -> None:
    rest = {"explain": ["7"], "submit": ["-n", "1", "--walltime", "60", "true"]}
    told = invoke(*command, "--dir", confused, *rest.get(command[0], []), code=1)
    assert told.stderr == f"reshape: error: {ERROR.format(kind)}\n"


def test_a_submission_to_a_site_with_a_wrong_answer_is_kept(
    confused: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the site has the job is not known, so the record of the submission stays."""
    monkeypatch.setenv(RECORDS_VARIABLE, str(tmp_path / "records"))
    submission = m.Submission(argv=["true"], processors=1, walltime_s=60.0, key="k")
    record = SubmissionRecord("k", "here", str(confused), submission)
    write_record(record)
    with pytest.raises(OutcomeUnknownError, match="Submitted is expected"):
        send(record, 5.0)
    assert read_record("k") == record


def test_a_record_without_what_is_to_be_sent_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RECORDS_VARIABLE, str(tmp_path))
    submission = m.Submission(argv=["true"], processors=1, walltime_s=60.0, key="k")
    write_record(SubmissionRecord("k", "here", "/service", submission))
    [path] = tmp_path.iterdir()
    damaged = {**msgspec.json.decode(path.read_bytes()), "submission": None}
    path.write_bytes(msgspec.json.encode(damaged))
    with pytest.raises(ReshapeError, match=f"{path.name}.*neither a submission nor"):
        read_record("k")

"""`reshape access`, and the choice between --access and --dir."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reshape.__main__ import main
from reshape.wire.access import read_access
from scheduler.node.access_keys import AccessKeys
from scheduler.node.directory import ServiceDirectory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = ServiceDirectory(tmp_path / "service")
    place.create()
    AccessKeys(place.path, place.owner).prepare("tcp://127.0.0.1:9")
    return place.path


def run(*words: str | Path, code: int = 0, **environment: str) -> Result:
    done = CliRunner().invoke(main, [str(word) for word in words], env=environment)
    assert done.exit_code == code, done.output
    return done


def test_create_list_and_revoke(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    run("access", "create", "--dir", directory, "--user", "ann", "--expires", "2-0", "-o", path)
    access = read_access(path)
    assert (access.role, access.user, access.endpoint) == ("user", "ann", "tcp://127.0.0.1:9")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert access.secret_key not in repr(access)
    listed = json.loads(run("access", "list", "--dir", directory, "--json").stdout)
    assert [key["role"] for key in listed] == ["administrator", "agent", "job", "user"]
    assert listed[3]["public_key"] == access.public_key
    assert listed[3]["expires_at"] == access.expires_at
    assert "key 4 of ann" in run("access", "revoke", "--dir", directory, "4").output
    assert "ann" not in run("access", "list", "--dir", directory).output
    done = run("access", "revoke", "--dir", directory, "4", code=1)
    assert "there is no key 4" in done.output
    assert "there is no service directory" in run("access", "list", "--dir", path, code=1).output


def test_what_cannot_be_created(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "taken.json"
    path.write_text("")
    words = ("access", "create", "--user", "ann", "-o", path, "--dir")
    assert f"{path} exists" in run(*words, directory, code=1).output
    listed = json.loads(run("access", "list", "--dir", directory, "--json").stdout)
    assert len(listed) == 3
    other = tmp_path / "other"
    assert "reshape serve --listen HOST:PORT" in run(*words, other, code=1).output


def test_an_access_file_that_others_can_read_is_refused(directory: Path) -> None:
    path = directory / "access/admin.json"
    path.chmod(0o640)
    done = run("queue", "--access", path, code=1)
    assert f"'chmod 600 {path}'" in done.output


def test_which_service_a_command_uses(directory: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.touch(mode=0o600)
    empty = tmp_path / "empty"
    by_access, by_directory = f"{broken} is damaged", f"no scheduler service in {empty}"
    both = {"RESHAPE_ACCESS": str(broken), "RESHAPE_DIR": str(empty)}
    assert by_access in run("queue", "--access", broken, code=1).output
    assert by_access in run("queue", code=1, **both).output
    assert by_directory in run("queue", "--dir", empty, code=1, **both).output
    done = run("queue", "--dir", empty, "--access", broken, code=2)
    assert "--access and --dir both name a service" in done.output
    done = run("queue", "--dir", broken, code=2)
    assert f"{broken} is a file; an access file needs --access" in done.output
    done = run("queue", "--access", tmp_path / "missing.json", code=2)
    assert "there is no access file" in done.output

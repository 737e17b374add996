"""`reshape doctor --dir`: faults of a service directory, each with its fix."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from reshape.doctor.command import doctor
from scheduler.node.access_keys import AccessKeys
from scheduler.node.directory import ServiceDirectory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = ServiceDirectory(tmp_path / "service")
    place.create()
    AccessKeys(place.path, place.owner).prepare("tcp://127.0.0.1:7077")
    return place.path


def faults(directory: Path) -> dict[str, dict[str, str]]:
    done = CliRunner().invoke(doctor, ["--dir", str(directory), "--json"])
    checks = json.loads(done.stdout)["checks"]
    found = {check["name"]: check for check in checks if check["status"] == "fault"}
    assert done.exit_code == int(bool(found))
    return found


def test_a_directory_without_faults(directory: Path) -> None:
    assert faults(directory) == {}


def test_no_directory(tmp_path: Path) -> None:
    (check,) = faults(tmp_path / "none").values()
    assert check["mend"] == f"reshape serve --dir {tmp_path / 'none'}"


@pytest.mark.parametrize("name", [".", "secret", "access", "access/admin.json", "access/keys.json"])
def test_a_file_that_is_open_to_others_and_its_fix(directory: Path, name: str) -> None:
    path = directory / name
    path.chmod(path.stat().st_mode | 0o044)
    (check,) = faults(directory).values()
    assert "other users have access" in check["meaning"]
    subprocess.run(check["mend"].split(), check=True)
    assert faults(directory) == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user(directory: Path) -> None:
    os.chown(directory / "secret", 65534, 65534)
    assert faults(directory)["secret"]["result"] == "belongs to user 65534"


def test_keys_that_do_not_match(directory: Path) -> None:
    admin, server = directory / "access/admin.json", directory / "access/server.json"
    admin.write_text("{}")
    assert list(faults(directory)) == ["access/admin.json"]
    admin.unlink()
    keys = json.loads(server.read_text())
    server.write_text(json.dumps(keys | {"public_key": keys["public_key"][::-1]}))
    found = faults(directory)
    assert found["access/server.json"]["result"] == "the public key does not match the secret key"
    assert found["access/agent.json"]["result"] == "it names another key of the service"


def test_an_access_file_with_another_endpoint(directory: Path) -> None:
    server = directory / "access/server.json"
    server.write_text(server.read_text().replace("7077", "7078"))
    assert "the service listens on tcp://127.0.0.1:7078" in str(
        faults(directory)["access/job.json"]
    )

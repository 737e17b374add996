"""`reshape doctor --dir`: faults of a service directory, each with its fix."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from ports import free_port

from reshape.doctor.checks import check_account, check_listener
from reshape.doctor.command import doctor
from reshape.errors import ReshapeError
from scheduler.node.access_keys import AccessKeys
from scheduler.node.directory import ServiceDirectory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = ServiceDirectory(tmp_path / "service")
    place.create()
    AccessKeys(place.path, place.owner).prepare(f"tcp://127.0.0.1:{free_port()}")
    return place.path


def port_of(directory: Path) -> int:
    keys = json.loads((directory / "access/server.json").read_text())
    return int(keys["endpoint"].rpartition(":")[2])


@contextmanager
def running(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Let a process that does nothing be the service of a directory."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        file = {"endpoint": f"ipc://{directory}/socket", "pid": process.pid, "started_at": 0.0}
        (directory / "server.json").write_text(json.dumps(file))
        try:
            yield process
        finally:
            process.kill()


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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_no_fix_takes_over_the_folder_of_a_user_who_took_its_name(directory: Path) -> None:
    taken = ServiceDirectory(directory).memory
    taken.mkdir()
    os.chown(taken, 65534, 65534)
    try:
        assert faults(directory) == {}
        done = CliRunner().invoke(doctor, ["--dir", str(directory), "--json"])
        assert f"{taken} belongs to user 65534, who has taken its name" in done.stdout
        assert "chown" not in done.stdout
    finally:
        taken.rmdir()


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
    endpoint, other = f"127.0.0.1:{port_of(directory)}", f"127.0.0.2:{port_of(directory)}"
    server.write_text(server.read_text().replace(endpoint, other))
    assert f"the service listens on tcp://{other}" in str(faults(directory)["access/job.json"])


@pytest.mark.parametrize("name", ["secret", "memory-folder"])
def test_an_empty_file(directory: Path, name: str) -> None:
    (directory / name).write_text("")
    assert faults(directory)[name]["result"] == "is empty"
    place = ServiceDirectory(directory)
    read = place.read_secret if name == "secret" else lambda: str(place.memory)
    with pytest.raises(ReshapeError, match=f"{name} is empty: end the service, remove this file"):
        read()


def test_a_disk_without_room(directory: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "none", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        assert faults(directory)["room"]["meaning"] == "submissions are refused"
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_listener_that_is_taken_missing_or_there(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", port_of(directory))):
        assert "another program listens there" in faults(directory)["listener"]["meaning"]
    checked = str(check_listener(f"tcp://127.0.0.1:{port_of(directory)}", os.getpid()))
    assert "the service does not listen on" in checked
    with socket.create_server(("127.0.0.1", port_of(directory))):
        check = check_listener(f"tcp://127.0.0.1:{port_of(directory)}", os.getpid())
        assert (check.status, "accepts connections" in check.result) == ("ok", True)
    with socket.create_server(("127.0.0.1", port_of(directory))):
        unreachable = check_listener(f"tcp://127.0.0.9:{port_of(directory)}", os.getpid())
    assert unreachable.status == "fault"


def test_open_files_of_the_service(directory: Path) -> None:
    with running(directory) as service:
        assert faults(directory) == {}
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (3, 3))
        assert faults(directory)["open files"]["result"] == "3 of 3 (hard limit 3)"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("50000:50010", "of 50000 to 50010 free"),
        ("50000", "MPICH_PORT_RANGE is '50000'"),
        ("70000:80000", "MPICH_PORT_RANGE is '70000:80000'"),
    ],
)
def test_ports_for_mpi(
    directory: Path, monkeypatch: pytest.MonkeyPatch, text: str, result: str
) -> None:
    monkeypatch.setenv("MPICH_PORT_RANGE", "20000:30000")
    assert faults(directory) == {}
    monkeypatch.setenv("MPICH_PORT_RANGE", text)
    assert result in faults(directory)["MPI ports"]["result"]


def test_the_account_of_a_service_with_keys(directory: Path) -> None:
    assert check_account(0).status == "note"
    assert check_account(0).meaning == "every key gives root on all nodes"
    assert check_account(65534).status == "ok"
    done = CliRunner().invoke(doctor, ["--dir", str(directory), "--json"])
    names = [check["name"] for check in json.loads(done.stdout)["checks"]]
    assert "account" in names

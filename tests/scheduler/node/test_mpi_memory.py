"""Files of MPI libraries that killed processes have left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.node import leftovers
from scheduler.node.leftovers import remove_mpi_files

#: Maps a file without keeping it open, until a line is read.
MAPS = """
import mmap, sys
with open(sys.argv[1], sys.argv[2] + "b") as file:
    mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev/shm."""
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path)
    return tmp_path


def test_files_of_mpi_libraries_that_no_process_uses_are_removed(memory: Path) -> None:
    for name in ("mpich_shm_1a_0", "mpich_vci_1a", "ucx_shm_posix_1a", "mpich_shm_1a.txt", "other"):
        (memory / name).touch()
    with (memory / "mpich_shm_open_0").open("w"):
        remove_mpi_files()
        assert set(os.listdir(memory)) == {"mpich_shm_open_0", "mpich_shm_1a.txt", "other"}
    remove_mpi_files()
    assert set(os.listdir(memory)) == {"mpich_shm_1a.txt", "other"}


@pytest.mark.skipif(os.getuid() != 0, reason="files of another user need root")
def test_files_of_other_users_stay(memory: Path) -> None:
    (memory / "mpich_shm_1a_0").touch()
    os.chown(memory / "mpich_shm_1a_0", 65534, 65534)
    remove_mpi_files()
    assert os.listdir(memory) == ["mpich_shm_1a_0"]


@pytest.mark.parametrize("access", ["r", "r+"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["visible", "in another pid namespace"])
def test_a_file_that_a_process_maps_stays_until_the_process_ends(
    memory: Path, access: str, elsewhere: bool
) -> None:
    if elsewhere and os.getuid() != 0:
        pytest.skip("a pid namespace needs root")
    (memory / "mpich_shm_used_0").write_bytes(bytes(4096))
    inside = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"] if elsewhere else []
    words = [*inside, sys.executable, "-c", MAPS, str(memory / "mpich_shm_used_0"), access]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mapped\n"
        remove_mpi_files()
        assert (memory / "mpich_shm_used_0").exists()
        process.communicate(b"\n", 10)
    remove_mpi_files()
    assert not (memory / "mpich_shm_used_0").exists()


def test_a_link_is_not_followed(memory: Path) -> None:
    (memory / "other").touch()
    (memory / "mpich_shm_link_0").symlink_to(memory / "other")
    remove_mpi_files()
    assert (memory / "other").exists()

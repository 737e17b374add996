"""The public names of `reshape` and `redistribution`: which there are, and their types."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from paths import ROOT, SUPPORT

import redistribution
import reshape
from reshape.app import Application
from reshape.data.arrays import Array
from reshape.data.particles import Particles
from reshape.data.ragged import Items
from reshape.data.sparse import Csr
from reshape.data.stencils import BlockArray
from reshape.data.streams import ItemStreams, RankStream, Streams

#: What programs use. A name that is left out or renamed breaks them: see CONTRIBUTING.md, Commits.
NAMES: dict[object, str] = {
    reshape: "ReshapeError __version__ application",
    redistribution: (
        "BlockCyclic Blocks Cuts Dealt Layout Plan Replicated balanced_grid checksum relabel"
    ),
    Application: (
        "block_cyclic blocks checkpoint comm csr each_size is_fresh_start items iterations "
        "particles progress replicated report request rng rows state topology"
    ),
    Array: "dtype gather layout load local name neighbours save shape",
    BlockArray: "dtype exchange gather halo layout load local name neighbours periodic save shape",
    Csr: "assemble gather layout local name shape",
    Items: "gather local name",
    Particles: "dtype gather load local migrate name save",
    Streams: "local",
    ItemStreams: "of",
    RankStream: "local",
}
#: Names of registered data that the runtime uses, and programs do not.
INNER = {
    *(
        "allocate",
        "as_saved",
        "begin",
        "commit",
        "counts",
        "cuts",
        "declaration",
        "earlier_parts",
        "expected_bytes",
        "followers",
        "job",
    ),
    *("next_cuts", "next_rows", "pack", "parts", "place", "receive", "restore", "roll_back"),
    *("segment", "total_bytes", "vacate", "values", "withdraw"),
}


def names_of(owner: object) -> list[str]:
    """Public names that a module exports, or those of a class with its bases."""
    if inspect.ismodule(owner):
        return sorted(owner.__all__)
    return sorted(name for name in dir(owner) if not name.startswith("_") and name not in INNER)


@pytest.mark.parametrize(
    ("owner", "names"), NAMES.items(), ids=[getattr(o, "__name__", "") for o in NAMES]
)
def test_the_public_names(owner: object, names: str) -> None:
    assert names_of(owner) == names.split()


def test_every_parameter_and_result_has_a_type() -> None:
    missing = []
    for owner in NAMES:
        for name in names_of(owner):
            thing = inspect.getattr_static(owner, name, None) or getattr(owner, name)
            function = thing.fget if isinstance(thing, property) else thing
            if not inspect.isfunction(function):
                continue
            signature = inspect.signature(function)
            given = {"return": signature.return_annotation} | {
                key: each.annotation for key, each in signature.parameters.items() if key != "self"
            }
            empty = inspect.Signature.empty
            missing += [f"{name}({key})" for key, each in given.items() if each is empty]
    assert missing == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["typed_program", "typed_client"])
def test_a_typed_program_passes_strict_checks(name: str) -> None:
    """It uses all kinds of registered data, or both clients, and asserts what their types are."""
    program = SUPPORT / f"{name}.py"
    options = ["--strict", "--no-incremental", "--follow-imports=silent"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--config-file=", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""The files of checkpoints without MPI: local parts of any layout are read in any other."""

from __future__ import annotations

import math
import os
import shutil
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_cut

from redistribution import Layout
from reshape.checkpoints.checkpointing import parse_every
from reshape.checkpoints.directory import CheckpointDirectory, Owner, checkpoints_in
from reshape.checkpoints.manifest import (
    CHUNK_BYTES,
    Manifest,
    SavedCheckpoint,
    chunk_ranges,
    chunk_sum,
    data_file,
    pieces_of,
    write_pieces,
)
from reshape.data.declarations import EVEN, ArrayDivision, Declaration, RaggedCuts, declare
from reshape.data.ragged import Items
from reshape.data.segments import RankMemory
from reshape.errors import ReshapeError
from reshape.files.private_folder import open_folder

RECORD = np.dtype([("a", "i1"), ("b", ">f4")], align=True)
DTYPES = ["<f8", "<i4", "<c16", "|u1", "<f4", "<M8[ms]", RECORD]


def local_of(whole: np.ndarray, layout: Layout, process: int, order: str = "C") -> np.ndarray:
    """Local part of a process, element by element from the whole array."""
    part = whole[np.ix_(*layout.global_indices(process))] if whole.ndim else whole
    return np.array(part, order=order)


def whole_array(declaration: Declaration) -> np.ndarray:
    return (
        (np.arange(math.prod(declaration.shape)) % 251)
        .reshape(declaration.shape)
        .astype(declaration.element_type)
    )


def save(
    folder: Path,
    arrays: dict[Declaration, np.ndarray],
    size: int,
    cuts: dict[str, RaggedCuts] | None = None,
    signature: tuple[Declaration, ...] | None = None,
) -> Path:
    """Write a checkpoint of these whole arrays as `size` processes do."""
    folder.mkdir(0o700)
    declarations = tuple(arrays)
    sums: dict[str, list[list[int]]] = {each.name: [] for each in declarations}
    for process in range(size):
        pieces, _ = pieces_of(process, declarations, size, cuts or {})
        data = {}
        for declaration in declarations:
            layout = declaration.layout(size, cuts or {})
            if declaration.name in pieces:
                local = local_of(arrays[declaration], layout, process, declaration.order)
                data[declaration.name] = local.ravel(order="K").view(np.uint8)
        found = write_pieces(folder, process, pieces, data)
        for name, of_array in sums.items():
            of_array.append(found.get(name, []))
    manifest = Manifest(
        written_at=1.0,
        loop=0,
        iteration=7,
        before=0,
        size=size,
        signature=declarations if signature is None else signature,
        arrays=declarations,
        sums=sums,
        cuts=cuts or {},
        state=b"\x80\x04}.",
    )
    with open_folder(folder) as directory:
        manifest.write(directory)
    return folder


def opened(folder: Path, size: int = 1) -> SavedCheckpoint:
    """Open a checkpoint after all of `size` ranks have verified their shares."""
    checkpoint = SavedCheckpoint(folder, Manifest.read(folder))
    for rank in range(size):
        checkpoint.verify(rank, size)
    return checkpoint


@st.composite
def declarations(draw: st.DrawFn) -> tuple[Declaration, ...]:
    found = []
    for k in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["block_cyclic", "blocks", "rows", "replicated"]))
        shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
        division = EVEN
        if kind in ("block_cyclic", "blocks"):
            cut = draw_cut(lambda low, high: draw(st.integers(low, high)), len(shape))
            if any(axis is not None for axis in cut):
                extents = (0 if axis is None else max(0, shape[axis] - 1) for axis in cut)
                division = ArrayDivision(cut, (), tuple(extents))
        detail = {
            "block_cyclic": tuple(draw(st.integers(1, 4)) for _ in shape),
            "blocks": (0,) * 2 * len(shape),
            "rows": (draw(st.integers(0, len(shape) - 1)),),
            "replicated": (),
        }[kind]
        order = draw(st.sampled_from("CF")) if kind != "replicated" else "C"
        dtype = draw(st.sampled_from(DTYPES))
        found.append(declare(f"a{k}", kind, shape, detail, dtype, order, division))  # type: ignore[arg-type]
    return tuple(found)


@examples(120)
@given(declarations(), st.integers(1, 6), st.integers(1, 6))
def test_every_rank_of_another_configuration_reads_its_part(
    given_arrays: tuple[Declaration, ...], before: int, after: int
) -> None:
    arrays = {each: whole_array(each) for each in given_arrays}
    with TemporaryDirectory() as temporary:
        checkpoint = opened(save(Path(temporary) / "iteration-7", arrays, before), after)
        for declaration, whole in arrays.items():
            layout = declaration.layout(after)
            for rank in range(after):
                memory = RankMemory(None, 0, rank)
                segment = checkpoint.segment_of(memory, declaration, layout)
                expected = local_of(whole, layout, rank)
                assert np.array_equal(segment.array, expected)


@examples(60)
@given(st.lists(st.integers(0, 5), max_size=20), st.integers(1, 5), st.integers(1, 5), st.randoms())
def test_ragged_arrays_are_cut_anew(lengths: list[int], before: int, after: int, random) -> None:  # type: ignore[no-untyped-def]
    """Any cuts before give the even cuts of as many rows after, with the same entries."""
    items = Items(declare("t", "items", (0,), (), np.uint8, "C"), SimpleNamespace())
    counts = np.array(lengths, np.int64)
    stream = np.arange(counts.sum() % 251, counts.sum() % 251 + counts.sum()).astype(np.uint8)
    inner = sorted(random.randint(0, len(lengths)) for _ in range(before - 1))
    rows = (0, *inner, len(lengths))
    ends = np.concatenate(([0], np.cumsum(counts)))
    cuts = {"t": RaggedCuts(rows, tuple(int(ends[row]) for row in rows))}
    arrays = dict(zip((part.declaration for part in items.parts), (counts, stream), strict=True))
    with TemporaryDirectory() as temporary:
        folder = save(Path(temporary) / "c", arrays, before, cuts, (items.declaration,))
        checkpoint = opened(folder, after)
        new = checkpoint.cuts_of(items, after)
        assert np.ptp(np.diff(new.rows)) <= 1
        for part, whole in zip(items.parts, (counts, stream), strict=True):
            layout = part.declaration.layout(after, {"t": new})
            parts = [
                checkpoint.segment_of(RankMemory(None, 0, rank), part.declaration, layout).array
                for rank in range(after)
            ]
            assert np.array_equal(np.concatenate(parts), whole)


ROWS = declare("u", "rows", (40, 30), (0,), np.float64, "C")
COPY = declare("p", "replicated", (5,), (), np.float64, "C")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    arrays = {ROWS: np.arange(1200.0).reshape(40, 30), COPY: np.arange(5.0)}
    return save(tmp_path / "iteration-7", arrays, 3)


@examples(80)
@given(st.data())
def test_a_changed_bit_is_found(data: st.DataObject) -> None:
    arrays = {ROWS: np.arange(1200.0).reshape(40, 30), COPY: np.arange(5.0)}
    with TemporaryDirectory() as temporary:
        folder = save(Path(temporary) / "c", arrays, 2)
        checkpoint = opened(folder, 2)
        process = data.draw(st.integers(0, 1))
        pieces, _ = checkpoint.manifest.pieces(process)
        piece = pieces[data.draw(st.sampled_from(sorted(pieces)))]
        place = piece.offset + data.draw(st.integers(0, piece.size - 1))
        path = folder / data_file(process)
        content = bytearray(path.read_bytes())
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        with pytest.raises(
            ReshapeError,
            match=rf"{data_file(process)} is damaged: the checksum of bytes \d+ to \d+ of array "
            rf"'{piece.array}' differs",
        ):
            opened(folder, 2)


def test_a_changed_byte_of_a_manifest_is_found(folder: Path) -> None:
    path = folder / "manifest.json"
    good = path.read_bytes()
    for place in range(len(good) - 2):  # the last two are a bracket and a line end
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(ReshapeError, match=r"manifest\.json cannot be read"):
            Manifest.read(folder)


def test_a_manifest_of_another_format_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    body = msgspec.json.decode(path.read_bytes())["manifest"]
    assert body["format"] == 3
    text = msgspec.json.encode(body | {"format": 2})
    path.write_bytes(b'{"crc32":%d,"manifest":%s}' % (zlib.crc32(text), text))
    with pytest.raises(ReshapeError, match=r"Invalid value 2 - at `\$\.format`"):
        Manifest.read(folder)


def test_missing_and_truncated_files_are_found(folder: Path) -> None:
    path = folder / "rank-1.data"
    length = path.stat().st_size
    os.truncate(path, length - 1)
    with pytest.raises(
        ReshapeError, match=rf"rank-1.data has {length - 1} bytes, expected {length}"
    ):
        opened(folder)
    path.unlink()
    with pytest.raises(ReshapeError, match=r"rank-1\.data is missing"):
        opened(folder, 2)


def test_a_file_that_others_can_read_is_refused(folder: Path) -> None:
    """The manifest has pickled values, so no other user may be able to replace it."""
    (folder / "manifest.json").chmod(0o644)
    with pytest.raises(ReshapeError, match="expected no rights for group and others"):
        Manifest.read(folder)


@pytest.mark.parametrize(
    ("given_arrays", "why"),
    [
        (
            [ROWS._replace(shape=(41, 30)), COPY],
            r"'u' has shape \(40, 30\), the program .*\(41, 30\)",
        ),
        ([ROWS._replace(dtype="<f4"), COPY], "'u' has dtype '<f8', the program registers '<f4'"),
        ([ROWS._replace(kind="replicated"), COPY], "'u' has kind 'rows', the program"),
        ([ROWS._replace(name="w"), COPY], "registers rows 'w' .* as number 1, it holds u, p"),
        ([ROWS, COPY, ROWS._replace(name="w")], "rows 'w' .* as number 3, it holds u, p in this"),
        ([ROWS], "it holds replicated 'p' .* which the program does not register"),
        ([], "it holds rows 'u' .* which the program does not register"),
    ],
)
def test_another_program_is_refused(
    folder: Path, given_arrays: list[Declaration], why: str
) -> None:
    checkpoint = opened(folder)

    def register() -> None:
        for count in range(1, len(given_arrays) + 1):
            checkpoint.check(given_arrays[:count], complete=False)
        checkpoint.check(given_arrays, complete=True)

    with pytest.raises(ReshapeError, match=f"cannot restart from {folder}: .*{why}"):
        register()
    checkpoint.check([ROWS, COPY], complete=True)


@given(st.integers(0, 3 * CHUNK_BYTES))
def test_chunks_cover_all_bytes(size: int) -> None:
    ranges = list(chunk_ranges(size))
    ends = [0, *(end for _, end in ranges)]
    assert [begin for begin, _ in ranges] == ends[:-1]
    assert ends[-1] == size
    assert all(0 < end - begin <= CHUNK_BYTES for begin, end in ranges)


def test_exchanged_pages_and_zeros_at_the_end_change_a_checksum() -> None:
    data = np.arange(3 << 20, dtype=np.uint64).view(np.uint8)
    exchanged = data.copy()
    exchanged[:4096], exchanged[8192:12288] = data[8192:12288], data[:4096]
    assert chunk_sum(exchanged) != chunk_sum(data)
    short = data[:5000]
    assert chunk_sum(np.append(short, np.zeros(4096, np.uint8))) != chunk_sum(short)


@pytest.mark.parametrize(
    ("every", "parsed"),
    [
        (100, (100, 0.0)),
        ("30s", (0, 30.0)),
        ("1.5 min", (0, 90.0)),
        ("2h", (0, 7200.0)),
        ("1d", (0, 86400.0)),
        ("2:00:00", (0, 7200.0)),
        ("1-12:00", (0, 129600.0)),
    ],
)
def test_forms_of_every(every: int | str, parsed: tuple[int, float]) -> None:
    assert parse_every(every) == parsed


@pytest.mark.parametrize(
    "every", [0, -1, True, 1.5, "", "10", "0s", "0:0", "-1min", "5 days", None]
)
def test_other_forms_of_every_are_refused(every: object) -> None:
    with pytest.raises(ReshapeError, match="expected a number of iterations >= 1, or a time"):
        parse_every(every)  # type: ignore[arg-type]


def write(path: Path, iteration: int) -> Path:
    """Write the empty files of a checkpoint."""
    folder = path / f"iteration-{iteration}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()
    return folder


def test_a_run_with_checkpoints_needs_no_longer_what_it_restarted_from(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path / "run", Owner("k1", "job 1"))
    earlier = write(tmp_path / "earlier", 10)
    assert directory.claim(tmp_path / "earlier") == [earlier]
    shutil.rmtree(tmp_path / "earlier")
    with pytest.raises(ReshapeError, match=r"cannot restart: there is no directory .*/earlier"):
        directory.claim(tmp_path / "earlier")
    own = complete(directory, 20)
    assert directory.claim(tmp_path / "earlier") == [own]


def complete(directory: CheckpointDirectory, iteration: int) -> Path:
    found = directory.begin(iteration)
    (found / "manifest.json").touch()
    return found


def test_the_latest_checkpoints_remain(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path / "run", Owner("k1", "job 1"))
    assert directory.claim(None) == []
    for iteration in (10, 20, 100):
        directory.prune(complete(directory, iteration), keep=2)
    directory.wait()
    assert [each.name for each in checkpoints_in(directory.path)] == [
        "iteration-100",
        "iteration-20",
    ]
    directory.begin(110)  # never completed
    directory.prune(complete(directory, 60), keep=2)
    directory.wait()
    remaining = sorted(each.name for each in directory.path.iterdir())
    assert remaining == ["iteration-20", "iteration-60", "owner.json"]


def test_a_directory_belongs_to_one_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = CheckpointDirectory(path, Owner("k1", "job 1 of here"))
    assert first.claim(None) == []
    assert first.claim(None) == []  # after a restart
    other = CheckpointDirectory(path, Owner("k2", "job 2 of here"))
    with pytest.raises(ReshapeError, match="no checkpoint yet: remove it if that run has ended"):
        other.claim(None)
    found = complete(first, 10)
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, 5)
    for source in (None, elsewhere):
        with pytest.raises(ReshapeError, match="has the checkpoints of another run, job 1 of here"):
            other.claim(source)
    assert other.claim(found) == [found]  # it restarts from there
    assert other.claim(None) == [found]
    with pytest.raises(ReshapeError, match="was taken over by job 2 of here"):
        first.begin(20)


def test_only_its_own_run_releases_a_directory_without_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "run"
    owner = CheckpointDirectory(path, Owner("k1", "job 1 of here"))
    owner.claim(None)
    CheckpointDirectory(path, Owner("k2", "job 2 of here")).release()
    assert path.exists()
    owner.release()
    assert not path.exists()
    owner.release()
    owner.claim(None)
    complete(owner, 10)
    owner.release()
    assert sorted(each.name for each in path.iterdir()) == ["iteration-10", "owner.json"]


def test_folders_of_something_else_are_not_removed(tmp_path: Path) -> None:
    (tmp_path / "iteration-5").mkdir()
    directory = CheckpointDirectory(tmp_path, Owner("a", "run a"))
    with pytest.raises(ReshapeError, match="has a folder iteration-5 and no "):
        directory.claim(None)
    assert [path.name for path in tmp_path.iterdir()] == ["iteration-5"]
    (tmp_path / "iteration-5" / "manifest.json").touch()
    assert directory.claim(tmp_path / "iteration-5") == [tmp_path / "iteration-5"]


def test_a_directory_in_a_folder_of_the_service_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, work = tmp_path / "service", tmp_path / "work"
    (own / "access").mkdir(parents=True)
    work.mkdir()
    (work / "link").symlink_to(own / "access")
    monkeypatch.setenv("RESHAPE_OWN_FOLDERS", f"/dev/shm/not-there\n{own}")
    owner = Owner("k1", "job 1")
    for path in (own, own / "new" / "run", work / "link" / "run"):
        with pytest.raises(ReshapeError, match=f"is in {own}, a folder of the service: choose"):
            CheckpointDirectory(path, owner).claim(None)
    assert sorted(path.name for path in own.rglob("*")) == ["access"]
    assert CheckpointDirectory(work / "run", owner).claim(None) == []

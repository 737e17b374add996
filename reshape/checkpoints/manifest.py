"""The manifest of a checkpoint: what its files hold, and where in them.

    DIR/owner.json                     the run that writes checkpoints here
    DIR/iteration-400/rank-0.data      the local parts of process 0, one array after another
    DIR/iteration-400/rank-1.data
    DIR/iteration-400/manifest.json    written last: a folder without it is no checkpoint

`reshape.checkpoints.pieces` says how the local parts lie in the files.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

from reshape.checkpoints.directory import MANIFEST_FILE
from reshape.checkpoints.pieces import Piece, pieces_of
from reshape.data.arrays import Declaration
from reshape.errors import ReshapeError
from reshape.files.private_folder import open_file, open_folder, write_file
from reshape.resizing.restart_point import SavedState

FORMAT = 1


class Manifest(SavedState, frozen=True, kw_only=True):
    """What a checkpoint holds.

    Attributes
    ----------
    format : version of the layout of the files.
    written_at : Unix seconds.
    arrays : declarations of all plain arrays, including the parts of ragged data.
    sums : checksums of the chunks of each local part, by array, then by process.
    """

    format: int
    written_at: float
    arrays: tuple[Declaration, ...]
    sums: dict[str, list[list[int]]]

    def pieces(self, process: int) -> tuple[dict[str, Piece], int]:
        """Local parts of a process by array, and the length of their file in bytes."""
        return pieces_of(process, self.arrays, self.size, self.cuts)

    def write(self, directory: int) -> None:
        """Write the manifest to an open folder, durably: the folder is a checkpoint from now on.

        Raises
        ------
        OSError : no room, or no right to write.
        """
        body = msgspec.json.encode(self)
        text = b'{"crc32":%d,\n"manifest":%s}\n' % (zlib.crc32(body), body)
        write_file(directory, MANIFEST_FILE, text, durable=True)  # after those of the data files

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest of a checkpoint.

        Raises
        ------
        ReshapeError : there is none, it is damaged or of another format, or other users can change
            it.
        """
        path = folder / MANIFEST_FILE
        try:
            with (
                open_folder(folder) as directory,
                os.fdopen(open_file(directory, MANIFEST_FILE, os.O_RDONLY), "rb") as file,
            ):
                envelope = msgspec.json.decode(file.read(), type=_Envelope)
            crc32 = zlib.crc32(envelope.manifest)
            if crc32 != envelope.crc32:
                raise ReshapeError(f"its checksum is {crc32}, expected {envelope.crc32}")
            version = msgspec.json.decode(envelope.manifest, type=_Version).format
            if version != FORMAT:
                raise ReshapeError(f"its format is {version}, this release reads {FORMAT}")
            return msgspec.json.decode(envelope.manifest, type=Manifest)
        except FileNotFoundError:
            raise ReshapeError(f"there is no {path}") from None
        except (OSError, ReshapeError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ReshapeError(f"{path} cannot be read: {error}") from None


class _Envelope(msgspec.Struct):
    """The manifest as it is in the file, and its checksum."""

    crc32: int
    manifest: msgspec.Raw


class _Version(msgspec.Struct):
    format: int

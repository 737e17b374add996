"""Whether a file is in a folder of a service, in which no job may write.

`output_file.py` imports this file without its package, so it imports nothing but `os` and `stat`.
"""

from __future__ import annotations

import os
import stat

#: Variable that tells a starter and a job the folders of their service, one a line;
#: `reshape.checkpoints.directory` reads it, too.
VARIABLE = "RESHAPE_OWN_FOLDERS"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def folder_around(path: str, folders: Iterable[str]) -> str:
    """Return the folder that contains a path, "" if none of `folders` does.

    Folders are compared by device and inode, after all links. A path that does not exist is
    where it would be created.

    Parameters
    ----------
    folders : those that do not exist on this host are ignored.
    """
    own = {}
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError:
            continue
        own[status.st_dev, status.st_ino] = folder
    here = os.path.realpath(path)
    while own:
        try:
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in own:
                return own[status.st_dev, status.st_ino]
        except OSError:
            pass
        above = os.path.dirname(here)
        if above == here:
            break
        here = above
    return ""


def folder_with(descriptor: int, folders: Iterable[str]) -> str:
    """Return the folder that has an open file under another name, "" if none has."""
    opened = os.fstat(descriptor)
    if opened.st_nlink < 2 or not stat.S_ISREG(opened.st_mode):
        return ""
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                try:
                    status = os.lstat(os.path.join(where, name))
                except OSError:
                    continue
                if (status.st_dev, status.st_ino) == (opened.st_dev, opened.st_ino):
                    return folder
    return ""


def in_own_folder(what: str, path: str, folder: str) -> str:
    """Say that a path of a job is refused; `what` names its use."""
    return f"the {what} {path} is in {folder}, a folder of the service: choose another place"


def folder_named(path: str, folders: Iterable[str]) -> str:
    """Return the folder that contains a path by its name, "" if none of `folders` does.

    Links are not followed. A path is in a folder that is the path itself.

    Parameters
    ----------
    folders : absolute and without `..`, as `os.path.normpath` makes them.
    """
    path = os.path.normpath(path)
    for folder in folders:
        if path == folder or path.startswith(folder.rstrip(os.sep) + os.sep):
            return folder
    return ""

"""A submission as the journal and the service keep it: small, whatever the user has sent.

Its large parts, the text of a script, the environment and a long command, may have megabytes. They
are in a table of the journal, by their digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import msgspec

from scheduler.protocol.messages import Submission

#: Characters of program and arguments that are kept with the submission; there is more in a part.
MOST_COMMAND = 4096

_json = msgspec.json.Encoder()
_fields = attrgetter(*Submission.__struct_fields__)


class KeptSubmission(Submission, omit_defaults=True):
    """A submission without its large parts.

    Attributes
    ----------
    text : digest of the text of its job script; "": it has none.
    environment : variables besides those of the part, such as those of a task.
    environment_part : digest of its environment; "": `environment` has all of it.
    command_part : digest of its wrapper, program and arguments; "": the submission has them. With
        one, `argv` has the first of them, to be shown.
    """

    environment_part: str = ""
    command_part: str = ""

    @property
    def parts(self) -> list[str]:
        """Digests of its parts."""
        return [name for name in (self.text, self.environment_part, self.command_part) if name]


@dataclass
class Launch:
    """How a job is started: its submission, and the token that its processes send."""

    submission: KeptSubmission
    token: str


def kept(submission: Submission) -> tuple[KeptSubmission, dict[str, bytes]]:
    """Return a submission without its large parts, and these by their digests."""
    small = KeptSubmission(*_fields(submission))
    parts: dict[str, bytes] = {}
    if small.text:
        small.text = _add(parts, small.text.encode())
    if small.environment:
        small.environment_part = _add(parts, _json.encode(small.environment))
        small.environment = {}
    if _is_long(small.wrapper, small.argv):
        small.command_part = _add(parts, _json.encode((small.wrapper, small.argv)))
        small.wrapper, small.argv = [], _begin(small.argv)
    return small, parts


def digest(part: bytes) -> str:
    """Name of a part."""
    return hashlib.sha256(part).hexdigest()


def _add(parts: dict[str, bytes], part: bytes) -> str:
    name = digest(part)
    parts[name] = part
    return name


def _is_long(wrapper: Sequence[str], argv: Sequence[str]) -> bool:
    words = len(wrapper) + len(argv)
    return words > MOST_COMMAND or sum(map(len, (*wrapper, *argv))) + words > MOST_COMMAND


def _begin(argv: Sequence[str]) -> list[str]:
    """Start of a command, its last word with three dots."""
    begin: list[str] = []
    left = MOST_COMMAND
    for word in argv:
        if len(word) >= left:
            begin.append(f"{word[:left]}...")
            break
        begin.append(word)
        left -= len(word) + 1
    return begin

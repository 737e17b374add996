"""The errors that ReSHAPE reports to users.

There is one root. A subclass exists only where a caller reacts differently to it. Every message is
one clear sentence that names the value, the place and the correction. The command line prints it
after ``reshape: error:`` without a traceback.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from math import isfinite


class ReshapeError(Exception):
    """An error that the user can correct; the message says what, where and how."""


class ConfigError(ReshapeError):
    """A wrong value in a configuration file or an option.

    Parameters
    ----------
    message : what is wrong and how to correct it.
    file : file or other source of the value, if any.
    line : line in the file, counted from 1, if known.
    field : dotted name of the field, such as ``scheduling.reservations``, if known.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        self.message, self.file, self.line, self.field = message, file, line, field
        source = file or ""
        if line is not None:
            source = f"{source}:{line}" if source else f"line {line}"
        super().__init__(": ".join(part for part in (source, field, message) if part))


class ServiceUnavailable(ReshapeError):  # noqa: N818 - it names a state of the service
    """The scheduler service does not answer; the caller may try again later."""


class ServerUnproven(ServiceUnavailable):
    """What answers at the endpoint does not prove the server key of the access file."""


class RequestRefused(ReshapeError):  # noqa: N818 - it names an answer of the service
    """The service refuses a request, and says why."""


class AccessRefused(ReshapeError):  # noqa: N818 - it names an answer of the service
    """The service refuses the key of a client; trying again does not help."""


class PermissionDenied(ReshapeError):  # noqa: N818 - the name that the command line has for it
    """The sender may not send this message; the service counts it."""


class ProtocolError(ReshapeError):
    """A message of another version, or one that breaks the protocol; trying again does not help."""


def nearest(name: str, names: Iterable[str]) -> str:
    """End of a message about an unknown name: the most similar known names, or all of them."""
    import difflib  # only errors need it

    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=2)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known are {', '.join(names)}" if names else "; none is known"


_RELATIONS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


def out_of_range(values: object, **rules: str) -> tuple[str, str] | None:
    """Return the first field that holds a number outside its range, and what is wrong with it.

    Parameters
    ----------
    rules : range of each field, such as ``">= 0 and < 1"`` or ``"> 0 and finite"``.

    Returns
    -------
    None : every number is in its range; fields may be None.
    """
    for name, rule in rules.items():
        value = getattr(values, name)
        for part in rule.split(" and ") if value is not None else ():
            relation, _, bound = part.partition(" ")
            inside = _RELATIONS[relation](value, float(bound)) if bound else isfinite(value)
            if not inside:
                return name, f"must be {rule}, got {value}"
    return None


def check_ranges(values: object, **rules: str) -> None:
    """Check that fields hold numbers in their ranges; see `out_of_range`.

    Raises
    ------
    ValueError : one does not; the message names the field, the range and the number.
    """
    if fault := out_of_range(values, **rules):
        raise ValueError(" ".join(fault))

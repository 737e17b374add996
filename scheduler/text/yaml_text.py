"""YAML as this project reads and writes it: numbers as 1e3, and bounds on what a text unfolds to.

Imported late by its users, because most commands read no YAML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

#: Levels of lists and mappings within each other.
MOST_LEVELS: Final = 100
#: Values that repeat others by aliases (``*name``).
MOST_REPEATED: Final = 100_000
#: Bound of a whole number, which a float can hold and a message can show.
LARGEST: Final = 10**300
_FLOAT = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_INTEGER = "tag:yaml.org,2002:int"


class Loader(yaml.SafeLoader):
    """Loader of plain values, which takes 1e3 for a number, as YAML 1.2 does.

    Attributes
    ----------
    composed : number of nodes so far; an alias counts as one.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.composed, self._levels = 0, 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node.

        Raises
        ------
        yaml.MarkedYAMLError : it is nested too deeply.
        """
        self.composed += 1
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MOST_LEVELS} levels of lists and mappings",
                problem_mark=self.get_mark(),
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self._levels -= 1
        return node

    def scalar(self, node: yaml.Node) -> Any:
        """Value of a scalar node.

        Raises
        ------
        yaml.MarkedYAMLError : it is not of the type that it is written or tagged as.
        """
        problem = f"{node.value!r:.80} is not a valid value; quote it if it is a text"
        if node.tag == _INTEGER and _LEADING_ZERO.fullmatch(str(node.value)):
            problem = f"{node.value} has a leading zero; leave it out, or quote a text"
        else:
            try:
                value = self.construct_object(node, deep=True)
                if not isinstance(value, int) or abs(value) < LARGEST:
                    return value
            except (ValueError, TypeError, AttributeError, LookupError, OverflowError):
                pass  # a date such as 2026-99-99, too many digits, or a tag that does not fit
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


class Dumper(yaml.SafeDumper):
    """Quotes texts that `Loader` would take for numbers."""


for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def encode(values: Mapping[str, Any], *, width: float = 80) -> str:
    """Write plain values, lists and mappings of only such values in one line.

    Parameters
    ----------
    width : of a line, at most, if it can be folded.
    """
    text: str = yaml.dump(
        dict(values), Dumper=Dumper, sort_keys=False, default_flow_style=None, width=width
    )
    return text

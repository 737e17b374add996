"""Texts of users: ``key=value`` in options, topologies, speedup models and headers; numbers."""

from __future__ import annotations

from collections.abc import Iterable

from reshape.errors import nearest

#: Digits of an amount, at most: files and messages hold 64 bits.
LONGEST_AMOUNT = 18


def whole_number(text: str, most: int = 10**LONGEST_AMOUNT - 1) -> int | None:
    """Read a whole number >= 0 in ASCII digits; None if it is none, or larger than `most`.

    The digits are counted first: Python refuses to convert thousands of them.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 2 * LONGEST_AMOUNT:
        return None
    number = int(text)
    return number if number <= most else None


def key_value(item: str, keys: Iterable[str] | None = None) -> tuple[str, str]:
    """Split ``key=value``; white space around key and value is removed.

    Parameters
    ----------
    keys : accepted keys; None accepts any key.

    Raises
    ------
    ValueError : the key or the ``=`` is missing, or the key is not among the known ones.
    """
    key, equals, value = (word.strip() for word in item.partition("="))
    if not key:
        raise ValueError(f"{item!r:.80} has no key; write KEY=VALUE")
    if not equals:
        raise ValueError(f"{item!r:.80} has no value; write {key:.80}=VALUE")
    if keys is not None:
        keys = list(keys)
        if key not in keys:
            raise ValueError(f"unknown key {key!r:.80} in {item!r:.80}{nearest(key, keys)}")
    return key, value


def key_values(items: Iterable[str], keys: Iterable[str] | None = None) -> dict[str, str]:
    """Read items of the form ``key=value``, each key once, in their order.

    Raises
    ------
    ValueError : see `key_value`; or a key is given twice.
    """
    keys = None if keys is None else list(keys)
    values: dict[str, str] = {}
    for item in items:
        key, value = key_value(item, keys)
        if key in values:
            raise ValueError(f"{key} is given twice, {values[key]!r} and {value!r}; keep one")
        values[key] = value
    return values


def amounts(items: Iterable[str]) -> dict[str, int]:
    """Read items of the form ``name=amount``, each name once; an amount is a whole number >= 0.

    Raises
    ------
    ValueError : see `key_values`; or an amount is not such a number.
    """
    values: dict[str, int] = {}
    for name, text in key_values(items).items():
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(f"{name:.80}={text:.80}: {text!r:.80} is not a whole number >= 0")
        if len(text) > LONGEST_AMOUNT:
            raise ValueError(f"{name:.80}={text:.80} is too large: at most {LONGEST_AMOUNT} digits")
        values[name] = int(text)
    return values

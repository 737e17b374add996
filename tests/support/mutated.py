"""Inputs for parsers: valid texts that are changed at some places, and random ones."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

#: What stands at odd places of texts: numbers, marks of the formats, characters.
WORDS: tuple[bytes, ...] = (
    b"", b" ", b"\n", b"\n\n", b"\r\n", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", "\u0663".encode(),
    "\u2028".encode(), b"-", b"-1", b"0", b"1", b"-0", b"007", b"1.5", b"1e3", b"1e400", b"-1e400",
    b"9" * 19, b"9" * 400, b"9" * 5000, b"nan", b"inf", b"-inf", b".inf", b".nan", b"1_0", b"0x10",
    b"null", b"true", b"no", b"~", b"''", b'"', b"'", b":", b": ", b"{", b"}", b"[", b"]", b"[]",
    b"{}", b"- ", b"&a ", b"*a", b"&a [*a]", b"!!int ", b"!!python/name:os.system ", b"!!binary ",
    b"? ", b"<<: ", b"|", b">", b"%", b"@", b"---\n", b"...\n", b"#", b",", b",,", b";", b"=",
    b"0-9", b"9-0", b"0-99999999999", b"-5-", b"a", b"a" * 300, b"2026-01-01", b"2026-99-99",
    b"12:30", b"1:99", b"/dev/null", b"/dev/zero", b".", b"..", b"~/x", b"\\", b"\\0", b"x:Y",
    b"os:system", b"; MaxProcs: ", b"; Resources: a=1 b=2\n", b"; Shared: a=1\n", b"MaxNodes:",
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, valid: Sequence[bytes], most: int = 4) -> bytes:
    """One of the valid texts with up to `most` changes; seldom random bytes or text."""
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(st.binary(max_size=200))
    if kind == 1:
        return draw(st.text(max_size=100)).encode("utf-8", "surrogatepass")
    text = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, most))):
        text = _changed(draw, text)
    return text


def _changed(draw: st.DrawFn, text: bytes) -> bytes:
    """Text with one change: a part is replaced, repeated, left out or moved; or cut off."""
    at = draw(st.integers(0, len(text)))
    kind = draw(st.sampled_from(["word", "word", "word", "token", "token", "line", "cut", "byte"]))
    if kind == "word":
        end = at + draw(st.integers(0, 3))
        return text[:at] + draw(st.sampled_from(WORDS)) + text[end:]
    if kind == "token":  # a whole number or name in place of another one
        start, end = at, at
        while start > 0 and text[start - 1 : start].isalnum():
            start -= 1
        while end < len(text) and text[end : end + 1].isalnum():
            end += 1
        return text[:start] + draw(st.sampled_from(WORDS)) + text[end:]
    if kind == "line":
        lines = text.split(b"\n")
        taken = lines.pop(draw(st.integers(0, len(lines) - 1)))
        for _ in range(draw(st.integers(0, 2))):
            lines.insert(draw(st.integers(0, len(lines))), taken)
        return b"\n".join(lines)
    if kind == "cut":
        return text[:at]
    return text[:at] + draw(st.binary(min_size=1, max_size=3)) + text[at + 1 :]

"""XLIFF: segments keep their source, and the translation of it becomes their target.

A segment that has a target already keeps it, and so does one that says translate="no". Versions 1.2 and 2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence

from dragoman.serving.text.markup_tokens import Kind, MarkupToken, element_end

__all__ = ["is_xliff", "xliff_tokens"]

_STEPS_BETWEEN_PAUSES = 50
_MOST_BEFORE_ROOT = 50
_CODES = frozenset({"bpt", "ept", "it", "ph"})
"""Elements whose content is code of another format: a tag, as a whole."""


def is_xliff(tokens: Sequence[MarkupToken]) -> bool:
    """Whether the first element is one of XLIFF."""
    for token in tokens[:_MOST_BEFORE_ROOT]:
        if token.kind is Kind.OPEN:
            return _local(token) == "xliff"
    return False


def xliff_tokens(tokens: Sequence[MarkupToken]) -> Generator[None, None, list[MarkupToken]]:
    """The tokens of the translated file: what is translated stands in targets, all else is kept."""
    found: list[MarkupToken] = []
    at = steps = kept_until = 0
    while at < len(tokens):
        if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
            yield
        token = tokens[at]
        if token.kind is Kind.OPEN and token.is_kept and at >= kept_until:
            kept_until = yield from element_end(tokens, at)
        if token.kind is not Kind.OPEN or _local(token) != "source":
            found.append(_structure(token))
            at += 1
            continue
        end = yield from element_end(tokens, at)
        found += yield from _structures(tokens[at:end])
        if not _is_closed(tokens, at, end):
            return found
        inside, prefix = tokens[at + 1 : end - 1], token.name.removesuffix("source")
        at = end
        if (segmented := (yield from _segmented(tokens, at))) is not None:
            found += yield from _structures(tokens[at : segmented.stop + 1])
            inside, at = tokens[segmented], segmented.stop + 1
            end = at
        target = _following(tokens, at, "target")
        if target is not None:
            if tokens[target].kind is Kind.ASIDE:  # <target/>
                behind, opening = target + 1, tokens[target].raw.removesuffix("/>").rstrip() + ">"
            else:
                behind, opening = (yield from element_end(tokens, target)), tokens[target].raw
                own = tokens[target + 1 : behind - 1]
                if not _is_closed(tokens, target, behind) or any(map(_is_content, own)):
                    continue
        else:
            behind, target, opening = at, at, f"<{prefix}target>"
        if kept_until >= end:
            continue
        found += yield from _structures(tokens[at:target])
        at = behind
        found.append(MarkupToken(Kind.ASIDE, opening, is_block=True))
        found += yield from _inline(inside)
        found.append(MarkupToken(Kind.ASIDE, f"</{prefix}target>", is_block=True))
    return found


def _segmented(tokens: Sequence[MarkupToken], at: int) -> Generator[None, None, slice | None]:
    """What <seg-source> has, if it follows: the same text, with marks around its sentences."""
    start = _following(tokens, at, "seg-source")
    if start is None or tokens[start].kind is not Kind.OPEN:
        return None
    end = yield from element_end(tokens, start)
    return slice(start + 1, end - 1) if _is_closed(tokens, start, end) else None


def _following(tokens: Sequence[MarkupToken], at: int, name: str) -> int | None:
    """The place of the tag that follows, behind white space, if it has this name."""
    at += at < len(tokens) and tokens[at].kind is Kind.TEXT and tokens[at].text.isspace()
    is_it = at < len(tokens) and tokens[at].kind is not Kind.CLOSE and _local(tokens[at]) == name
    return at if is_it else None


def _is_content(token: MarkupToken) -> bool:
    """Whether a target with it is a translation; marks of sentences are none."""
    return bool(token.raw.strip()) and _local(token) != "mrk"


def _structure(token: MarkupToken) -> MarkupToken:
    return MarkupToken(Kind.ASIDE, token.raw, is_block=True)


def _structures(tokens: Sequence[MarkupToken]) -> Generator[None, None, list[MarkupToken]]:
    found: list[MarkupToken] = []
    for token in tokens:
        found.append(_structure(token))
        if len(found) % _STEPS_BETWEEN_PAUSES == 0:
            yield
    return found


def _inline(tokens: Sequence[MarkupToken]) -> Generator[None, None, list[MarkupToken]]:
    """The content of a segment; the codes that begin and end something are a pair."""
    found: list[MarkupToken] = []
    at = 0
    while at < len(tokens):
        if len(found) % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
            yield
        token, name = tokens[at], _local(tokens[at])
        if token.kind is Kind.OPEN and name in _CODES:
            end = yield from element_end(tokens, at)
            raw = "".join(one.raw for one in tokens[at:end])
            kind = {"bpt": Kind.OPEN, "ept": Kind.CLOSE}.get(name, Kind.ASIDE)
            found.append(MarkupToken(kind, raw, f"code {token.text}"))
            at = end
        elif token.kind is Kind.ASIDE and name in {"sc", "ec"}:
            found.append(dataclasses.replace(token, text=""))
            at += 1
        else:
            found.append(token)
            at += 1
    return found


def _is_closed(tokens: Sequence[MarkupToken], start: int, end: int) -> bool:
    return tokens[end - 1].kind is Kind.CLOSE and tokens[end - 1].name == tokens[start].name


def _local(token: MarkupToken) -> str:
    return token.name.rpartition(":")[2]

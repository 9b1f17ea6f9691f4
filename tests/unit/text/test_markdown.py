"""Markdown: structure comes out as it went in, and a parser sees the same before and after a translation."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pretend import planned, run, translated

from dragoman.serving.text.links import Link
from dragoman.serving.text.markdown_tokens import markdown_tokens
from dragoman.serving.text.markup_tokens import Kind, MarkupToken

README = r"""---
title: kept
---
# A title of *some* weight #

A [link text](http://a.b/c_d "a title") and **bold `code` word** with
a soft break.\
After a break<br>and ![an image](x.png "tip") here[^1].

- [ ] a task
- [x] done, 2 * 3 = 6 and snake_case
  in a second line
1. one
2. two

   > quoted _words_
   > in two lines

```python
code = here
```

    code by indent

| Head | Two |
|:-----|----:|
| a \| b | `x` **c** |

Underlined
==========

<div align="center">
  <b>Words of HTML</b> and more
</div>

See [ref], [full text][Ref] and [nothing] &amp; http://x.y/z_a <http://auto.link>.

[ref]: http://example.org "T"
[^1]: A note with ~~old~~ new words. \*No emphasis\*.
"""
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def structure(source: str) -> str:
    """What a renderer makes of it, without words and without the space between them."""
    return re.sub(
        r"\s*\w+[\w\s]*|\s+", "", re.sub(r">[^<]+<", lambda text: re.sub(r"[^<>]", "", text.group()), PARSER.render(source))
    )


def loud(text: str) -> str:
    return text.replace("a", "A").replace("o", "O")


def test_a_document_keeps_its_structure_when_its_words_change() -> None:
    found = translated(README, "markdown", loud)
    assert structure(found) == structure(README)
    assert '[link text](http://a.b/c_d "a title")' in found
    for kept in (
        "title: kept",
        "code = here",
        "    code by indent",
        "|:-----|----:|",
        '[ref]: http://example.org "T"',
        "- [ ] A tAsk",
    ):
        assert kept in found
    assert r"[ref][ref], [full text][Ref] And \[nOthing\]" in found
    assert '![An imAge](x.png "tip") here' in found


def test_only_words_are_translated() -> None:
    parts = [part.text for part in planned(README, "markdown", placeholders=False).parts]
    assert parts[0] == "A title of some weight"
    assert re.fullmatch(r"A link text and bold \d+ word with a soft break\.", parts[1])
    assert parts[2:5] == ["After a break", "an image", "and here."]
    assert "quoted words in two lines" in parts
    assert {"Head", "Two", "a | b", "Underlined", "Words of HTML and more"} <= set(parts)
    assert "A note with old new words." in parts
    assert not any("code" in part or "kept" in part for part in parts)


def test_emphasis_goes_where_its_words_go() -> None:
    found = translated(
        "The **red** house", "markdown", lambda _: "Das Haus ist rot", lambda _: [Link(4, 7, 13, 16), Link(8, 13, 4, 8)]
    )
    assert found == "Das Haus ist **rot**"


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("2 * 3 snake_case", "2 * 3 snake_case"),
        ("a *b* _c_ `d`", r"a \*b\* \_c\_ &#96;d&#96;"),
        ("1. first", r"1\. first"),
        ("# no title", r"\# no title"),
        ("- no item", r"\- no item"),
        ("* no item", r"\* no item"),
        ("> no quote", r"\> no quote"),
        ("<b> &amp; [x](y)", r"\<b> \&amp; \[x\](y)"),
        ("a\\*b c\\d", r"a\\\*b c\d"),
        ("call __init__ of a__b", r"call \_\_init\_\_ of a__b"),
    ],
)
def test_signs_of_a_translation_are_only_text(said: str, written: str) -> None:
    found = translated("words", "markdown", lambda _: said, lambda _: [], placeholders=False)
    assert found == written
    assert PARSER.render(found) == f"<p>{said.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</p>\n"


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("Two lines\nbefore\n| Head | Two |\n|--|--|\n| a | b |", ["Two lines before", "Head", "Two", "a", "b"]),
        ("| Head |\n|--|\n    code", ["Head"]),
        ("1.\n\n    code", []),
        ("1.\n   an item\n\n   goes on", ["an item", "goes on"]),
    ],
)
def test_what_is_text_is_what_the_parser_says(source: str, parts: list[str]) -> None:
    assert [part.text for part in planned(source, "markdown").parts] == parts
    assert structure(translated(source, "markdown", loud)) == structure(source)


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("**The end\\\nis near.** We go.", "**The end\\\nis neAr.** We gO."),  # a pair on both sides of a line break
        ("![**A** long `code` word](b)", "![A lOng cOde wOrd](b)"),  # a description has no emphasis
        ("[Wow]: Hello there.", r"\[WOw\]: HellO there."),  # no definition, which ends behind its place or has a title
        ("[long]:\n  long/o\n\n[long]", "[long]:\n  long/o\n\n[lOng][long]"),  # its place in a line of its own
        ('[a]:\n<o p>\n"long"\nlong', '[a]:\n<o p>\n"long"\nlOng'),
        ("> [a]:\n> o (long)\n\n- [o]:\n  # long", "> [a]:\n> o (long)\n\n- \\[O\\]:\n  # lOng"),
        ("[long]:\nlong way\n\n[long]", "\\[lOng\\]: lOng wAy\n\n\\[lOng\\]"),
        ("[o]:\n\nlong", "\\[O\\]:\n\nlOng"),
        (
            "- [long]\n- **[a][]**\n\n[long]: o\n[a]: o",
            "- [lOng][long]\n- **[A][a]**\n\n[long]: o\n[a]: o",
        ),  # nothing beside it
        ('[a]: b\n  "long"\n\nlong', '[a]: b\n  "long"\n\nlOng'),  # the title of a definition in a line of its own
        ("*a ``long`code*ness", "*A &#96;&#96;long&#96;code* ness"),  # a placeholder is a word of its own
        ("a ```long\n``` `so", "A ```long ``` &#96;sO"),  # what begins a line may begin a block
    ],
)
def test_what_a_translation_is_written_as(source: str, written: str) -> None:
    assert translated(source, "markdown", loud) == written


def test_titles_of_links_are_translated_when_asked_for() -> None:
    assert translated('[a](b "see it")', "markdown", str.upper, attributes=True) == '[A](b "SEE IT")'


SIGNS = ["*", "**", "_", "`", "``", "[", "]", "(b)", "<b>", "</b>", "<", "!", " ", "\n", "\n\n", "> ", "- ", "1. ", "# "]
SIGNS += [
    "```\n",
    "word",
    "a b",
    "[a]: b\n",
    "|",
    "|-|-|\n",
    "\\",
    "&amp;",
    "  \n",
    "    ",
    "~~",
    "*",
    "| a | b |\n|:-:|--|\n| c | d |\n",
    "![i](x.png 't')",
    "    code\n",
    "<!--",
    "-->",
    "![",
    "<div>",
]


NOT_JUDGED = {"<", "<!--", "-->", "<div>", "<b>", "</b>", "\\"}
"""HTML is not what this parser reads, and it has its own view of a backslash before spaces."""


@settings(max_examples=150)
@given(st.lists(st.sampled_from(SIGNS), max_size=40))
def test_tokens_are_the_source(pieces: list[str]) -> None:
    source = "".join(pieces)
    assert "".join(token.raw for token in run(markdown_tokens(source))) == source


CONTESTED = re.compile(
    r"""
    ~~~                                  # GitHub strikes nothing out between runs of three and more; this parser does
    | ^[ ]{4,} (?: [>\#*_|-] | 1\. | ``` )  # in a lazy line of an item: text in CommonMark, a block to this parser
    # To this parser a table may begin before the mark of its line is an item's, and in a lazy line; not so on GitHub.
    | ^[ ]* (?: [-*>\#] | 1\. ) [^\n]* \n (?: [^\n]+\n )*? [ ]* \|-\|-\|
    | ^[ ]* (?: [-*] | 1\. ) [^\n]* \| \n \|:
    | (?: [ ]{2} | \|-\|-\| ) \n \|-\|-\|  # only text because the line before, which changes, has not as many cells
    | !\[[*_~] | [*_~]\]                 # what stands beside emphasis in a description; this parser reads it by itself
    """,
    re.VERBOSE | re.MULTILINE,
)


def has_split_run(tokens: list[MarkupToken]) -> bool:
    """Whether only a part of a run of signs is emphasis. The rest is text, and escaped: CommonMark compares the lengths of
    runs, so that with a shorter one the structure may be another. Nothing that could be written there keeps it.
    """
    return any(
        text.kind is Kind.TEXT and tag.needs_words and set(text.raw) == set(tag.raw)
        for pair in pairwise(tokens)
        for text, tag in (pair, pair[::-1])
    )


@settings(max_examples=150)
@example(["*", "*", "![i](x.png 't')", "*", "    code\n"])
@example(["*", "*", "*", "![i](x.png 't')", "*", "| a | b |\n|:-:|--|\n| c | d |\n"])
@example(["*", "> ", "![i](x.png 't')", "*", "    code\n"])
@example(["**", "> ", "*", "![i](x.png 't')", "**", "    code\n"])
@example(["![", "![i](x.png 't')", "]", "(b)"])
@example(["*", "``", "word", "`", "word", "*", "a b"])
@example(["[a]: b\n", "(b)", "\n", "    code\n"])
@example(["_", "__", "a b", "__", "_", "|"])
@example(["(b)", "```\n", "```", "[", "``"])
@example(["_", "![", "  \n", "!", "_", " ", "]", "a b"])
@given(st.lists(st.sampled_from([sign for sign in SIGNS if sign not in NOT_JUDGED] + ["\\*"]), max_size=12))
def test_a_parser_reads_the_same_structure_after_a_translation_of_every_word(pieces: list[str]) -> None:
    source = "".join(pieces)
    assume(CONTESTED.search(source) is None and not has_split_run(run(markdown_tokens(source))))
    assert structure(translated(source, "markdown", loud)) == structure(source)

"""Markdown: structure comes out as it went in, and a parser sees the same before and after a translation."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pretend import planned, run, translated

from dragoman.serving.text.links import Link
from dragoman.serving.text.markdown_tokens import markdown_tokens

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


@settings(max_examples=150)
@example(["*", "*", "![i](x.png 't')", "*", "    code\n"])
@example(["*", "*", "*", "![i](x.png 't')", "*", "| a | b |\n|:-:|--|\n| c | d |\n"])
@example(["*", "> ", "![i](x.png 't')", "*", "    code\n"])
@given(st.lists(st.sampled_from([sign for sign in SIGNS if sign not in NOT_JUDGED] + ["\\*"]), max_size=12))
def test_a_parser_sees_the_same_structure_after_a_translation_of_every_word(pieces: list[str]) -> None:
    source = "".join(pieces)
    assume("~~~" not in source)  # GitHub strikes nothing out between runs of three and more; this parser does
    assert structure(translated(source, "markdown", loud)) == structure(source)

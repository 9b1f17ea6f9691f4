"""HTML: what is no text comes out as it went in, tags stay nested and on their words, nothing is too broken or too large."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretend import planned, run, translated

from dragoman.errors import InvalidRequest
from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.links import Link

PAGE = """<!DOCTYPE html>
<html lang=en><head><title>A page &amp; more</title><script>if (a<b) { x("</p>") }</script><style>p > b {}</style></head>
<body class='x'>
<p>The <b>red</b> house. It is <i>here</i>, you know.</p><!-- <p>not this</p> -->
<ul><li>One &lt; two&nbsp;three<li><a href="x?a=1&b=2">A link</a></ul>
<pre> x  <b>y</b> </pre>Use <code>foo(&amp;)</code> now.<p translate="no">keep <b>me</b></p>
<div class="notranslate big">and me</div>
<img src=a.png alt="b">text<br/>more text</body></html>
"""


def test_a_page_comes_out_byte_for_byte_when_nothing_is_translated() -> None:
    assert translated(PAGE) == PAGE


def test_only_text_is_translated() -> None:
    parts = [part.text for part in planned(PAGE).parts]
    assert parts[:3] == ["A page & more", "The red house.", "It is here, you know."]
    assert parts[3:5] == ["One < two\xa0three", "A link"]
    assert re.fullmatch(r"Use \d+ now\.", parts[5])
    assert parts[6:] == ["text", "more text"]


def test_tags_go_where_their_words_go() -> None:
    found = translated(
        "<p>The <b>red</b> <i>house</i>.</p>",
        translate=lambda _: "Das Haus ist rot.",
        links=lambda _: [Link(0, 3, 0, 3), Link(4, 7, 13, 16), Link(8, 13, 4, 8)],
    )
    assert found == "<p>Das <i>Haus</i> ist <b>rot</b>.</p>"


def test_tags_of_webvtt_stay_at_their_words() -> None:
    red = translated(
        "The <c.red.bg_blue>red</c> house",
        "html",
        lambda _: "Das Haus ist rot",
        lambda _: [Link(4, 7, 13, 16), Link(8, 13, 4, 8)],
    )
    assert red == "Das Haus ist <c.red.bg_blue>rot</c>"
    said = "<v Tom>Is it <b.loud>late</b>?</v> <v.first Mary Ann>A <lang de>Haus</lang>."
    assert [part.text for part in planned(said).parts] == ["Is it late?", "A Haus."]
    assert translated(said, "html", str.upper) == (
        "<v Tom>IS IT <b.loud>LATE</b>?</v> <v.first Mary Ann>A <lang de>HAUS</lang>."
    )
    assert [part.text for part in planned("a <script.x>b</script.x> c").parts] == ["a", "b", "c"]


def test_a_tag_around_one_word_follows_it() -> None:
    found = translated(
        "<p>The <b>red</b> house</p>",
        translate=lambda _: "Das Haus in Rot",
        links=lambda _: [Link(0, 3, 0, 3), Link(4, 7, 12, 15), Link(8, 13, 4, 8)],
    )
    assert found == "<p>Das Haus in <b>Rot</b></p>"


def test_without_an_alignment_tags_are_placed_in_proportion() -> None:
    found = translated("<p>The <b>red</b> house</p>", translate=lambda _: "Das rote Haus", links=lambda _: [])
    assert found == "<p>Das <b>rote</b> Haus</p>"


def test_a_pair_around_several_sentences_stays_one_pair() -> None:
    assert translated("<p>So <b>it is. Or is it? No.</b> Yes.</p>") == "<p>So <b>it is. Or is it? No.</b> Yes.</p>"


def test_what_the_model_omits_is_put_back_where_it_stood() -> None:
    found = translated("<p>Use <code>foo</code> now.</p>", translate=lambda _: "Jetzt bitte benutzen.", links=lambda _: [])
    assert found.count("<code>foo</code>") == 1


def test_translated_text_is_escaped() -> None:
    assert translated("<p>a word</p>", translate=lambda _: "<b> & co") == "<p>&lt;b&gt; &amp; co</p>"


def test_a_tag_without_words_stays_at_the_word_that_it_touches() -> None:
    links = [Link(0, 3, 0, 3), Link(4, 9, 4, 8), Link(10, 12, 9, 12), Link(13, 16, 13, 16)]
    found = translated("<p>The house<wbr> is red</p>", translate=lambda _: "Das Haus ist rot", links=lambda _: links)
    assert found == "<p>Das Haus<wbr> ist rot</p>"


def test_tags_among_signs_stay_where_they_are() -> None:
    found = translated("Ende! &copy <b><ruby>--&gt; 5</ruby></b>", links=lambda _: [])
    assert found == "Ende! © <b><ruby>--&gt; 5</ruby></b>"


def test_tags_around_the_mark_of_an_item_stay_around_it() -> None:
    found = translated("<p><b>1.</b> Open <i>the door</i></p><p><b>2. Close</b> it</p>", translate=str.upper)
    assert found == "<p><b>1.</b> OPEN <i>THE DOOR</i></p><p><b>2. CLOSE</b> IT</p>"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<b>railway</b> <i>stop</i>", "Der <b><i>Bahnhof</i></b>"),
        ("<b>railway</b> <a href=x>s<u>to</u>p</a>", "Der <b><a href=x><u>Bahnhof</u></a></b>"),
        ("<a href=x>railway</a> <a href=y>stop</a>", "Der <a href=x>Bahnhof</a><a href=y></a>"),
    ],
)
def test_pairs_whose_words_became_one_word_stand_in_each_other(source: str, expected: str) -> None:
    links = [Link(0, 3, 0, 3), Link(4, 11, 4, 11), Link(12, 16, 4, 11)]
    found = translated(f"<p>The {source}</p>", translate=lambda _: "Der Bahnhof", links=lambda _: links)
    assert found == f"<p>{expected}</p>"


WORDS = st.sampled_from(["red", "house. ", " and", "&lt;", "&nbsp;x", "Ende! ", "  ", "\n", "5 km", "<", "&", "﻿", "￼"])
_PAIRS = ["<b>", "</b>", "<i class=x>", "</i>", "<p>", "</p>", "<code>", "</code>", "<a href='?a>b'>", "</a>"]
_OTHERS = ["<br>", "<!--x-->", "<img src=x>", "<div>", "</div>", "<script>", "</script>", "<span translate=no>", "</span>"]
TAGS = st.sampled_from([*_PAIRS, *_OTHERS, "<pre>", "</pre>", "</", "<!", "<a '"])


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS | TAGS, max_size=30).map("".join), st.booleans())
def test_every_tag_comes_out_once_and_pairs_stay_nested(source: str, aligned: bool) -> None:
    def tags(text: str) -> list[str]:
        return [token.raw for token in run(html_tokens(text)) if token.name]

    links = (lambda part: [Link(at, at + 1, at, at + 1) for at in range(len(part))]) if aligned else (lambda _: [])
    found = translated(source, translate=lambda part: part[::-1] if not aligned else part, links=links)
    assert sorted(tags(found)) == sorted(tags(source))
    if aligned:
        assert tags(found) == tags(source)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("<>/!-?ab'\"= \n&;#"), max_size=60))
def test_tokens_are_the_source_whatever_it_is(source: str) -> None:
    assert "".join(token.raw for token in run(html_tokens(source))) == source


N = 100_000
HOSTILE = {
    "ten thousand nested tags": "<b>" * 10_000 + "word" + "</b>" * 10_000,
    "ten thousand nested blocks": "<div>" * 10_000 + "word",
    "one endless tag": "<a " + "x" * N,
    "one endless attribute": "<a b='" + "x" * N + "'>word</a>",
    "attributes": "<a" + " b=1" * (N // 4) + ">word",
    "opened and never closed": "<" * N,
    "comments": "<!--" * (N // 4),
    "quotes": "<a '" * (N // 4),
    "slashes": "<a/" * (N // 3),
    "entities": "&" * N,
    "code": "<code>" * (N // 6),
    "crossing pairs": "<b><i>x</b></i> " * (N // 16),
    "tagged words": "<i>w</i> " * (N // 9),
    "atoms": "x <code>a</code> " * (N // 17),
    "scripts": "<script>" + "</scrip" * (N // 7),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markup_takes_linear_time_and_comes_out_whole(name: str) -> None:
    began_s = time.process_time()
    found = translated(HOSTILE[name])
    assert time.process_time() - began_s < 4.0  # what is quadratic takes minutes
    assert sorted(re.findall("<[a-z/][^>]*>", found)) == sorted(re.findall("<[a-z/][^>]*>", HOSTILE[name]))


def test_a_word_beyond_the_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a word of"):
        translated("<p>" + "x" * 50_000)


def test_attributes_are_translated_when_asked_for() -> None:
    page = '<p title="a &lt; b">See <img src=x alt=here> <a title=\'it\' href="y">now</a></p>'
    page += '<input placeholder="name" value="v">'
    assert translated(page, translate=str.upper) == page.replace("See", "SEE").replace("now", "NOW")
    assert translated(page, translate=str.upper, attributes=True) == (
        '<p title="A &lt; B">SEE <img src=x alt="HERE"> <a title=\'IT\' href="y">NOW</a></p>'
        '<input placeholder="NAME" value="v">'
    )


def test_attributes_of_what_is_kept_stay() -> None:
    page = '<p translate="no" title="a">b</p><textarea placeholder="c">d</textarea><code title="e">f</code>'
    assert translated(page, translate=str.upper, attributes=True) == page.replace('"c"', '"C"').replace('"e"', '"E"')


def test_an_attribute_is_a_text_of_its_own() -> None:
    parts = [part.text for part in planned('<p>A <b title="It is. So.">red</b> one</p>', attributes=True).parts]
    assert parts == ["It is.", "So.", "A red one"]


def test_what_a_translated_attribute_says_stays_within_it() -> None:
    page = '<b title="x">y</b>'
    assert translated(page, translate=lambda _: "\"'<>", attributes=True).startswith('<b title="&quot;&#x27;&lt;&gt;">')


def test_a_pair_whose_words_nothing_is_linked_to_still_encloses_a_word() -> None:
    found = translated(
        "<p>The <b>red</b> house</p>", translate=lambda _: "Das rote Haus", links=lambda _: [Link(0, 3, 0, 3)]
    )
    assert found == "<p>Das <b>rote</b> Haus</p>"


def test_an_element_whose_words_are_lost_stays_empty_where_they_would_stand() -> None:
    source = "See <a href=1>this</a> <a id=x href=2>and</a> <a href=3>that</a>."
    found = translated(source, translate=lambda _: "Sieh das.", links=lambda _: [Link(0, 3, 0, 4), Link(4, 8, 5, 8)])
    assert found == "Sieh <a href=1>das</a><a id=x href=2></a><a href=3></a>."


def test_labels_of_a_form_are_texts_of_their_own() -> None:
    form = "<label for=a>Your name</label> <input id=a>\n<label>Your house <b>here</b> <input></label>"
    assert [part.text for part in planned(form).parts] == ["Your name", "Your house here"]
    assert translated(form) == form

"""XML: everything but text comes out byte for byte; nothing is expanded; XLIFF gets targets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from pretend import planned, run, translated

from dragoman.serving.text.links import Link
from dragoman.serving.text.xml_tokens import xml_tokens

BOOK = """<?xml version="1.0"?>
<!DOCTYPE book [<!ENTITY brand "Acme &amp; Co"> <!ENTITY a "&b;&b;">]>
<book xmlns:its="http://www.w3.org/2005/11/its" its:version='2.0'>
  <!-- a comment -->
  <title  lang = 'x'>A title &amp; more</title>
  <p>The <b>red</b> house of &brand; costs &lt;5&#x20AC;.<?pi x?></p>
  <p its:translate="no">Keep <b>me</b></p><string translatable='false'>and me</string>
  <verse xml:space="preserve">two  spaces
 in lines</verse>
  <item name="n">One</item><item>Two</item><empty/>
  <d><![CDATA[Some <b>fat</b> text &amp; more]]></d><d><![CDATA[plain & text]]></d>
</book>
"""


def test_nothing_changes_when_nothing_is_translated() -> None:
    whole = BOOK.replace("&#x20AC;", "€")
    assert translated(whole, "xml") == whole


def test_only_text_is_translated_and_entities_of_the_document_stay() -> None:
    parts = [part.text for part in planned(BOOK, "xml", placeholders=False).parts]
    assert parts[0] == "A title & more"
    assert parts[1].startswith("The red house of ")
    assert parts[1].endswith(" costs <5€.")
    assert parts[2:] == ["two  spaces", "in lines", "One", "Two", "Some fat text & more", "plain & text"]
    assert "of &brand; costs &lt;5€.<?pi x?>" in translated(BOOK, "xml")


def test_a_translated_document_is_read_by_a_parser_as_before() -> None:
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    before, after = (etree.fromstring(text.encode(), parser) for text in (BOOK, translated(BOOK, "xml", str.upper)))
    assert [element.tag for element in before.iter(etree.Element)] == [element.tag for element in after.iter(etree.Element)]
    assert [dict(element.attrib) for element in before.iter(etree.Element)] == [
        dict(element.attrib) for element in after.iter(etree.Element)
    ]
    assert after.findtext("title") == "A TITLE & MORE"


def test_elements_in_running_text_move_with_their_words_and_others_end_it() -> None:
    text = "<x><y>The <k>red</k> house</y><y>One</y><y>Two</y></x>"
    found = translated(text, "xml", lambda _: "Das Haus ist rot", lambda _: [Link(4, 7, 13, 16), Link(8, 13, 4, 8)])
    assert found.startswith("<x><y>Das Haus ist <k>rot</k></y><y>")
    assert len(planned(text, "xml").parts) == 3


def test_what_a_translation_says_is_escaped_for_its_place() -> None:
    assert translated("<a>x</a>", "xml", lambda _: "1 < 2 & 3]]>", lambda _: []) == "<a>1 &lt; 2 &amp; 3]]&gt;</a>"
    assert (
        translated("<a><![CDATA[x]]></a>", "xml", lambda _: "1 < 2 ]]> 3", lambda _: [])
        == "<a><![CDATA[1 < 2 ]]]]><![CDATA[> 3]]></a>"
    )


def test_segments_of_xliff_get_targets_and_keep_their_sources() -> None:
    head, tail = '<xliff version="1.2"><file><body>', "</body></file></xliff>"
    units = {
        '<trans-unit id="1"><source>A <g id="1">red</g> one<x id="2"/></source></trans-unit>': (
            '<trans-unit id="1"><source>A <g id="1">red</g> one<x id="2"/></source>'
            '<target>A <g id="1">RED</g> ONE<x id="2"/></target></trans-unit>'
        ),
        '<unit><source>Hi <bpt id="1">&lt;b&gt;</bpt>you<ept id="1">&lt;/b&gt;</ept></source>\n<target/></unit>': (
            '<unit><source>Hi <bpt id="1">&lt;b&gt;</bpt>you<ept id="1">&lt;/b&gt;</ept></source>\n'
            '<target>HI <bpt id="1">&lt;b&gt;</bpt>YOU<ept id="1">&lt;/b&gt;</ept></target></unit>'
        ),
        '<unit><source>fill</source><target state="new"></target><note>a note</note></unit>': (
            '<unit><source>fill</source><target state="new">FILL</target><note>a note</note></unit>'
        ),
        '<unit><source>A b.</source><seg-source><mrk mid="1">A b.</mrk></seg-source> <note>a note</note></unit>': (
            '<unit><source>A b.</source><seg-source><mrk mid="1">A b.</mrk></seg-source>'
            '<target><mrk mid="1">A B.</mrk></target> <note>a note</note></unit>'
        ),
        "<unit><source>A</source>\n<seg-source><mrk>A</mrk></seg-source>\n<target><mrk/></target></unit>": (
            "<unit><source>A</source>\n<seg-source><mrk>A</mrk></seg-source>\n<target><mrk>A</mrk></target></unit>"
        ),
    }
    kept = ["<unit><source>Done</source><target>Fertig</target></unit>", '<unit translate="no"><source>No</source></unit>']
    kept.append("<unit><source>a</source><seg-source><mrk>a</mrk></seg-source><target><mrk>b</mrk></target></unit>")
    for source, target in [*units.items(), *((unit, unit) for unit in kept)]:
        assert translated(head + source + tail, "xml", str.upper) == head + target + tail


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<d>&lt;p class=&quot;x&quot;&gt;It &lt;b&gt;is&lt;/b&gt; a &amp;amp; b.&lt;/p&gt;</d>",
            "<d>&lt;p class=&quot;x&quot;&gt;IT &lt;b&gt;IS&lt;/b&gt; A &amp;amp; B.&lt;/p&gt;</d>",
        ),
        ("<d>a&lt;br/&gt;b &lt;code&gt;c&lt;/code&gt;</d>", "<d>A&lt;br/&gt;B &lt;code&gt;c&lt;/code&gt;</d>"),
        ("<d>a &lt; b &lt;love&gt; c</d>", "<d>A &lt; B &lt;LOVE&gt; C</d>"),
        ("<p>Write &lt;p&gt; here</p><p>b</p>", "<p>WRITE &lt;P&gt; HERE</p><p>B</p>"),
        ("<d>a &lt;b&gt;&x;&lt;/b&gt;</d>", "<d>A &lt;B&gt;&x;&lt;/B&gt;</d>"),
        ("<d>a &lt;b&gt;c&lt;/i&gt;</d>", "<d>A &lt;B&gt;C&lt;/I&gt;</d>"),
        ("<d>a &lt;b</d>", "<d>A &lt;B</d>"),
    ],
)
def test_whole_html_in_a_text_is_markup_and_other_signs_are_text(text: str, expected: str) -> None:
    assert translated(text, "xml", str.upper) == expected


def test_attributes_of_html_in_a_text_are_translated_where_they_stand() -> None:
    text = "<d>a &lt;img alt=&quot;b &amp;quot; c&quot; src=&quot;d&quot;/&gt; e</d>"
    expected = "<d>A &lt;img alt=&quot;B &amp;quot; C&quot; src=&quot;d&quot;/&gt; E</d>"
    assert translated(text, "xml", str.upper, attributes=True) == expected


def test_feeds_resources_and_drawings_keep_what_programs_read() -> None:
    feed = "<rss><title>a</title><language>en-us</language><pubDate>Tue</pubDate><guid>b</guid><author>c</author></rss>"
    assert translated(feed, "xml", str.upper) == feed.replace(">a<", ">A<")
    resources = "<resources><string>a</string><color>red</color><bool>true</bool></resources>"
    assert translated(resources, "xml", str.upper) == resources.replace(">a<", ">A<")
    drawing = "<svg><style>b</style><text>a <tspan>c</tspan></text><path d='e'/></svg>"
    assert translated(drawing, "xml", str.upper) == drawing.replace("a <tspan>c", "A <tspan>C")
    assert translated("<d><svg><text>a</text></svg><language>b</language></d>", "xml", str.upper) == (
        "<d><svg><text>a</text></svg><language>B</language></d>"
    )
    manual = "<para>a <command>ls</command> <filename>b.c</filename></para>"
    assert translated(manual, "xml", str.upper) == manual.replace(">a", ">A")


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        (r"I don\'t \"know\" it", ['I don\'t "know" it'], r"I DON\'T \"KNOW\" IT"),
        (r"One.\nTwo \t&amp; more\n", ["One.", "Two", "& more"], r"ONE.\nTWO \t&amp; MORE\n"),
        (r"A\u0020b \u00e9 \ud83d", ["A b é \\ud83d"], "A B É \\\\UD83D"),
        (r"Hi \ud83d\ude00 you", ["Hi 70 you"], "HI 😀 YOU"),
        ('"Two  words"', ["Two words"], '"TWO WORDS"'),
        (r"\@ home", ["@ home"], r"\@ HOME"),
        ("@string/other", [], "@string/other"),
        ("?attr/name", [], "?attr/name"),
        (r"a\\b", ["a\\b"], r"A\\B"),
        ("&lt;b&gt;a&lt;/b&gt;", ["a"], "&lt;b&gt;A&lt;/b&gt;"),
        (r"&lt;b&gt;I\'m&lt;/b&gt; a &amp;amp; b", ["I'm a & b"], r"&lt;b&gt;I\'M&lt;/b&gt; A &amp;amp; B"),
        ("<![CDATA[<b>Hello</b> world]]>", ["Hello world"], "<![CDATA[<b>HELLO</b> WORLD]]>"),
        (
            r"<![CDATA[<b>I\'m</b> a &amp; b \u00e9\n<i>Two</i>]]>",
            ["I'm a & b é", "Two"],
            r"<![CDATA[<b>I\'M</b> A &amp; B É\n<i>TWO</i>]]>",
        ),
        (r"<![CDATA[I\'m a & b\nTwo]]>", ["I'm a & b", "Two"], r"<![CDATA[I\'M A & B\nTWO]]>"),
        ("<![CDATA[@string/other]]>", [], "<![CDATA[@string/other]]>"),
    ],
)
def test_texts_of_android_resources_have_escapes_of_their_own(text: str, parts: list[str], expected: str) -> None:
    head, tail = "<?xml version='1.0'?><resources><string name='a'>", "</string></resources>"
    assert [part.text for part in planned(head + text + tail, "xml").parts] == parts
    assert translated(head + text + tail, "xml", str.upper) == head + expected + tail
    assert "".join(token.raw for token in run(xml_tokens(head + text + tail))) == head + text + tail


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "<para>The house<footnote id='a'><para>It is <b>red</b>. Or blue.</para> <para>Big</para></footnote> is big."
            "</para>",
            ["It is red.", "Or blue.", "Big", "The house is big."],
        ),
        ("<p>The house<fn>It is red<fn>, or so,</fn>.</fn> is <b>big<fn> Very.</fn></b>.</p>", None),
        ("<para>The house<footnote><para>5</para></footnote> is big.</para>", ["The house is big."]),
        ("<book><footnote><para>A</para></footnote><para>B</para></book>", ["A", "B"]),
        ("<para>The house<footnote><para>It is red.</para> is big.</para>", None),
        ("<p>It is <b>late<fn><img title='A b'/>One</fn></b></p>", ["One", "It is late"]),
    ],
)
def test_a_note_does_not_tear_the_sentence_that_it_stands_in(text: str, parts: list[str] | None) -> None:
    for attributes in (False, True):
        assert translated(text, "xml", attributes=attributes) == text
    if parts is not None:
        assert [part.text for part in planned(text, "xml").parts] == parts


def test_a_note_moves_with_its_word() -> None:
    text = "<para>The red<footnote><para>or so</para></footnote> house</para>"
    found = translated(
        text,
        "xml",
        lambda part: "Das Haus ist rot" if part == "The red house" else part.upper(),
        lambda part: [Link(4, 7, 13, 16), Link(8, 13, 4, 8)] if part == "The red house" else [],
    )
    assert found == "<para>Das Haus ist rot<footnote><para>OR SO</para></footnote></para>"


def test_ten_thousand_notes_in_each_other_are_read() -> None:
    text = "<p>a" + "<fn>b" * 10_000 + "</fn>" * 10_000 + "</p>"
    found = translated(text, "xml", links=lambda _: [])
    assert sorted(found) == sorted(text)


def test_no_entity_is_ever_expanded() -> None:
    bomb = '<!DOCTYPE z [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {new} "{"&" + old + ";"}{"&" + old + ";"}">' for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    bomb += ' <!ENTITY file SYSTEM "file:///etc/passwd">]><z>It is &i; or &file;.</z>'
    assert translated(bomb, "xml") == bomb


@pytest.mark.parametrize(
    "broken", ["<a", "<a b='", "</", "<a>x</b>", "<![CDATA[x", "<!--", "<!DOCTYPE a [", "a & b < c", "&#xD800;&#0;&x"]
)
def test_nothing_is_too_broken(broken: str) -> None:
    assert translated("word " + broken, "xml", placeholders=False).startswith("word ")


PIECES = ["<a>", "</a>", "<b x='1'>", "</b>", "text", "&amp;", "&x;", "<![CDATA[", "]]>", "<!--", "-->", "<?pi", "?>"]
PIECES += [
    "<!DOCTYPE a [",
    "]>",
    "<c/>",
    " ",
    "\n",
    "<",
    "&",
    "<source>",
    "</source>",
    "'",
    '"',
    "<p xml:space='preserve'>",
    "<xliff>",
    "&lt;p&gt;",
    "&lt;/p&gt;",
    "<resources>",
    "<fn>",
    "</fn>",
    "\\n",
    "\\'",
    "\\u00e9",
    "&lt;img alt=&quot;x&quot;>",
]


@settings(max_examples=150)
@given(st.lists(st.sampled_from([piece for piece in PIECES if piece != "<xliff>"]), max_size=40))
def test_tokens_are_the_source(pieces: list[str]) -> None:
    source = "".join(pieces)
    assert "".join(token.raw for token in run(xml_tokens(source))) == source


@settings(max_examples=100)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_no_document_raises(pieces: list[str]) -> None:
    translated("<xliff>" + "".join(pieces), "xml", str.upper, attributes=True)

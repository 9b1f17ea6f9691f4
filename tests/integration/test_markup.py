"""HTML, placeholders and glossaries over gRPC, with the reference model behind the real Triton."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.client import Translator
from dragoman.errors import InvalidRequest, UsageError
from served import Server, eventually

PAGE = '<p>Tom bought a <b class="x">red</b> car.</p><!-- kept --><p>Open <code>a&lt;b</code>, please.</p>'


@pytest.fixture
def translator(server: Server) -> Translator:
    return Translator(server.grpc)


def test_a_page_keeps_its_tags(translator: Translator) -> None:
    found = translator.translate(PAGE, format="html").text
    assert found.startswith("<p>Tom ")
    assert '<b class="x">' in found
    assert (
        found.index('<b class="x">')
        < found.index("</b>")
        < found.index("<!-- kept -->")
        < found.index("<code>a&lt;b</code>")
    )
    assert "car" not in found


def test_a_stream_of_a_page_is_the_page(translator: Translator) -> None:
    whole = translator.translate(PAGE, format="html", cache=False).text
    assert "".join(translator.stream(PAGE, format="html", cache=False)) == whole


def test_a_link_comes_out_as_it_went_in(translator: Translator) -> None:
    text = "See https://example.org/ÄÖ?x={1}#y or ask 👍🏽 {name}."
    found = translator.translate(text).text
    assert all(kept in found for kept in ("https://example.org/ÄÖ?x={1}#y", "👍🏽", "{name}"))
    assert "https" not in translator.translate(text, placeholders=False).text


def test_words_in_a_script_that_the_model_can_not_read_come_out_as_they_went_in(translator: Translator) -> None:
    assert translator.translate("שלום עולם. גברת כהן?").text == "שלום עולם. גברת כהן?"
    assert translator.translate("The word שלום means peace.").text.count("שלום") == 1
    assert "שלום" not in translator.translate("שלום", placeholders=False).text


def test_the_translation_of_a_sentence_in_capitals_begins_with_a_prefix_in_capitals(translator: Translator) -> None:
    texts = ["WHERE IS THE STATION? IT IS LATE.", "Where is it?"]
    for prefix in ("WO IST", "Wo ist"):
        found = [one.text for one in translator.translate(texts, prefix_text=prefix)]
        assert found[0].startswith("WO IST DER ")
        assert found[1].startswith(prefix)


def test_a_term_is_used_and_the_cache_knows_of_it(translator: Translator) -> None:
    question = "Where is the station?"
    plain = translator.translate(question).text
    assert "Haltestelle" in translator.translate(question, glossary={"station": "Haltestelle"}).text
    assert "Bahnhof" not in translator.translate(question, glossary=[("station", "!Bahnhof")]).text
    assert translator.translate(question).text == plain
    assert "Bahnhof" in plain


def test_an_improbable_term_stands_where_its_source_is(translator: Translator) -> None:
    """The search alone writes "Atomversuche Vertrag hat die Prüfung nicht unter dem Boden …"."""
    text, glossary = "The treaty did not ban nuclear tests under the ground.", {"treaty": "Vertrag", "tests": "Atomversuche"}
    found = translator.translate(text, glossary=glossary, alignment=True)
    assert found.text.index("Vertrag") < found.text.index("Atomversuche")
    assert "Prüfung" not in found.text
    words = {
        text[link.source_start : link.source_end]: found.text[link.target_start : link.target_end]
        for link in found.alignment
    }
    assert words["tests"] == "Atomversuche"
    pieces = list(translator.stream(text, glossary=glossary))
    assert "".join(pieces) == found.text


def test_answers_with_terms_are_the_same_alone_and_side_by_side(translator: Translator) -> None:
    texts = ["Where is the station?", "My friend is at the station.", "It is raining.", "Tom has a dog."] * 3
    options = {"glossary": {"station": "Haltestelle", "friend": "Kumpel"}, "cache": False, "beam_size": 4}
    together = [one.text for one in translator.translate(texts, **options)]
    assert together == [translator.translate(text, **options).text for text in texts[:4]] * 3


@pytest.mark.parametrize("term", ["Parys", "HALTESTELLE", "Halt", "Bahn"])
def test_a_term_is_a_whole_word_unless_it_may_have_an_ending(translator: Translator, term: str) -> None:
    texts = [
        "Where is the station?",
        "I saw the station.",
        "He works at a station in Boston.",
        "The station is old, isn't it?",
    ]
    for width in (2, 4):
        for found in translator.translate(texts, glossary={"station": term}, beam_size=width):
            assert re.search(rf"\b{term}\b", found.text, re.IGNORECASE)
    for found in translator.translate(texts, glossary={"station": f"{term}~"}):
        assert term.lower() in found.text.lower()
        assert "~" not in found.text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"glossary": "nobody"}, "there is no glossary 'nobody'; this server has: none"),
        ({"glossary": [["a", "b"], ["a", "c"]]}, "contradicts"),
        ({"glossary": [["a", "b"]] * 257}, "257 terms"),
        ({"glossary": [["a"]]}, "pairs"),
        ({"glossary": [["a", "b"]], "sampling": True, "beam_size": 1}, "sampling can't enforce"),
    ],
)
def test_impossible_glossaries_are_refused(translator: Translator, options: dict, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        translator.translate("Hello.", **options)


def test_terms_and_placeholders_are_counted(server: Server, translator: Translator) -> None:
    used = 'dragoman_glossary_terms_total{model="en-de",outcome="used"}'
    kept = 'dragoman_placeholders_total{model="en-de",outcome="kept"}'
    before = server.metrics()
    translator.translate("Where is the station?", glossary={"station": "Haltestelle"}, cache=False)
    translator.translate("Please ask {name}.", cache=False)

    def grown(series: str) -> float:
        return server.metrics().get(series, 0) - before.get(series, 0)

    eventually(lambda: grown(used) >= 1 and grown(kept) >= 1)


MARKDOWN = "# The *red* house\n\n- [A cat](http://a.b) is here.\n- Ask `f(x)` or {name}.\n\n```\ncode\n```\n"
XML = "<doc>\n<p>Tom bought a <k>red</k> car &co;.</p>\n<code>keep</code><p title='A cat'>It is late.</p></doc>\n"


def test_markdown_keeps_its_structure(translator: Translator) -> None:
    found = translator.translate(MARKDOWN, format="markdown").text
    assert "".join(translator.stream(MARKDOWN, format="markdown", cache=False)) == found
    assert found.startswith("# ")
    assert found.count("*") == 2
    assert all(kept in found for kept in ("](http://a.b)", "`f(x)`", "{name}", "\n\n```\ncode\n```\n"))
    assert "house" not in found


def test_xml_keeps_its_elements_and_attributes_are_translated_when_asked_for(translator: Translator) -> None:
    found = translator.translate(XML, format="xml").text
    assert found.startswith("<doc>\n<p>Tom ")
    assert all(kept in found for kept in ("<k>", "</k>", "&co;", "<code>keep</code><p title='A cat'>"))
    options = {"format": "xml", "translate_attributes": True, "cache": False}
    asked = translator.translate(XML, **options).text
    assert "title='A cat'" not in asked
    assert re.sub("title='[^']+'", "title='A cat'", asked) == found
    assert "".join(translator.stream(XML, **options)) == asked


def test_a_sentence_in_capitals_is_translated_as_a_normal_one(translator: Translator) -> None:
    plain = translator.translate("Where is the station?").text
    assert translator.translate("WHERE IS THE STATION?").text == plain.upper()
    assert translator.translate("WHERE IS THE STATION?", capitals=False).text != plain.upper()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_every_placeholder_comes_out_once(translator: Translator, count: int) -> None:
    own = ["https://a.b/c?d=1", "{name}", "%s", "5 km", "`x=1`"][:count]
    texts = [f"Copy {' and '.join(own)}.", f"See {' '.join(own)}!", " ".join(own), f"{', '.join(own)} are not here."]
    for sampled in ({}, {"sampling": True, "seed": 3, "beam_size": 1}):
        for found in translator.translate(texts, **sampled):
            assert [found.text.count(one) for one in own] == [1] * count
            assert not re.search(rf"(?:{'|'.join(map(re.escape, own))})\w", found.text)


def test_client_driven_decoding_refuses_formats_and_glossaries(server: Server) -> None:
    with Translator(server.grpc, decoding="client") as translator:
        for options in ({"format": "html"}, {"format": "markdown"}, {"glossary": {"a": "b"}}):
            with pytest.raises(UsageError, match="needs the search of the server"):
                translator.translate("Hello.", **options)


def test_the_shell_takes_pages_and_glossary_files(server: Server, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<h1>The station</h1>\n<p>Where is the station?</p>\n", encoding="utf-8")
    (tmp_path / "terms.tsv").write_text("station\tHaltestelle\n", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("dragoman")), "translate", "--server", server.grpc]
    command += ["--input", "page.html", "--format", "html", "--glossary", "terms.tsv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Haltestelle") == 2
    assert done.stdout.startswith("<h1>")


def test_the_shell_knows_a_document_by_its_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# The station\n\nWhere is the *station*?\n", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("dragoman")), "translate", "--server", server.grpc, "--input", "page.md"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert shown.returncode == 0, shown.stderr
    assert re.fullmatch(r"# [^#*]+\n\n[^#*]*\*[^#*]+\*\S*\n", shown.stdout)
    subprocess.run([*command, "--output", "page.de.md"], cwd=tmp_path, capture_output=True, check=True, timeout=600)
    assert (tmp_path / "page.de.md").read_text(encoding="utf-8") == shown.stdout


def test_an_alignment_refers_to_the_text_as_it_was_sent(translator: Translator) -> None:
    for text, options in (
        ("I love you 😍. Where is the station?", {}),
        ("<p>I am <b>here</b>.</p>\n<p>Where is the <i>station</i>?</p>", {"format": "html"}),
        ("> *I* am here. &amp; Where is the [station](u)?", {"format": "markdown"}),
    ):
        found = translator.translate(text, alignment=True, beam_size=4, **options)
        words = {
            (text[link.source_start : link.source_end], found.text[link.target_start : link.target_end])
            for link in found.alignment
        }
        assert {("Where", "Wo"), ("station", "Bahnhof")} <= words, found.text
        assert translator.translate(text, beam_size=4, **options).alignment == ()

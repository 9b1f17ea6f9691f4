"""Markup that readers of HTML, XML and Markdown could take long to read."""

from __future__ import annotations

HTML_TEXTS = {
    "open tags": "<b>" * 33_000,
    "nested elements": "<b>" * 14_000 + "a" + "</b>" * 14_000,
    "tags that cross": "<b><i>a</b></i>" * 6_600,
    "signs <": "<" * 99_900,
    "attributes": "<a " + "b=c " * 24_900 + ">d</a>",
    "entities": "&amp;" * 19_900,
    "paragraphs": "<p>a" * 24_900,
    "kept elements": "<code>a</code>b " * 6_200,
    "comments": "<!--a-->b" * 11_000,
}
ENTITIES = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(30))
XML_TEXTS = {
    "entities of entities": f'<!DOCTYPE a [<!ENTITY a0 "lol">{ENTITIES}]><a>' + "a &a30; b. " * 9_000,
    "references": "<a>" + "a &own; b. " * 9_000,
    "nested elements": "<a>" * 14_000 + "b" + "</a>" * 14_000,
    "sections": "<![CDATA[a]]>" * 7_600,
    "segments": "<xliff>" + "<source>a</source>" * 5_500,
}
MARKDOWN_TEXTS = {
    "quotes": "> " * 49_900,
    "lists": "- " * 49_900,
    "lists and blank lines": "- " * 100 + "\n" * 99_000,
    "brackets": "[" * 49_900 + "]" * 49_900,
    "links that nothing ends": "[a](b 'c" * 12_400,
    "stars": "*a **b " * 14_200,
    "emphasis": "**a** " * 16_600,
    "backticks": "".join("`" * n + "a" for n in range(440)),
    "cells": "|a" * 16_600 + "\n" + "|-" * 16_600 + "\n" + "|a" * 16_600,
    "comments that nothing ends": "a <!-- " * 14_200,
}

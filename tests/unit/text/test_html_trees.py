"""HTML: a browser's parser (lexbor) sees the same tree before and after a translation, however malformed the page is."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pretend import translated
from selectolax.lexbor import LexborHTMLParser, LexborNode

NAMES = ["b", "i", "a", "span", "code", "p", "div", "h1", "ul", "li", "table", "tr", "td", "title", "textarea", "svg"]
NAMES += ["math", "select", "option", "button", "style", "script", "pre", "noscript", "form", "iframe", "ruby", "rt"]
NAMES += ["object", "video", "template", "plaintext", "o:p", "x-y", "head", "body", "html", "br"]
SIGNS = ["<", "&", ">", "=", "'", '"', "</", "<!", "<!--", "-->", "--!>", "<!-->", "<!--x-->", "]]>", "<![CDATA[", "/>"]
SIGNS += ["<?php?>", "&lt;", "&nbsp;x", "&copy", "&notit;", "&amp;amp;", "—", "中文。"]
TAGS = ["<img src=x alt='a>b'>", "<A\nB=c>", "<a/b>", "<p\tc=d\re>", "<a '", "<input value='a' disabled>", "<i class=x>"]
WORDS = [" ", "\n", "  ", "house. ", " and", "Ende! ", "o"]
SOURCES = st.lists(
    st.sampled_from([*SIGNS, *TAGS, *WORDS, *WORDS])
    | st.sampled_from(NAMES).flatmap(lambda name: st.sampled_from([f"<{name}>", f"</{name}>"])),
    max_size=20,
).map("".join)


def tree(page: str) -> list[str]:
    """Elements with their attributes, texts in lower case and without needless space, and where there are comments."""

    def seen(root: LexborNode) -> Iterator[str]:
        waiting: list[LexborNode | str] = [root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                yield node
            elif node.is_text_node:
                yield " ".join((node.text_content or "").split()).lower()
            else:
                yield f"<{node.tag} {sorted(node.attributes.items())}>"
                waiting.append(f"</{node.tag}>")
                children, child = list[LexborNode](), node.child
                while child is not None:
                    children.append(child)
                    child = child.next
                waiting += reversed(children)

    return [one for one in seen(LexborHTMLParser(page).root) if one]


def loud(text: str) -> str:
    return text.replace("o", "O")


@settings(max_examples=400, deadline=None)
@example("<code><A\nB=c></code><!-->house. ")
@given(SOURCES)
def test_a_parser_sees_the_same_tree_after_a_translation_of_every_word(source: str) -> None:
    found = translated(source, translate=loud, placeholders=False)
    assert tree(found) == tree(source)


def test_the_tree_sees_what_changes() -> None:
    page = "<p>a <b class=x>b</b> c <!-- d --></p>"
    for other in ("<p>a <b>b</b> c <!-- d --></p>", "<p>a <b class=x>b c</b> <!-- d --></p>", "<p>a <b class=x>b</b> c</p>"):
        assert tree(other) != tree(page)

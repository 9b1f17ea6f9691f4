"""The HTML documents that commands write: one style for all, and each needs nothing but itself."""

from __future__ import annotations

import html
from importlib.resources import files

__all__ = ["document", "escaped"]


def document(title: str, body: str, *, package: str, script: str = "") -> str:
    """A whole document with the common style and page.css of `package`. `body` is HTML, `title` is text."""
    style = files(__name__).joinpath("base.css").read_text(encoding="utf-8")
    style += files(package).joinpath("page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)}</title>",
            f"<style>{style}</style></head><body><main>",
            f"{body}</main>",
            f"<script>{script}</script></body></html>" if script else "</body></html>\n",
        ]
    )


def escaped(text: str) -> str:
    """Text as HTML that shows it."""
    return html.escape(text)

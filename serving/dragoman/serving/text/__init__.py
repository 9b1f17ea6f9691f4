"""From the text of a request to its parts, and from their translations back to a text.

A text goes through seven steps. Each is a module of its own, and what the first three do the last three undo:

    protect ─▶ split ─▶ tokenise ─▶ decode ─▶ detokenise ─▶ restore ─▶ join

protect     `formats`   A format leaves *blocks* of running text to translate, and the source around them as *gaps*. Plain
                        text is one block. What must not reach the model (tags, placeholders) is taken out of a block's text.
split       `planning`  Each block becomes *parts* that the model takes: sentences, lines, or the whole block. `sentences`
                        has the rules, `fitting` splits what is longer than the model's limit. `Block.part(start, end)`
                        makes the part of a stretch of the block's text, so a block decides what comes back where.
tokenise                The bundle's tokenizer; the document's `lead` before each part, the language's tokens around it.
decode                  The engine. A part's own `decoding` options are put over those of the request (`Part.options`).
detokenise              The bundle's tokenizer.
restore     `document`  `Part.restore(translation, links)` puts back what `protect` took out. `links` are the part's
                        alignment: `Link`s in characters of the part's text and of its translation. They are made for
                        parts with `needs_links` alone, and empty for the others. Before that, terms of a glossary go to
                        their places (`term_places`).
join        `joining`   The translated parts between the gaps, as the source stood; the text's score from those of its
                        parts. `stream` does the same piece by piece.

HTML, XML and Markdown share one path: a reader splits the source into *tokens* (`html_tokens`, `xml_tokens`,
`markdown_tokens`), and `markup_blocks` groups them into blocks, with their tags and the kept elements among their words.
`protection` inserts stand-ins for these and for placeholders, `marked` cuts a block into parts, `restoring` puts everything
back: tags by `placing`, placeholders by `placeholder_slots`. Attributes are texts before the blocks of their tags
(`attribute_texts`).

To add a format or a kind of protection, make blocks: `plan_document` and what follows know `Block` and `Part` only.
Everything here is linear in the length of a text and works in slices (generators that yield where others may go on).
"""

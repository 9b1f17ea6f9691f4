"""Makes the engine's sequence of a part, and the part's translation of an ended sequence."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator

from dragoman.errors import ServerError
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Forcing, Sequence
from dragoman.serving.metrics import Recorder
from dragoman.serving.process.job_queue import Yield
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.omission_guard import OmissionGuard
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.process.requests import PartOwner, PrefixPlace, TextState, TranslationRequest
from dragoman.serving.process.scoring import Scoring
from dragoman.serving.text.aligning import SpannedText, links_between
from dragoman.serving.text.alternatives import AskedPlaces
from dragoman.serving.text.document import Part
from dragoman.serving.text.links import Link
from dragoman.serving.text.stream import TextStream

__all__ = ["PartSequences"]


class PartSequences:
    """The sequences of one bundle."""

    def __init__(self, bundle: LoadedBundle, recorder: Recorder) -> None:
        self._bundle, self._tokenizer = bundle, bundle.tokenizer
        self._scoring = Scoring(bundle)
        self._guard = OmissionGuard(bundle.ends, bundle.widest_beam, recorder)

    def plan(self, request: TranslationRequest, text: TextState) -> Iterator[None]:
        """Split a text into its parts; yields after every bit of work."""
        if text.target is not None:
            document = self._scoring.plan(text.text, text.target, request.options)
        else:
            document = yield from self._bundle.plan(text.text, request.options)
            if request.options.alternatives_at:
                text.asked = AskedPlaces(request.options.alternatives_at, self._tokenizer)
        text.plan(document, request.options.decoding.num_hypotheses)
        if request.wants_stream:
            request.stream = TextStream(document, self._tokenizer.decode)

    def make(self, owner: PartOwner, part: Part) -> Sequence:
        """The sequence of a part."""
        request, options = owner.request, owner.request.options
        source = self._bundle.source(owner.text.document, part, options)
        forcing: Forcing | None = None
        if owner.text.target is not None:
            decoding, forcing = self._scoring.forcing(owner.text.target, owner.target_name, options)
        else:
            decoding = part.options(self._decoding(request, part, owner.position))
            if options.on_suspicion != "ignore":
                decoding = self._guard.bounded(decoding, len(source))
            forcing = self._forcing(options, owner.text, part)
        return Sequence(
            source,
            decoding,
            priority=options.priority,
            deadline_s=request.deadline_s,
            stream=request.wants_stream and options.on_suspicion != "retry",  # text that was sent can't be withdrawn
            arrived_s=request.arrived_s,
            owner=owner,
            request=request,
            forcing=forcing,
            shortlist=self._bundle.shortlist(owner.text.document, options),
        )

    def again(self, owner: PartOwner, sequence: Sequence) -> Sequence | None:
        """The sequence for a second translation, if the first one is suspicious."""
        return self._guard.again(owner, sequence)

    def score(self, owner: PartOwner, sequence: Sequence) -> None:
        """A target was scored: make it the sequence's hypothesis."""
        owner.text.scored_tokens = self._scoring.take(sequence, owner.target_name)

    def take(self, owner: PartOwner, sequence: Sequence) -> Generator[Yield, None, str]:
        """Put a part's hypotheses into its text and return the best one. Yields between the alignments of two hypotheses."""
        request, text, position, _ = owner
        check = None
        if request.options.on_suspicion != "ignore":
            sequence, check = self._guard.chosen(owner, sequence)
        links: list[tuple[Link, ...]] = []
        if sequence.forced and (request.options.alignment or text.document.parts[position].needs_links):
            for each in self._links(owner, sequence):
                if links:
                    yield Yield.PAUSE
                links.append(each)
        return text.take(position, sequence, self._tokenizer.decode, check, links)

    def _forcing(self, options: RequestOptions, text: TextState, part: Part) -> Forcing | None:
        """The forced decoding that the translation needs."""
        links = options.alignment or part.needs_links
        alternatives = options.num_alternatives if text.asked is not None and text.asked.are_open else 0
        measures_coverage = options.on_suspicion != "ignore" and self._bundle.engine.can_force
        if not (links or alternatives or measures_coverage):
            return None
        return Forcing(best_only=not links, scores=False, alternatives=alternatives)

    def _decoding(self, request: TranslationRequest, part: Part, position: int) -> DecodingOptions:
        """`prefix` and `prefix_text` force the beginning of each text's first part."""
        decoding, prefix = request.options.decoding, request.options.prefix_text
        if not (decoding.prefix or prefix):
            return decoding
        place: PrefixPlace = "later" if position else "first" if part.capitals is None else "first, in capitals"
        if place not in request.decoding:
            read = part.capitals.lowered_prefix(prefix) if part.capitals is not None else prefix
            forced = tuple(self._tokenizer.encode_target(read)) if prefix else ()
            request.decoding[place] = dataclasses.replace(
                decoding, prefix=() if place == "later" else (*decoding.prefix, *forced)
            )
        return request.decoding[place]

    def _links(self, owner: PartOwner, sequence: Sequence) -> Iterator[tuple[Link, ...]]:
        """The links of each hypothesis, in characters of the part and of its translation."""
        document, around = owner.text.document, owner.request.options.language_tokens
        lead, text = len(document.lead), document.parts[owner.position].text
        own = self._tokenizer.source_spans(document.lead + text)
        spans = [(max(begin - lead, 0), max(end - lead, 0)) for begin, end in own]
        spans = [*[(0, 0)] * len(around.source_prefix), *spans, *[(0, 0)] * len(around.source_suffix)]
        if len(spans) != len(sequence.source):
            raise ServerError(f"{len(spans)} places of {len(sequence.source)} tokens")
        source = SpannedText(text, spans)

        for one in sequence.forced:
            target = SpannedText(self._tokenizer.decode(one.tokens), self._tokenizer.target_spans(one.tokens))
            yield links_between(source, target, one.alignment)

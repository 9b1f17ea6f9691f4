"""What a caller gets back: frozen and typed, and nothing of gRPC in it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Alternative",
    "Alternatives",
    "Link",
    "Score",
    "SentenceCheck",
    "Timings",
    "TokenAlternative",
    "TokenScore",
    "Translation",
]


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one text went; the first three are the server's own clock, the last is the caller's."""

    queue_ms: float
    first_token_ms: float
    total_ms: float
    round_trip_ms: float


@dataclass(frozen=True, slots=True)
class Link:
    """A word and its translation: source[source_start:source_end] and text[target_start:target_end]."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """A hypothesis that was not the best; `tokens` counts its target tokens with the end token."""

    text: str
    score: float
    tokens: int
    alignment: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenAlternative:
    """A token that could stand at a place: its id, what it stands for, and its log-probability there.

    `text` begins with the space before it; that of the end token is empty: the sentence could end there.
    """

    token: int
    text: str
    log_probability: float


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What could stand at a place of a translation instead of the token text[start:end], the most probable `tokens` first.

    `prefix` has the ids of the tokens before it in its sentence, which is source[source_start:source_end]: translated again
    with `prefix=[*prefix, token]`, that sentence goes on after the token that was chosen.
    """

    start: int
    end: int
    text: str
    log_probability: float
    prefix: tuple[int, ...]
    source_start: int
    source_end: int
    tokens: tuple[TokenAlternative, ...]


@dataclass(frozen=True, slots=True)
class SentenceCheck:
    """What `on_suspicion` found of one sentence: `length_ratio` is target tokens for each source token.

    `coverage` is how much of the source the translation has looked at, from 0 to 1 (None where the bundle can't tell).
    `suspicions` says what was wrong with its translation: "short", "long", "repetition", "unfinished", "uncovered".
    `second` is what became of another one: "replaced" when it was better, "kept" when it was not, None without one.
    """

    length_ratio: float
    coverage: float | None = None
    suspicions: tuple[str, ...] = ()
    second: str | None = None


@dataclass(frozen=True, slots=True)
class Translation:
    """One text's translation.

    `score` is the search's: sum of log-probabilities over length ** length_penalty. `tokens` counts target tokens with
    the end token. `parts` is the number of sentences a long text was split into; `finish` is "eos" when the model
    ended the sentence itself and "length" when `max_length` did; `cached`: it came from the response cache.
    With `alignment=True`, `alignment` has the links between the words of the text and of its translation.
    With `alternatives_at=[…]`, `alternatives_at` has what else could stand at each place, None where no token stands.
    With `on_suspicion`, `suspicious` counts the sentences with a suspicious translation; `sentences` has the first 256.
    """

    text: str
    score: float
    tokens: int
    alternatives: tuple[Alternative, ...]
    timings: Timings
    source_tokens: int
    finish: str
    parts: int
    cached: bool
    model: str
    version: str
    suspicious: int = 0
    sentences: tuple[SentenceCheck, ...] = ()
    alignment: tuple[Link, ...] = ()
    alternatives_at: tuple[Alternatives | None, ...] = ()

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of_nothing(cls) -> Translation:
        """The translation of a blank line, which needs no model."""
        return cls("", 0.0, 0, (), Timings(0.0, 0.0, 0.0, 0.0), 0, "eos", 0, False, "", "")


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token of a target: what it stands for, with the space before it, and its log-probability after those before it.

    Special tokens have no text: the end token, and the language that some models' targets begin with. Of tokens that make
    up one character the last one has it.
    """

    text: str
    log_probability: float


@dataclass(frozen=True, slots=True)
class Score:
    """How probable a model finds a target: `total` is the sum over its `tokens`, the end token included, without any
    length penalty. The same figures as the loss of its training, which is their mean with the sign changed."""

    total: float
    tokens: tuple[TokenScore, ...]
    source_tokens: int
    timings: Timings
    model: str
    version: str

    @property
    def mean(self) -> float:
        """Log-probability a token, which compares targets of different lengths."""
        return self.total / max(len(self.tokens), 1)

    @classmethod
    def of_nothing(cls) -> Score:
        """The score of a blank line beside a blank line, which needs no model."""
        return cls(0.0, (), 0, Timings(0.0, 0.0, 0.0, 0.0), "", "")

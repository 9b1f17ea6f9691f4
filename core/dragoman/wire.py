"""The wire contract: what the client sends and the Triton models take.

Every input is BYTES, because a numeric input of variable shape lets a caller name a shape without sending it.
Options are one JSON object, so that a client in any language can write them and a new one needs no new tensor.
`docs/wire.md` says the same for people; a contract test keeps `model_repository/*/config.pbtxt` equal to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = [
    "ALIGNMENT_FIELD",
    "ALTERNATIVES_FIELD",
    "BUNDLE_FIELDS",
    "CHECK_FIELDS",
    "DECODER",
    "DETAILS_FIELDS",
    "ENCODER",
    "ERROR_FIELDS",
    "MODELS",
    "MODEL_INFO_FIELDS",
    "SCORED_FIELDS",
    "SERVER_STATUS",
    "STATUS_FIELDS",
    "TEXT_FIELDS",
    "TRANSLATE",
    "TRANSLATE_STREAM",
    "WIRE_VERSION",
    "ErrorCode",
    "Limits",
    "Tensor",
    "TritonModel",
]

WIRE_VERSION = 2
"""Every DETAILS and MODEL_INFO names it as `wire_version`; a client refuses any other.

A new field does not change it; one that is gone or means something else does. Version 2: the bundle is chosen by the tensor
MODEL instead of an option, a stream is refused by its last response (`DETAILS.error`) instead of an error response, and the
option `split` replaces `long_input`."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A Triton tensor; -1 in `dims` varies."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TritonModel:
    """A Triton model's signature."""

    name: str
    decoupled: bool
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


TEXT = Tensor("TEXT", "BYTES", (-1,))
"""Source texts, UTF-8, one an element."""

TARGET = Tensor("TARGET", "BYTES", (-1,), optional=True)
"""Translations that are there already, UTF-8, one for each of TEXT: with them the request scores instead of translating.

TRANSLATION then returns them, SCORE is the total log-probability of each, TOKEN_COUNT its tokens, and DETAILS has
SCORED_FIELDS. Each is scored whole, never split; options of the search, of splitting and of formats are refused."""

MODEL = Tensor("MODEL", "BYTES", (1,), optional=True)
"""The name of the bundle, UTF-8; needed only where a server has several."""

OPTIONS = Tensor("OPTIONS", "BYTES", (1,), optional=True)
"""A JSON object, UTF-8. For translate, translate_stream and encoder: the fields of DecodingOptions that differ from the
model's own, and beside them `source_language` and `target_language` (BCP 47, or the model's own codes), `task` (one of
the bundle's), `task_prefix` (text before each source), `request_id`, `timeout_ms`, `priority` ("interactive" | "batch"),
`prefix_text` (forced start of the translation), `split` ("sentence" | "line" | "none"), `on_suspicion` ("ignore" |
"report" | "retry"), `cache` (false: do not answer from the response cache)."""

TRANSLATION = Tensor("TRANSLATION", "BYTES", (-1, -1))
"""(texts, hypotheses), best first."""

SCORE = Tensor("SCORE", "FP32", (-1, -1))
"""(texts, hypotheses): the search's score: sum of log-probabilities over length ** length_penalty. With TARGET the sum over
all target tokens, the end token included, without a length penalty."""

TOKEN_COUNT = Tensor("TOKEN_COUNT", "INT32", (-1, -1))
"""(texts, hypotheses): target tokens of each hypothesis with its end token."""

DETAILS = Tensor("DETAILS", "BYTES", (1,))
"""A JSON object: `wire_version`, `model`, `version` (of the bundle that answered; every change of it is another),
`request_id` and `texts`: for each text `source_tokens`, `target_tokens` and `score` (of its best hypothesis),
`queue_ms`, `first_token_ms` and `total_ms` (all from the arrival at the server), `steps`, `parts` (sentences it was
split into), `cached`, `finish` ("eos" | "length")."""

ALIGNMENT_FIELD = "alignment"
"""In a text of DETAILS, of requests with `alignment`: for each hypothesis its links, four places of characters each."""
ALTERNATIVES_FIELD = "alternatives_at"
"""In a text of DETAILS, of requests with `alternatives_at`: for each place an object, or null where no token stands.

`start`, `end`, `text` and `log_probability` of the token there, `prefix` (the ids of those before it in its sentence),
`source` (where that sentence is in the text) and `tokens`, the most probable ones there: `token`, `text` and
`log_probability`."""

CHECK_FIELDS = ("suspicious", "sentences")
"""Of each text, when `on_suspicion` is not "ignore": how many sentences were suspicious, and for each of the first 256
`length_ratio`, `coverage`, `suspicions` ("short" | "long" | "repetition" | "unfinished" | "uncovered") and `second`
("replaced" | "kept" | null)."""

SCORED_FIELDS = ("tokens",)
"""Of each text, with TARGET: a list of [text, log-probability], one for each target token, the end token included."""

DETAILS_FIELDS = ("wire_version", "model", "version", "request_id", "texts")
TEXT_FIELDS = (
    *("source_tokens", "target_tokens", "score", "queue_ms", "first_token_ms", "total_ms"),
    *("steps", "parts", "cached", "finish"),
)

CHUNK = Tensor("CHUNK", "BYTES", (1,))
"""Text that has just been decided; the chunks of a stream joined are the translation."""

FINAL = Tensor("FINAL", "BOOL", (1,))
"""True in the last response of a stream, whose DETAILS is that of `translate`; elsewhere DETAILS is `{}`.

A stream that is refused or fails ends with an ordinary response, too: FINAL is true, CHUNK is empty, and DETAILS has
`wire_version` and `error`, an object of ERROR_FIELDS. Never with an error response: with `triton_grpc_error` in the call's
metadata that ends Triton now and then (docs/operations.md)."""

ERROR_FIELDS = ("code", "message", "retry_after_ms")
"""Of `DETAILS.error`: an ErrorCode, a sentence, and for OVERLOADED the hint (null for the others)."""

SESSION = Tensor("SESSION", "BYTES", (1,))
"""Names the caches of one client-driven decoding; an unguessable string."""

MODEL_INFO = Tensor("MODEL_INFO", "BYTES", (1,))
"""A JSON object: `wire_version`, `model`, `version` (of its bundle), `tokens` (pad, eos, other_eos, decoder_start),
`generation` (the model's own DecodingOptions), `source_tokens` (a number a source: texts are split into sources as
everywhere), `gaps` (for each text the white space around its sources: one more than it has), `prefix` (token ids a
source: for the first one of each text what prefix and prefix_text became, else []), `target_vocabulary`, `choices`
(tokens of it that the model may generate: fewer with a shortlist), `max_target_tokens`, `idle_timeout_s`."""

MODEL_INFO_FIELDS = (
    *("wire_version", "model", "version", "tokens", "generation", "source_tokens", "prefix"),
    *("target_vocabulary", "choices", "max_target_tokens", "idle_timeout_s", "gaps"),
)

STEP = Tensor("STEP", "BYTES", (1,))
"""Little-endian int32 triples (source, parent, token), one a row, rows of one source side by side: decode `token` for
source number `source` after row `parent` of the previous step (-1 at the first step). A source that is left out is done
and its cache is freed; the same for every row."""

COMMAND = Tensor("COMMAND", "BYTES", (1,))
"""A JSON object: {"do": "step", "candidates": k} | {"do": "text", "tokens": [[…], …]} | {"do": "close"}."""

BEST_TOKENS = Tensor("BEST_TOKENS", "INT32", (-1, -1))
"""(rows, candidates), best first; (0, 0) when the command was not a step."""

BEST_LOG_PROBS = Tensor("BEST_LOG_PROBS", "FP32", (-1, -1))
"""(rows, candidates): log-softmax of the logits."""

BEST_LOGITS = Tensor("BEST_LOGITS", "FP32", (-1, -1))
"""(rows, candidates): the logits themselves, which some processors work on."""

DECODED = Tensor("DECODED", "BYTES", (-1,))
"""Texts of the token lists of a "text" command; empty for the others."""

STATUS = Tensor("STATUS", "BYTES", (1,))
"""A JSON object: `wire_version`, `server` (dragoman's version), `metrics` (URL of the Prometheus endpoint, or null) and
`bundles`: for each `name`, `model`, `version`, `architecture`, `parameters`, `precision`, `source_languages` and
`target_languages` (BCP 47), and `shortlists`: how many tokens can be generated, of the target languages that have a list."""

STATUS_FIELDS = ("wire_version", "server", "metrics", "bundles")
BUNDLE_FIELDS = (
    *("name", "model", "version", "architecture", "parameters", "precision"),
    *("source_languages", "target_languages", "shortlists"),
)

TRANSLATE = TritonModel("translate", False, (TEXT, TARGET, OPTIONS, MODEL), (TRANSLATION, SCORE, TOKEN_COUNT, DETAILS))
TRANSLATE_STREAM = TritonModel("translate_stream", True, (TEXT, OPTIONS, MODEL), (CHUNK, FINAL, DETAILS))
ENCODER = TritonModel("encoder", False, (TEXT, OPTIONS, MODEL), (SESSION, MODEL_INFO))
DECODER = TritonModel(
    "decoder",
    False,
    (SESSION, COMMAND, Tensor("STEP", "BYTES", (1,), optional=True)),
    (BEST_TOKENS, BEST_LOG_PROBS, BEST_LOGITS, DECODED),
)
SERVER_STATUS = TritonModel("server_status", False, (Tensor("QUERY", "BYTES", (1,), optional=True),), (STATUS,))
"""Answered by the backend itself, even while every engine is being restarted."""

MODELS = (TRANSLATE, TRANSLATE_STREAM, ENCODER, DECODER, SERVER_STATUS)


MAX_MESSAGE_BYTES = 16 << 20
"""Of a request as it is sent, twice what its inputs may have: a longer one ends its connection before it has arrived."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes in one request, whatever the model could do."""

    max_texts: int = 256
    max_text_bytes: int = 100_000
    max_request_bytes: int = 8 << 20
    """All inputs of one request together. An answer may have three times as many: other scripts need more bytes."""
    max_options_bytes: int = 16_384
    max_command_bytes: int = 262_144
    max_beam_size: int = 16
    max_timeout_ms: int = 600_000

    @property
    def max_answer_bytes(self) -> int:
        return 3 * self.max_request_bytes


class ErrorCode(str, Enum):
    """The kind of an error: its message starts with `CODE: `.

    Triton has too few status codes for our tree. OVERLOADED writes its hint first:
    `OVERLOADED retry_after_ms=250: the queue is full (256 requests)`.
    """

    INVALID_REQUEST = "INVALID_REQUEST"  # gRPC INVALID_ARGUMENT
    OVERLOADED = "OVERLOADED"  # gRPC UNAVAILABLE
    DRAINING = "DRAINING"  # gRPC UNAVAILABLE: this server is going away, another may answer
    RESTARTING = "RESTARTING"  # gRPC UNAVAILABLE: the engine died; the request may be sent again
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"  # gRPC CANCELLED, for Triton has no better
    CANCELLED = "CANCELLED"  # gRPC CANCELLED
    SESSION_LOST = "SESSION_LOST"  # gRPC NOT_FOUND: idle too long, closed, or the engine was restarted
    SUSPECT = "SUSPECT"  # gRPC INTERNAL: two engines died with this request in hand; do not send it again
    INTERNAL = "INTERNAL"  # gRPC INTERNAL

"""The verdict of a verification: whether the graphs are good enough to be written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dragoman.bundle.manifest import Precision, Verification, VerificationCase
from dragoman.errors import VerificationError

__all__ = ["TOLERANCE", "WHOLE", "verdict"]

WHOLE = "whole targets"
TOLERANCE = 1e-3
"""The most that a token's log-probability may differ in fp32 when whole targets are given: on text that a model was not
trained for, torch's own layers in float32 are 1e-4 off those in float64."""

DEFAULT_LOSS_AGAINST_REFERENCES = 1.0
DEFAULT_LOSS_AGAINST_ORIGINAL = 25.0


ScoredAgainst = Literal["references", "original"]


def verdict(
    cases: Sequence[VerificationCase],
    *,
    reference: str,
    sentences: int,
    scored_against: ScoredAgainst,
    precision: Precision,
    max_quality_loss: float | None,
    shortlist: bool,
) -> Verification:
    """The result for the manifest; VerificationError when the graphs are not good enough. `reference` names the original.

    With a shortlist even fp32 does not generate everything that the original does: the loss is measured instead.
    """
    if max_quality_loss is None:
        of_references = scored_against == "references"
        max_quality_loss = DEFAULT_LOSS_AGAINST_REFERENCES if of_references else DEFAULT_LOSS_AGAINST_ORIGINAL
    if precision == "fp32" and not shortlist:
        _check_exact(cases, reference)
    # Of all sentences: a score of a few means nothing.
    losses = {f"{case.lowering} {case.name}": case.quality_loss for case in cases if case.sentences == sentences}
    loss = max(losses.values(), default=0.0)
    if loss > max_quality_loss:
        points = "BLEU" if scored_against == "references" else "chrF"
        listed = ", ".join(f"{name}: {lost:.2f}" for name, lost in losses.items())
        # on texts of another kind or language a good model loses much: its answers mean nothing there
        own_texts = "" if scored_against == "references" else ", verify with texts of its kind (--verify-file)"
        raise VerificationError(
            f"{precision}{' with this shortlist' if shortlist else ''} loses {loss:.2f} {points} points against the "
            f"{scored_against} ({listed}), more than --max-quality-loss {max_quality_loss:g}; nothing was written. "
            f"Choose a higher --precision{', give --shortlist more text' if shortlist else ''}{own_texts} or allow the loss"
        )
    return Verification(
        reference=reference,
        scored_against=scored_against,
        max_quality_loss=max_quality_loss,
        quality_loss=loss,
        cases=tuple(cases),
    )


def _check_exact(cases: Sequence[VerificationCase], reference: str) -> None:
    report = "nothing was written. This is a bug in the export: please report it with the model's config.json"
    wrong = [case for case in cases if case.name != WHOLE and case.identical + case.ties < case.sentences]
    if wrong:
        listed = "; ".join(f"{c.lowering} {c.name}: {c.sentences - c.identical - c.ties}" for c in wrong)
        raise VerificationError(f"the fp32 graphs differ from {reference} ({listed} sentences); {report}")
    worst = max((case.worst_log_prob_difference for case in cases if case.name == WHOLE), default=0.0)
    if worst > TOLERANCE:
        raise VerificationError(f"log-probabilities of whole targets differ by {worst:.1e} from {reference}; {report}")

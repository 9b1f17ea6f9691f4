"""Decoding settings of formats that give dragoman's own options."""

from __future__ import annotations

from dragoman.errors import CheckpointError, InvalidRequest
from dragoman.export.checkpoint.formats.description import Description
from dragoman.search.options import DecodingOptions, from_mapping

__all__ = ["described_generation"]


def described_generation(description: Description, longest: int) -> DecodingOptions:
    """`generation` of a description: any option of a request, with the names that requests use. Greedy by default."""
    values = description.raw("generation", {})
    if not isinstance(values, dict):
        raise CheckpointError(f"{description.where} must give 'generation' as an object of options")
    try:
        options = from_mapping({"max_length": longest, **values}, DecodingOptions())
    except InvalidRequest as error:
        raise CheckpointError(f"'generation' in {description.where} is impossible: {error}") from error
    if options.max_length > longest:
        raise CheckpointError(f"max_length={options.max_length} in {description.where} is more than the {longest} positions")
    return options

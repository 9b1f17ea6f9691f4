"""Which languages a bundle translates from and into, for people who choose one."""

from __future__ import annotations

from dragoman.bundle.manifest import Manifest

__all__ = ["source_languages", "target_languages"]


def source_languages(manifest: Manifest) -> tuple[str, ...]:
    """The languages that a request may name as its source; none when the checkpoint does not tell."""
    languages = manifest.languages
    if languages is None or languages.source_place == "none":
        return () if manifest.model.source_language is None else (manifest.model.source_language,)
    return tuple(sorted(languages.tokens))


def target_languages(manifest: Manifest) -> tuple[str, ...]:
    """The languages that a request may name as its target."""
    if manifest.languages is None:
        return () if manifest.model.target_language is None else (manifest.model.target_language,)
    return tuple(sorted(manifest.languages.tokens))

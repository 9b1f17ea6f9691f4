"""Models of Marian itself: model.npz of its training, or the binary files that Bergamot and Firefox use."""

from dragoman.export.checkpoint.formats.marian.format import MarianFormat

__all__ = ["MarianFormat"]

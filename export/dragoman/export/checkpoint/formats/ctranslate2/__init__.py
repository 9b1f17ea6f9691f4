"""CTranslate2: model directories of version 6, and the Argos packages that hold one."""

from dragoman.export.checkpoint.formats.ctranslate2.argos import ArgosFormat
from dragoman.export.checkpoint.formats.ctranslate2.directory import CTranslate2Format

__all__ = ["ArgosFormat", "CTranslate2Format"]

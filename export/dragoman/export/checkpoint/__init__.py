"""Reading trained checkpoints: `formats` has a module for each way of storing them, `readers` one for each architecture."""

from dragoman.export.checkpoint.formats import CompanionFiles, Reference
from dragoman.export.checkpoint.read import Checkpoint, TokenLimits, read_checkpoint

__all__ = ["Checkpoint", "CompanionFiles", "Reference", "TokenLimits", "read_checkpoint"]

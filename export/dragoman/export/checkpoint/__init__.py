"""Reading trained checkpoints; a new architecture is one reader that maps names."""

from dragoman.export.checkpoint.read import Checkpoint, TokenLimits, read_checkpoint

__all__ = ["Checkpoint", "TokenLimits", "read_checkpoint"]

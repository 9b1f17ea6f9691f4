"""Reading trained checkpoints; a new architecture is one reader that maps names."""

from dragoman.export.checkpoint.read import Checkpoint, read_checkpoint

__all__ = ["Checkpoint", "read_checkpoint"]

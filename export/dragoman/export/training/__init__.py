"""The Transformer in the form that is trained: whole targets at once, dropout, and a format that the export reads."""

from dragoman.export.training.form import TrainingForm, initialise, label_smoothed_loss, warm_up
from dragoman.export.training.saving import save_model

__all__ = ["TrainingForm", "initialise", "label_smoothed_loss", "save_model", "warm_up"]

"""The model repository that Triton is given: ours as it stands, or with the door in the place of Python models."""

from __future__ import annotations

import shutil
from pathlib import Path

from dragoman import door
from dragoman.errors import ServeError
from dragoman.serving.triton.installation import model_repository

__all__ = ["with_door"]

_PYTHON, _DOOR = 'backend: "python"', 'backend: "dragoman"'


def with_door(library: Path, directory: Path) -> Path:
    """Our models laid out in `directory`, where the door serves those it knows.

    Triton looks for a backend's library beside the model before it looks in its own directory, which need not be ours.
    """
    shutil.copytree(model_repository(), directory)
    for name in door.MODELS:
        config = directory / name / "config.pbtxt"
        text = config.read_text(encoding="utf-8")
        if text.count(_PYTHON) != 1:
            raise ServeError(f"{config.name} of the model {name} does not say {_PYTHON}; install dragoman again")
        config.write_text(text.replace(_PYTHON, _DOOR), encoding="utf-8")
        shutil.rmtree(directory / name / "1")
        (directory / name / "1").mkdir()
        (directory / name / library.name).symlink_to(library)
    return directory

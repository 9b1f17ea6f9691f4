"""The model repository that Triton is given: ours as it stands, or with the door in the place of the Python models."""

from __future__ import annotations

import shutil
from pathlib import Path

from dragoman.errors import ServeError
from dragoman.serving.triton.installation import model_repository

__all__ = ["with_door"]

_PYTHON, _DOOR = 'backend: "python"', 'backend: "dragoman"'


def with_door(library: Path, directory: Path) -> Path:
    """Our models laid out in `directory`, served by the door.

    Triton looks for a backend's library beside the model before it looks in its own directory, which need not be ours.
    """
    shutil.copytree(model_repository(), directory)
    for config in sorted(directory.glob("*/config.pbtxt")):
        model = config.parent
        text = config.read_text(encoding="utf-8")
        if text.count(_PYTHON) != 1:
            raise ServeError(f"{config.name} of the model {model.name} does not say {_PYTHON}; install dragoman again")
        config.write_text(text.replace(_PYTHON, _DOOR), encoding="utf-8")
        shutil.rmtree(model / "1")
        (model / "1").mkdir()
        (model / library.name).symlink_to(library)
    return directory

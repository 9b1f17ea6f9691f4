"""The progress of a build, from the nested phases that TensorRT reports."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Phases"]


@dataclass
class _Phase:
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """A phase has steps, and a phase inside it is a part of its next step: so the shares add up.

    TensorRT only reports entering and leaving phases, and may enter a phase several times; the share never decreases.
    """

    def __init__(self) -> None:
        self._active: dict[str, _Phase] = {}
        self._share = 0.0

    def start(self, name: str, parent: str | None, steps: int) -> None:
        """A phase of `steps` steps begins inside `parent`."""
        self._active[name] = _Phase(parent, max(steps, 1))

    def step(self, name: str, index: int) -> None:
        """Step `index` of the phase, counted from 0, is done."""
        if phase := self._active.get(name):
            phase.done = min(index + 1, phase.steps)

    def finish(self, name: str) -> None:
        """The phase is over."""
        self._active.pop(name, None)

    @property
    def share(self) -> float:
        """0 to 1: how much of the whole build is done."""
        roots = [name for name, phase in self._active.items() if phase.parent is None]
        self._share = max([self._share, *(self._share_of(name) for name in roots)])
        return self._share

    def _share_of(self, name: str) -> float:
        phase = self._active[name]
        inside = [self._share_of(child) for child, held in list(self._active.items()) if held.parent == name]
        return min(1.0, (phase.done + max(inside, default=0.0)) / phase.steps)

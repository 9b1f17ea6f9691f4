"""All lanes of an engine: as many of a width as calls run at once, and which of them newcomers may join."""

from __future__ import annotations

from dragoman.search import search_batch
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.running import RunningLane, Turn
from dragoman.serving.engine.runtime import Runtime

__all__ = ["Lanes"]

_AT_ONCE = 4
"""Newcomers wait until this part of a lane's rows is free: a step costs what its rows cost, so that empty ones lose
nothing, and several sources together are encoded faster …"""

_HELD_STEPS = 4
"""… but never longer than so many steps."""

_MANY_STEPS = 1 << 20


class Lanes(list[RunningLane]):
    """The lanes of one width share evenly what rows there are, once they are too many for one call."""

    def __init__(self, runtime: Runtime, model: ModelFacts, limits: EngineLimits) -> None:
        super().__init__()
        self.at_once = min(runtime.calls_at_once, limits.max_rows)
        self._runtime, self._model, self._rows = runtime, model, limits.max_rows
        self._together = min(runtime.rows_together, limits.max_rows)

    def idle(self) -> list[RunningLane]:
        """Those between their turns."""
        return [lane for lane in self if not lane.at_work]

    def for_newcomers(self, width: int) -> list[RunningLane]:
        """Lanes that newcomers of this width may join now, the best first; those at work are asked to come back."""
        own = [lane for lane in self if lane.width == width]
        while len(own) < self.at_once:
            own.append(self._open(width))
        if few := [lane for lane in own if 0 < lane.rows < self._together]:
            own = [max(few, key=len)]  # the others have a call to themselves, or run empty
        ready = []
        for lane in own:
            free = lane.share - len(lane)
            has_much_room = free > 0 and _AT_ONCE * free >= lane.share
            if lane.at_work:
                lane.wanted = lane.wanted or has_much_room
            elif has_much_room or (free > 0 and lane.held >= _HELD_STEPS):
                ready.append(lane)
        return sorted(ready, key=len)

    def hold_back(self, lane: RunningLane, turn: Turn) -> None:
        """Somebody waits: if the lane had room for him in its last turn, he has waited for company."""
        if turn.rows < lane.share * lane.width:
            lane.held += turn.steps

    def steps_for(self, lane: RunningLane, somebody_waits: bool) -> int:
        """Of the lane's next turn: few when newcomers wait for company there."""
        if somebody_waits and len(lane) < lane.share:
            return max(_HELD_STEPS - lane.held, 1)
        return _MANY_STEPS

    def is_alone(self, lane: RunningLane) -> bool:
        """Whether every thread can help this lane: nobody else has anything to do."""
        return self._together > 0 and all(other is lane or not len(other) for other in self)

    def _open(self, width: int) -> RunningLane:
        search = search_batch(width, self._model, self._model.target_vocabulary, self._model.choices)
        share = max(-(-(self._rows // width) // self.at_once), self._together // width, 1)
        self.append(RunningLane(search, self._runtime.lane(width), self._runtime, share))
        return self[-1]

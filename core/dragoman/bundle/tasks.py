"""The tasks of a model: text prefixes ("summarize: ") and the search settings that the model's authors use for them.

A request names a task of the bundle or gives a prefix itself; without either, the bundle's default prefix applies.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.bundle.records import Dimensions, Tasks
from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions
from dragoman.search.option_types import Text, shown

__all__ = ["MAX_PREFIX_CHARACTERS", "TASK_NAME", "TASK_PREFIX", "chosen_task", "impossible_tasks", "longest_prefix"]

MAX_PREFIX_CHARACTERS = 512
"""Every part of a text is tokenised with it."""

TASK_NAME = Text(200, is_name=True, optional=True)
TASK_PREFIX = Text(MAX_PREFIX_CHARACTERS, optional=True)


def chosen_task(tasks: Tasks, usual: DecodingOptions, task: str | None, prefix: str | None) -> tuple[str, DecodingOptions]:
    """The prefix of each text and the search settings: those of the task if one is named, else the default prefix and
    `usual`.

    A `prefix` takes precedence over the task's and the bundle's. InvalidRequest lists the tasks when there is none of that
    name.
    """
    if task is None:
        return tasks.default_prefix if prefix is None else prefix, usual
    if task not in tasks.named:
        there_is = f"it has {', '.join(sorted(tasks.named))}" if tasks.named else "it has none; use task_prefix"
        raise InvalidRequest(f"task={shown(task)} is not a task of this model; {there_is}")
    named = tasks.named[task]
    return named.prefix if prefix is None else prefix, named.generation


def longest_prefix(dimensions: Dimensions) -> int:
    """The most tokens that a prefix may have: half of the source, so that as many remain for the text."""
    return dimensions.max_source_tokens // 2


def impossible_tasks(tasks: Tasks) -> Iterator[str]:
    """The tasks that no request could use, each as a short sentence."""
    for prefix in (tasks.default_prefix, *(task.prefix for task in tasks.named.values())):
        if len(prefix) > MAX_PREFIX_CHARACTERS:
            yield f"a task prefix has {len(prefix)} characters, more than {MAX_PREFIX_CHARACTERS}"

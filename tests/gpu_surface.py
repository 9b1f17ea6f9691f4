"""What a double answers for, and what the real bindings say of themselves."""

from __future__ import annotations

import inspect
import re
from typing import Any


def methods(double: type) -> list[str]:
    """What the double answers for the real thing."""
    own = [name for name, _ in inspect.getmembers(double, inspect.isfunction) if not name.startswith("_")]
    return [name for name in own if name not in ("enqueue", "memory", "check_stream", "check_device")]


def parameters(method: Any) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name != "self"]


def documented(text: str, name: str) -> list[list[str]]:
    """The parameters of every signature that a docstring begins with."""
    found = []
    for line in text.splitlines():
        if (match := re.search(rf"\b{name}\((.*)\)", line)) and "*args" not in line:
            parts = re.split(r",(?![^\[<]*[\]>])", match[1])
            names = [re.split(r"[:=]", part)[0].strip().split(" ")[-1] for part in parts if part.strip()]
            found.append([each for each in names if each != "self"])
    return found

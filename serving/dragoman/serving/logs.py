"""Structured logs: one JSON object per line, with request ids and never the text of a request."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping

__all__ = ["configure_logging", "event"]

_FIELDS = "dragoman_fields"


def configure_logging(level: str, process: str) -> None:
    """Send this process's logs to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def event(logger: logging.Logger, level: int, name: str, fields: Mapping[str, object] | None = None) -> None:
    """Log that `name` happened, with `fields` beside it."""
    logger.log(level, name, extra={_FIELDS: dict(fields or {})})


class _JsonLines(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)

"""Logs of every process: one event a line, as JSON, on standard error. No request, which may contain a secret.

Only a crash of native code writes other lines there: where each thread was, without any value.
"""

import faulthandler
import json
import logging
import sys
from datetime import UTC, datetime

from gkm.hoststate.escaping import escape_json

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields(**values: object) -> dict[str, object]:
    """Return the `extra` argument of a log call with these fields; fields that are None are left out."""
    return {name: value for name, value in values.items() if value is not None}


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON. `ascii_only` is for a stream without UTF-8."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._ascii_only = ascii_only

    def format(self, record: logging.LogRecord) -> str:
        """Return the log record as one line of JSON."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        # A lone surrogate, which hostile text may contain, has no UTF-8: it is escaped like all unprintable text.
        return escape_json(json.dumps(line, ensure_ascii=False, default=str), ascii_only=self._ascii_only)


def configure(level: str = "info") -> None:
    """Send every log of this process to standard error as JSON.

    Raises:
        ValueError: the level does not exist.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(ascii_only="utf" not in (sys.stderr.encoding or "").lower()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It warns about every idle connection that a server closed, which is normal for a connection pool.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)

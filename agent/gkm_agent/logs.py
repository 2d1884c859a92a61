"""The agent's events."""

import logging

from gkm.hoststate.logs import fields


def event(message: str, *, level: int = logging.INFO, exc_info: bool = False, **values: object) -> None:
    """Log an event; values that are None are left out."""
    logging.getLogger("gkm.agent").log(level, message, extra=fields(**values), exc_info=exc_info)

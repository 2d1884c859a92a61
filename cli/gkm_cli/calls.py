"""`-v` and `--timeout`, of every command that talks to a registry or an API server.

An alarm ends the command with an exception, so that temporary files go as after Ctrl-C. A part that ignores it, such as
a thread that waits for a network, has a short time more; then the process ends. Every process of GKM may end anywhere.
"""

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Timer
from types import FrameType
from typing import Annotated, Final

import typer

EXIT_TIMED_OUT = 124
"""Exit code after --timeout, as timeout(1) has it; no other outcome has this code."""
GRACE_SECONDS = 5.0
"""Seconds between the alarm and the forced end of the process."""
_MAX_SECONDS = 7 * 24 * 3600.0
_DURATION: Final = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)(ms|s|m|h)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class TimedOut(BaseException):
    """The time of --timeout is over. It is no Exception: handlers of expected errors must not catch it."""


def seconds(text: str) -> float:
    """Return the seconds in a duration: 90, 90s, 1.5m or 2h.

    Raises:
        typer.BadParameter: the text is no duration, or not between 1 ms and a week.
    """
    found = _DURATION.fullmatch(text)
    duration = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < duration <= _MAX_SECONDS:
        raise typer.BadParameter("write a time such as 30s, 5m or 1h, at most a week")
    return duration


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """The options about calls to servers. Two values of a subclass that name the same server are equal."""

    verbose: Annotated[
        bool,
        typer.Option("-v", "--verbose", help="Log each request and its status on standard error, without secrets."),
    ] = field(default=False, compare=False)
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="TIME",
            parser=seconds,
            help=f"End the command after this time, such as 30s or 5m, with exit code {EXIT_TIMED_OUT}.",
        ),
    ] = field(default=None, compare=False)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the options to the block: log its requests and limit its time.

        Raises:
            TimedOut: the time is over.
        """
        if self.verbose:
            _log_requests()
        if self.timeout is None:
            yield
            return
        before = signal.signal(signal.SIGALRM, _time_out)
        watchdog = Timer(self.timeout + GRACE_SECONDS, _end, (self.timeout,))
        watchdog.daemon = True
        watchdog.start()
        signal.setitimer(signal.ITIMER_REAL, self.timeout)
        try:
            yield
        except TimedOut as error:
            raise TimedOut(_message(self.timeout)) from error
        else:
            watchdog.cancel()
        finally:
            disarm()
            signal.signal(signal.SIGALRM, before)


def disarm() -> None:
    """Stop the timer of --timeout: a program that replaces this process would inherit it (execve(2), setitimer(2))."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _log_requests() -> None:
    from gkm.hoststate.logs import JsonFormatter  # noqa: PLC0415 -- only -v needs it

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(ascii_only="utf" not in (sys.stderr.encoding or "").lower()))
    # Not the root logger: other libraries log queries and bodies, which may hold secrets.
    logger = logging.getLogger("gkm")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


def _time_out(_number: int, _frame: FrameType | None) -> None:
    raise TimedOut


def _end(timeout: float) -> None:
    os.write(sys.stderr.fileno(), f"error: {_message(timeout)}\n".encode())
    os._exit(EXIT_TIMED_OUT)


def _message(timeout: float) -> str:
    step = "give it more --timeout or none, or see its requests with -v"
    return f"the command did not end within {timeout:g} seconds; {step}"

"""A watch over HTTP: lines of JSON from a connection that another thread may close."""

from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from gkm.kube import decoding
from gkm.kube.api import WatchEvent
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.resources import Resource

T = TypeVar("T")

MAX_LINE_BYTES = 16 << 20
"""Limit of bytes of one line of a watch; etcd stores objects of at most 1.5 MB."""

_CHUNK_BYTES = 64 << 10


class HttpWatch(Generic[T]):
    """A watch over one HTTP response, whose lines are events."""

    def __init__(self, resource: Resource[T], response: BaseHTTPResponse) -> None:
        self._resource = resource
        self._response = response
        self._closed = False
        self._reading = False
        self._lock = Lock()

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """Yield changes until the server or `close` ends the watch."""
        with self._lock:
            if self._closed:
                return
            self._reading = True
        try:
            for line in self._lines():
                yield decoding.event(self._resource, line)
        except (HTTPError, OSError, ValueError) as error:
            # A socket that `close` shuts down under its reader fails in many ways, ssl's ValueError among them.
            if not self._closed:
                raise ApiError(NO_RESPONSE, "Broken", f"the watch broke off: {error}") from error
        finally:
            # Not returned to the pool: more bytes of the watch may come.
            self._response.close()

    def close(self) -> None:
        """End the watch from any thread, by shutting down its socket."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if not self._reading:
                self._response.close()
                return
            with suppress(OSError, ValueError, RuntimeError):  # the watch has ended already
                self._response.shutdown()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._response.stream(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
            if len(rest) > MAX_LINE_BYTES:
                raise ApiError(NO_RESPONSE, "TooLarge", f"a watch event is longer than {MAX_LINE_BYTES} bytes")

"""The API over HTTP: raw requests through the connection pool and credentials of the official client.

msgspec decodes the responses into small types, which takes a fraction of the time and memory of the official client's
models (docs/decisions/0012-own-reflector.md).
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from threading import Lock
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from kubernetes.client.api_client import ApiClient
from kubernetes.config import ConfigException
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError

from gkm.hoststate.logs import fields
from gkm.kube import decoding
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, Api, ListPage, ListSelector, Object, WatchEvent
from gkm.kube.credentials import ApiCredentials, authorization, load_client
from gkm.kube.errors import NO_RESPONSE, UNAUTHORIZED, ApiError, from_body
from gkm.kube.resources import Resource

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
LIST_SECONDS = 60.0
WATCH_SECONDS = 290
"""The requested duration of a watch: below the server's own minimum of 30 minutes and the idle limits of most proxies.

The watch of a kind that has not changed since the server started is silent all that time, without a bookmark
(measured: bench/fleet). So silence is no failure; TCP keepalive detects a lost peer within three minutes
(kubernetes.utils.keepalive).
"""

MAX_BODY_BYTES = 64 << 20
"""Limit of bytes of a response: an eighth of the memory of a process (deploy/base); etcd stores at most 1.5 MB an
object."""
MAX_PAGE_BYTES = 4 << 20
"""The limit of a page of objects. A process has a dozen lists at once, and a user may fill the objects of each.
250 objects of GKM have 1 MB. The client requests a larger page again in smaller ones."""

BODY_SECONDS = 120.0
"""Limit of seconds for one body: MAX_BODY_BYTES at half a megabyte a second."""

_READ_BYTES = 256 << 10

MAX_LINE_BYTES = 16 << 20
"""Limit of bytes of one line of a watch; etcd stores objects of at most 1.5 MB."""

_CHUNK_BYTES = 64 << 10

MAX_ERROR_BYTES = 64 << 10
"""Limit of bytes of an error response; a metav1.Status has a few hundred bytes."""

_TOO_LARGE = "TooLarge"
_FIRST_ERROR_STATUS = 300
_JSON, _MERGE, _APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
_HEADERS = {"User-Agent": "gkm"}
_PODS = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


RequestObserver = Callable[[str, int], None]
"""Called for every response with the verb of the API's audit log and the status; 0 without a response."""
BeforeWrite = Callable[[], None]


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    observe: RequestObserver = lambda _verb, _status: None,
    *,
    timeout: float = READ_SECONDS,
    before_write: BeforeWrite = lambda: None,
) -> "HttpApi":
    """Return the API of `kubeconfig`, else of $KUBECONFIG, else of the pod of this process, else of ~/.kube/config.

    This sends no request. When the server refuses the credentials, the client reads the kubeconfig and the files that
    it names again. `timeout` limits a request for a single object, in seconds.

    `before_write` is called right before each request that is no read, and its error is raised in place of the request:
    a process learns by the clock alone that it may not lead any more (gkm.kube.elector).

    Raises:
        NotConfigured: there is no usable configuration.
    """
    return HttpApi(ApiCredentials(lambda: load_client(kubeconfig, context)), observe, timeout, before_write)


@dataclass(frozen=True, slots=True)
class _Request:
    verb: str
    method: str
    path: str
    query: Mapping[str, str | int]
    body: bytes | None = None
    content_type: str = _JSON
    accept: str = _JSON
    read_seconds: float | None = None
    """Limit of seconds for reading; None uses the timeout of the client."""


class HttpWatch(Generic[T]):
    """A watch over one HTTP response, whose lines are events."""

    def __init__(self, resource: Resource[T], response: BaseHTTPResponse) -> None:
        self._resource = resource
        self._response = response
        self._closed = False
        self._reading = False
        self._lock = Lock()

    def __iter__(self) -> Iterator[WatchEvent[T]]:
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


class HttpApi(Api):
    """A client of the Kubernetes API over HTTP (gkm.kube.api.Api). Thread-safe."""

    def __init__(
        self,
        credentials: ApiCredentials,
        observe: RequestObserver,
        timeout: float,
        before_write: BeforeWrite,
    ) -> None:
        self._credentials = credentials
        self._observe = observe
        self._timeout = timeout
        self._before_write = before_write
        self.date = ""
        """The header Date of the last response: the clock of the API server, in whole seconds. It may be any text."""

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return one object; raise ApiError 404 if it does not exist."""
        request = _Request("get", "GET", resource.path(namespace, name), {}, accept=_accept(resource))
        return self._object(resource, request)

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        """Yield a consistent list in pages of `limit` objects; raise ApiError 410 if the continue token expires."""
        query: dict[str, str | int] = {**_selector_query(selector), "limit": limit}
        path = resource.path(selector.namespace)
        while True:
            try:
                accept = _accept(resource, "List")
                most = MAX_BODY_BYTES if limit == 1 else min(MAX_PAGE_BYTES, MAX_BODY_BYTES)
                request = _Request("list", "GET", path, query, accept=accept, read_seconds=LIST_SECONDS)
                body = self._request_body(request, most)
            except ApiError as error:
                if error.reason != _TOO_LARGE or limit == 1:
                    raise
                # A continue token holds a position, not a size: a smaller page may follow it.
                limit //= 2
                query["limit"] = limit
                continue
            page, more = decoding.page(resource, body)
            yield page
            if not more:
                return
            if more == query.get("continue"):
                raise ApiError(NO_RESPONSE, "Broken", f"the API server repeats a page of {resource.plural}")
            query["continue"] = more

    def watch(self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> HttpWatch[T]:
        """Return a watch that lasts about 290 seconds, with jitter so that many clients do not reconnect at once."""
        seconds = int(WATCH_SECONDS * random.uniform(0.9, 1.0))  # noqa: S311 -- spreads load only
        query: dict[str, str | int] = {
            **_selector_query(selector),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": seconds,
        }
        # The server ends the watch; if it fails to, the read timeout does a little later.
        path, accept = resource.path(selector.namespace), _accept(resource)
        request = _Request("watch", "GET", path, query, accept=accept, read_seconds=seconds + READ_SECONDS)
        return HttpWatch(resource, self._send(request))

    def apply(self, resource: Resource[T], value: Object, *, field_manager: str, subresource: str = "") -> T:
        """Apply `value` server-side, forced, and return the stored object."""
        plain = decoding.plain(value)
        meta = plain["metadata"]
        query = {"fieldManager": field_manager, "force": "true"}
        path = resource.path(meta.get("namespace"), meta["name"], subresource)
        return self._object(resource, _Request("apply", "PATCH", path, query, msgspec.json.encode(plain), _APPLY))

    def merge(
        self, resource: Resource[T], name: str, patch: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> T:
        """Change an object by a merge patch and return the stored object."""
        body, path = msgspec.json.encode(decoding.plain(patch)), resource.path(namespace, name, subresource)
        return self._object(resource, _Request("patch", "PATCH", path, {}, body, _MERGE))

    def create(self, resource: Resource[T], value: Object, *, field_manager: str = "") -> T:
        """Create an object in the namespace of its metadata and return the stored object."""
        plain = decoding.plain(value)
        path = resource.path(plain["metadata"].get("namespace"))
        query = {"fieldManager": field_manager} if field_manager else {}
        body, accept = msgspec.json.encode(plain), _accept(resource)
        return self._object(resource, _Request("create", "POST", path, query, body, accept=accept))

    def dry_run(self, resource: Resource[Any], value: Object) -> None:
        """Ask the API server to check the creation of an object, including unknown fields, without storing it."""
        plain = decoding.plain(value)
        path = resource.path(plain["metadata"].get("namespace"))
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        self._request_body(_Request("create", "POST", path, query, msgspec.json.encode(plain)))

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        foreground: bool = False,
    ) -> None:
        """Delete an object, if it has this uid and resourceVersion; see Api.delete."""
        given = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {name: value for name, value in given.items() if value}
        options: dict[str, object] = {"preconditions": preconditions} if preconditions else {}
        options |= {"propagationPolicy": "Foreground"} if foreground else {}
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", **options}) if options else None
        request = _Request("delete", "DELETE", resource.path(namespace, name), {}, body, accept=_accept(resource))
        self._request_body(request)

    def discover(self, path: str, document: type[T]) -> T:
        """Return the discovery document at a path, which lists kinds."""
        return decoding.document(path, self._request_body(_Request("get", "GET", path, {})), document)

    def log(self, pod: str, container: str, namespace: str, lines: int, most: int, *, previous: bool = False) -> bytes:
        """Return the last `lines` lines of a container's log, at most `most` bytes.

        The kubelet keeps the first bytes of them if they exceed `most`.
        """
        query: dict[str, str | int] = {"container": container, "tailLines": lines, "limitBytes": most}
        query |= {"previous": "true"} if previous else {}
        path = _PODS.path(namespace, pod, "log")
        return self._request_body(_Request("get", "GET", path, query, accept="*/*"), most)

    def _object(self, resource: Resource[T], request: _Request) -> T:
        return decoding.single_object(resource, self._request_body(request))

    def _request_body(self, request: _Request, most: int | None = None) -> bytes:
        response, limit = self._send(request), MAX_BODY_BYTES if most is None else most
        try:
            body = _read(response, limit)
        except HTTPError as error:
            raise ApiError(NO_RESPONSE, "Broken", f"the response of the API server broke off: {error}") from error
        if len(body) > limit:
            raise ApiError(NO_RESPONSE, _TOO_LARGE, f"the API server sends more than {limit} bytes")
        return body

    def _send(self, request: _Request) -> BaseHTTPResponse:
        """Return the response with its body unread; after 401, send the request once more with renewed credentials.

        Raises:
            ApiError: the status is not 2xx, or no response came.
        """
        client = self._credentials.client
        try:
            return self._send_with(client, request)
        except ApiError as error:
            if error.status != UNAUTHORIZED or not self._credentials.renew(client):
                raise
        return self._send_with(self._credentials.client, request)

    def _send_with(self, client: ApiClient, request: _Request) -> BaseHTTPResponse:
        pool: PoolManager = client.rest_client.pool_manager
        host = str(client.configuration.host).rstrip("/")
        if request.method != "GET":
            self._before_write()
        began = time.monotonic()
        try:
            response = pool.request(
                request.method,
                f"{host}{request.path}" + (f"?{urlencode(request.query)}" if request.query else ""),
                body=request.body,
                headers=_HEADERS
                | {"Accept": request.accept, "Content-Type": request.content_type, **authorization(client)},
                timeout=Timeout(
                    connect=min(CONNECT_SECONDS, self._timeout), read=request.read_seconds or self._timeout
                ),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            self._observe(request.verb, response.status)
            _log(request, response.status, time.monotonic() - began)
            self.date = response.headers.get("Date", "")
            if response.status < _FIRST_ERROR_STATUS:
                return response
            body = _read(response, MAX_ERROR_BYTES)[:MAX_ERROR_BYTES]
            raise from_body(response.status, body, response.headers.get("Retry-After"))
        except (HTTPError, ConfigException, OSError) as error:
            self._observe(request.verb, NO_RESPONSE)
            raise ApiError(NO_RESPONSE, "Unreachable", f"the API server does not answer: {error}") from error


def _log(request: _Request, status: int, seconds: float) -> None:
    about = fields(method=request.method, path=request.path, status=status, ms=round(seconds * 1000))
    _LOG.debug("request to the API server", extra=about)


def _accept(resource: Resource[Any], collection: str = "") -> str:
    """Return the form of a response; a server that cannot reduce objects to metadata sends whole ones."""
    return _METADATA.format(collection) if resource.metadata_only else _JSON


def _selector_query(selector: ListSelector) -> dict[str, str]:
    return {
        name: value for name, value in (("labelSelector", selector.labels), ("fieldSelector", selector.fields)) if value
    }


def _read(response: BaseHTTPResponse, limit: int) -> bytes:
    """Return the body, or the first `limit` + 1 bytes of a longer one.

    Raises:
        HTTPError: the body broke off, or took more than BODY_SECONDS: the timeout of a socket applies to one read.
    """
    data = BytesIO()
    remaining, deadline = limit + 1, time.monotonic() + BODY_SECONDS
    while remaining and (part := response.read1(min(remaining, _READ_BYTES))):
        data.write(part)
        remaining -= len(part)
        if time.monotonic() > deadline:
            response.close()
            raise HTTPError(f"it takes more than {BODY_SECONDS:g} seconds")
    if data.tell() > limit:
        response.close()
    else:
        response.release_conn()
    # It hands over its bytes without a copy.
    return data.getvalue()

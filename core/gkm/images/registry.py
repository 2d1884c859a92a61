"""Registries, by the OCI distribution specification 1.1; every byte is checked before it is handed out."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from threading import Lock
from urllib.parse import quote, urljoin

from urllib3 import BaseHTTPResponse

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.images.auth import Anonymous, Authorizer, Credentials
from gkm.images.blobs import Arrival, wrong_blob
from gkm.images.bodies import chunks, read_body
from gkm.images.manifest import ACCEPTED, MAX_MANIFEST_BYTES, OCI_INDEX, Descriptor, Manifest, referrers_in
from gkm.images.reference import Reference
from gkm.images.transport import Limits, Request, Transport

MAX_HOSTS = 64
"""Hosts are named by users: so many are remembered with their connections and tokens, the least used goes first."""

MAX_RESUMES = 5
"""How often a blob that broke off is taken up again; a try that brought bytes is not a failed one."""

MAX_STORED_ANSWER = 64 << 10
"""Nothing of it is used; it is read so that the connection can be used again."""

_OK, _CREATED, _ACCEPTED, _PARTIAL = 200, 201, 202, 206
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
MAX_REFERRER_PAGES = 8
_NO_REFERRERS_API = frozenset({400, 405, 406, 501})
"""What registries without the referrers API answer besides 404."""
_NEXT_PAGE = re.compile(r'<[^<>?]{0,1024}\?([^<>]{1,1024})>\s*;\s*rel="?next"?')
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/(?:[0-9]{1,18}|\*)")


class Registry:
    """All registries that the configuration allows. Thread-safe."""

    def __init__(
        self,
        config: Registries | None = None,
        credentials: Credentials | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._config = config or Registries()
        self._credentials = credentials or Anonymous()
        self._limits = limits or Limits()
        self._hosts: OrderedDict[str, tuple[Transport, Authorizer]] = OrderedDict()
        self._lock = Lock()

    def resolve(self, ref: Reference) -> str:
        """Return the digest that a reference names now: of the bytes, never of a header alone.

        Raises:
            GKMError: NOT_FOUND, UNAUTHORIZED, NOT_ALLOWED, REGISTRY_UNAVAILABLE, DIGEST_MISMATCH.
        """
        return ref.digest or self.manifest(ref).digest

    def manifest(self, ref: Reference) -> Manifest:
        """Return the manifest that a reference names; with a digest, exactly the bytes of that digest.

        Raises:
            GKMError: as `resolve`; DIGEST_MISMATCH when the registry answers with other bytes.
        """
        deadline = self._deadline()
        with self._read(ref, f"manifests/{ref.target}", {"Accept": ", ".join(ACCEPTED)}, deadline) as response:
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
            manifest = Manifest.of(read_body(response, MAX_MANIFEST_BYTES, deadline), media_type)
        if ref.digest and manifest.digest != ref.digest:
            raise GKMError(
                Reason.DIGEST_MISMATCH,
                f"{ref.name} answers {ref.digest} with a manifest whose digest is {manifest.digest}: it was changed",
            )
        if media_type not in ACCEPTED:
            raise GKMError(Reason.METADATA_INVALID, f"{ref} is {media_type[:100]!r}, not an image")
        return manifest

    def blob(self, ref: Reference, arrival: Arrival) -> None:
        """Bring a blob, or the rest of one; what was written counts only when this returns.

        One that breaks off is taken up where it was, as long as each try brings some of it.

        Raises:
            GKMError: as `manifest`; DIGEST_MISMATCH for wrong bytes or a wrong length.
        """
        failures = 0
        while arrival.missing > 0:
            before = arrival.seen
            try:
                self._rest(ref, arrival)
                break
            except GKMError as error:
                failures += 1
                if error.reason is not Reason.REGISTRY_UNAVAILABLE or arrival.seen == before or failures > MAX_RESUMES:
                    raise
        arrival.check(ref.name)

    def small_blob(self, ref: Reference, descriptor: Descriptor, limit: int) -> bytes:
        """Return a blob that belongs in memory.

        Raises:
            GKMError: as `blob`; TOO_LARGE beyond `limit` bytes.
        """
        if descriptor.size > limit:
            raise GKMError(
                Reason.TOO_LARGE, f"blob {descriptor.digest} has {descriptor.size} bytes, at most {limit} are read"
            )
        parts: list[bytes] = []
        self.blob(ref, Arrival(descriptor, parts.append))
        return b"".join(parts)

    def referrers(self, ref: Reference) -> list[Descriptor]:
        """Return what refers to a pinned image: from the referrers API, or its fallback tag where there is none.

        Raises:
            GKMError: as `manifest`.
        """
        found: list[Descriptor] = []
        path = f"referrers/{ref.target}"
        for _ in range(MAX_REFERRER_PAGES):
            deadline = self._deadline()
            try:
                with self._read(ref, path, {"Accept": OCI_INDEX}, deadline) as response:
                    raw = read_body(response, MAX_MANIFEST_BYTES, deadline)
                    following = _NEXT_PAGE.search(response.headers.get("Link", ""))
                found += referrers_in(raw, str(ref))
            except GKMError as error:
                if found or error.reason not in (Reason.NOT_FOUND, Reason.METADATA_INVALID):
                    raise
                return self._fallback_referrers(ref)  # also where something else than the API answers
            if following is None:
                break
            path = f"referrers/{ref.target}?{following[1]}"
        return found

    def _fallback_referrers(self, ref: Reference) -> list[Descriptor]:
        try:
            manifest = self.manifest(ref.tagged(ref.target.replace(":", "-")))
        except GKMError as error:
            if error.reason is Reason.NOT_FOUND:
                return []
            raise
        return referrers_in(manifest.raw, str(ref))

    def push_blob(self, ref: Reference, data: bytes) -> str:
        """Store a blob in one piece (distribution-spec, "POST then PUT") and return its digest.

        Raises:
            GKMError: UNAUTHORIZED or REGISTRY_UNAVAILABLE.
        """
        deadline = self._deadline(len(data))
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        uploads = self._url(ref, "blobs/uploads/")
        location = urljoin(uploads, self._write(ref, Request("POST", uploads, body=b""), deadline, _ACCEPTED))
        separator = "&" if "?" in location else "?"
        request = Request(
            "PUT",
            f"{location}{separator}digest={quote(digest)}",
            {"Content-Type": "application/octet-stream"},
            body=data,
        )
        self._write(ref, request, deadline, _CREATED)
        return digest

    def push_manifest(self, ref: Reference, raw: bytes, media_type: str) -> str:
        """Store a manifest under the tag or digest of `ref` and return its digest.

        Raises:
            GKMError: UNAUTHORIZED or REGISTRY_UNAVAILABLE.
        """
        url = self._url(ref, f"manifests/{ref.target}")
        self._write(ref, Request("PUT", url, {"Content-Type": media_type}, body=raw), self._deadline(), _CREATED)
        return Manifest.of(raw, media_type).digest

    def _rest(self, ref: Reference, arrival: Arrival) -> None:
        """Bring what is missing of a blob, as far as one answer goes."""
        deadline = self._deadline(arrival.missing)
        headers = {"Range": f"bytes={arrival.seen}-"} if arrival.seen else {}
        with self._read(ref, f"blobs/{arrival.descriptor.digest}", headers, deadline) as response:
            before = arrival.seen
            known = before if response.status == _OK else 0
            if response.status == _PARTIAL and _start(response) != arrival.seen:
                raise wrong_blob(ref.name, arrival.descriptor, "answered with another part of it than was asked for")
            try:
                begun = time.monotonic()
                for part in chunks(response, known + arrival.missing, deadline):
                    self._check_rate(time.monotonic() - begun, arrival.seen - before)
                    # A registry that knows no ranges sends it from the start: pass over what is here.
                    known, fresh = max(0, known - len(part)), part[known:]
                    if fresh:
                        arrival.take(fresh)
            except GKMError as error:
                if error.reason is Reason.TOO_LARGE:
                    raise wrong_blob(ref.name, arrival.descriptor, "longer than its manifest says") from error
                raise

    def _check_rate(self, seconds: float, count: int) -> None:
        """End a blob that drips long before the deadline of its whole size, which may be days.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE.
        """
        if count < (seconds - self._limits.request) * self._limits.min_rate:
            raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry sends too slowly")

    def _deadline(self, size: int = 0) -> float:
        return time.monotonic() + self._limits.request + size / self._limits.min_rate

    def _url(self, ref: Reference, rest: str) -> str:
        transport, _ = self._host(ref.registry)
        self._check_allowed(ref)
        return f"{transport.base}/v2/{ref.repository}/{rest}"

    def _check_allowed(self, ref: Reference) -> None:
        allow = self._config.allow
        if allow and not any(fnmatchcase(ref.name, pattern) for pattern in allow):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"{ref.name} is not among the allowed registries ({', '.join(allow)[:200]})",
                "ask an administrator to add it to registries.allow",
            )

    def _host(self, registry: str) -> tuple[Transport, Authorizer]:
        with self._lock:
            if registry not in self._hosts:
                transport = Transport(self._config, registry, self._limits)
                self._hosts[registry] = transport, Authorizer(transport, self._credentials)
                if len(self._hosts) > MAX_HOSTS:
                    self._hosts.popitem(last=False)
            self._hosts.move_to_end(registry)
            return self._hosts[registry]

    def _sources(self, ref: Reference) -> list[str]:
        """Return the hosts that may have it: the mirrors of its registry, then the registry itself."""
        self._check_allowed(ref)
        configured = self._config.hosts.get(ref.registry)
        return [*(configured.mirrors if configured else []), ref.registry]

    @contextmanager
    def _read(self, ref: Reference, path: str, headers: dict[str, str], deadline: float) -> Iterator[BaseHTTPResponse]:
        """Give the answer of the first source that has it. The last one is the registry: its failure is the failure."""
        for source in self._sources(ref):
            last = source == ref.registry
            with ExitStack() as stack:
                try:
                    transport, _ = self._host(source)
                    request = Request("GET", f"{transport.base}/v2/{ref.repository}/{path}", headers)
                    response = stack.enter_context(self._send(source, ref.repository, request, "pull", deadline))
                except GKMError:
                    if last:
                        raise
                    continue
                if response.status in (_OK, _PARTIAL):
                    yield response
                    return
                missing = path.startswith("referrers/") and response.status in _NO_REFERRERS_API
                failure = self._failure(ref, _NOT_FOUND if missing else response.status, "read")
            if last:
                raise failure

    def _write(self, ref: Reference, request: Request, deadline: float, expected: int) -> str:
        """Send what stores something; return where it lies, or where to go on."""
        with self._send(ref.registry, ref.repository, request, "pull,push", deadline) as response:
            if response.status != expected:
                raise self._failure(ref, response.status, "written")
            read_body(response, MAX_STORED_ANSWER, deadline)
            return response.headers.get("Location", "")

    @contextmanager
    def _send(
        self, host: str, repository: str, request: Request, actions: str, deadline: float
    ) -> Iterator[BaseHTTPResponse]:
        """Send a request, with a token when one is asked for."""
        transport, authorizer = self._host(host)
        secret = authorizer.known(repository, actions)
        with transport.send(replace(request, secret=secret), deadline) as response:
            if response.status != _UNAUTHORIZED:
                yield response
                return
            challenge = response.headers.get("WWW-Authenticate", "")
        secret = authorizer.answer(challenge, repository, actions, deadline)
        with transport.send(replace(request, secret=secret), deadline) as response:
            yield response

    def _failure(self, ref: Reference, status: int, verb: str) -> GKMError:
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            return GKMError(
                Reason.UNAUTHORIZED,
                f"{ref} cannot be {verb}: the registry answers {status}",
                "check the credentials of this registry",
            )
        if status == _NOT_FOUND:
            return GKMError(
                Reason.NOT_FOUND, f"{ref} does not exist in its registry", "check repository, tag and digest"
            )
        return GKMError(Reason.REGISTRY_UNAVAILABLE, f"{ref} cannot be {verb}: the registry answers {status}")


def _start(response: BaseHTTPResponse) -> int | None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None

"""Registries, by the OCI distribution specification 1.1; every byte is checked before it is handed out."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy

from urllib3 import BaseHTTPResponse

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import (
    ACCEPTED_MEDIA_TYPES,
    MAX_MANIFEST_BYTES,
    OCI_INDEX,
    Descriptor,
    Manifest,
    parse_referrers,
)
from gkm.images.reference import Reference
from gkm.images.registries.auth import Credentials
from gkm.images.registries.blobs import BlobDownload, wrong_blob
from gkm.images.registries.bodies import read_body, read_chunks
from gkm.images.registries.hosts import NOT_FOUND, OK, RegistryHosts, failure
from gkm.images.registries.transport import HttpRequest, Limits

MAX_RESUMES = 5
"""How often a blob that broke off is taken up again; a try that brought bytes is not a failed one."""

_PARTIAL = 206
MAX_REFERRER_PAGES = 8
MAX_REFERRER_BYTES = 1 << 20
MAX_REFERRERS = 4_096
"""Of all pages together. 64 of them are read (gkm.images.signatures.discovery)."""
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
        self.hosts = RegistryHosts(config, credentials, limits)

    def with_credentials(self, credentials: Credentials) -> "Registry":
        """Return the same registries for somebody else: connections are shared, credentials and tokens are not.

        It costs no request, but its tokens live as long as it does: keep one for each namespace that is at work.
        """
        other = copy(self)
        other.hosts = self.hosts.with_credentials(credentials)
        return other

    def within(self, seconds: float) -> "Registry":
        """Return the same registries for a series of requests that together end within `seconds` from now."""
        other = copy(self)
        other.hosts = self.hosts.within(seconds)
        return other

    def resolve(self, ref: Reference) -> str:
        """Return the digest that a reference names now: of the bytes, never of a header alone.

        Raises:
            GKMError: NOT_FOUND, UNAUTHORIZED, NOT_ALLOWED, REGISTRY_UNAVAILABLE, DIGEST_MISMATCH.
        """
        self.hosts.check_allowed(ref)  # a digest asks no registry, and is no way around the list of those allowed
        return ref.digest or self.manifest(ref).digest

    def manifest(self, ref: Reference, limit: int = MAX_MANIFEST_BYTES) -> Manifest:
        """Return the manifest that a reference names; with a digest, exactly the bytes of that digest.

        Raises:
            GKMError: as `resolve`; DIGEST_MISMATCH when the registry answers with other bytes; TOO_LARGE beyond
                `limit` bytes.
        """
        deadline = self.hosts.deadline()
        with self._read(
            ref, f"manifests/{ref.target}", {"Accept": ", ".join(ACCEPTED_MEDIA_TYPES)}, deadline
        ) as response:
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
            manifest = Manifest.from_bytes(read_body(response, limit, deadline), media_type)
        if ref.digest and manifest.digest != ref.digest:
            raise GKMError(
                Reason.DIGEST_MISMATCH,
                f"{ref.name} answers {ref.digest} with a manifest whose digest is {manifest.digest}: it was changed",
            )
        if media_type not in ACCEPTED_MEDIA_TYPES:
            raise GKMError(Reason.METADATA_INVALID, f"{ref} is {media_type[:100]!r}, not an image")
        return manifest

    def blob(self, ref: Reference, download: BlobDownload) -> None:
        """Bring a blob, or the rest of one; what was written counts only when this returns.

        One that breaks off is taken up where it was, as long as each try brings some of it.

        Raises:
            GKMError: as `manifest`; DIGEST_MISMATCH for wrong bytes or a wrong length.
        """
        failures = 0
        while download.missing > 0:
            before = download.received
            try:
                self._download_rest(ref, download)
                break
            except GKMError as error:
                failures += 1
                if (
                    error.reason is not Reason.REGISTRY_UNAVAILABLE
                    or download.received == before
                    or failures > MAX_RESUMES
                ):
                    raise
        download.verify(ref.name)

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
        self.blob(ref, BlobDownload(descriptor, parts.append))
        return b"".join(parts)

    def referrers(self, ref: Reference) -> list[Descriptor]:
        """Return what refers to a pinned image: from the referrers API, or its fallback tag where there is none.

        Raises:
            GKMError: as `manifest`; TOO_LARGE beyond MAX_REFERRER_BYTES or MAX_REFERRERS.
        """
        found: list[Descriptor] = []
        left = MAX_REFERRER_BYTES
        path = f"referrers/{ref.target}"
        for _ in range(MAX_REFERRER_PAGES):
            deadline = self.hosts.deadline()
            try:
                with self._read(ref, path, {"Accept": OCI_INDEX}, deadline) as response:
                    raw = read_body(response, left, deadline)
                    following = _NEXT_PAGE.search(response.headers.get("Link", ""))
                left -= len(raw)
                found += parse_referrers(raw, str(ref))
                if len(found) > MAX_REFERRERS:
                    raise _too_many_referrers(ref)
            except GKMError as error:
                if error.reason is Reason.TOO_LARGE:
                    raise _too_many_referrers(ref) from None
                if found or error.reason not in (Reason.NOT_FOUND, Reason.METADATA_INVALID):
                    raise
                return self._fallback_referrers(ref)  # also where something else than the API answers
            if following is None:
                break
            path = f"referrers/{ref.target}?{following[1]}"
        return found

    def _fallback_referrers(self, ref: Reference) -> list[Descriptor]:
        try:
            manifest = self.manifest(ref.tag_of_digest(), MAX_REFERRER_BYTES)
        except GKMError as error:
            if error.reason is Reason.NOT_FOUND:
                return []
            if error.reason is Reason.TOO_LARGE:
                raise _too_many_referrers(ref) from None
            raise
        found = parse_referrers(manifest.raw, str(ref))
        if len(found) > MAX_REFERRERS:
            raise _too_many_referrers(ref)
        return found

    def _download_rest(self, ref: Reference, download: BlobDownload) -> None:
        """Bring what is missing of a blob, as far as one answer goes."""
        deadline = self.hosts.deadline(download.missing)
        headers = {"Range": f"bytes={download.received}-"} if download.received else {}
        with self._read(ref, f"blobs/{download.descriptor.digest}", headers, deadline) as response:
            before = download.received
            known = before if response.status == OK else 0
            if response.status == _PARTIAL and _start(response) != download.received:
                raise wrong_blob(ref.name, download.descriptor, "answered with another part of it than was asked for")
            try:
                begun = time.monotonic()
                for part in read_chunks(response, known + download.missing, deadline):
                    self._check_rate(time.monotonic() - begun, download.received - before)
                    # A registry that knows no ranges sends it from the start: pass over what is here.
                    known, fresh = max(0, known - len(part)), part[known:]
                    if fresh:
                        download.receive(fresh)
            except GKMError as error:
                if error.reason is Reason.TOO_LARGE:
                    raise wrong_blob(ref.name, download.descriptor, "longer than its manifest says") from error
                raise

    def _check_rate(self, seconds: float, count: int) -> None:
        """End a blob that drips long before the deadline of its whole size, which may be days.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE.
        """
        if count < (seconds - self.hosts.limits.request) * self.hosts.limits.min_rate:
            raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry sends too slowly")

    @contextmanager
    def _read(self, ref: Reference, path: str, headers: dict[str, str], deadline: float) -> Iterator[BaseHTTPResponse]:
        """Give the answer of the first source that has it. The last one is the registry: its failure is the failure."""
        for source in self.hosts.sources(ref):
            last = source == ref.registry
            with ExitStack() as stack:
                try:
                    request = HttpRequest("GET", self.hosts.url(source, ref.repository, path), headers)
                    sent = self.hosts.send(source, ref.repository, request, "pull", deadline)
                    response = stack.enter_context(sent)
                except GKMError:
                    if last:
                        raise
                    continue
                if response.status in (OK, _PARTIAL):
                    yield response
                    return
                missing = path.startswith("referrers/") and response.status in _NO_REFERRERS_API
                answered = failure(ref, NOT_FOUND if missing else response.status, "read")
            if last:
                raise answered


def _too_many_referrers(ref: Reference) -> GKMError:
    return GKMError(
        Reason.TOO_LARGE,
        f"the list of what is attached to {ref} has more than the {MAX_REFERRER_BYTES} bytes "
        f"or {MAX_REFERRERS} artifacts that are read",
        "delete artifacts that are attached to the image and not needed",
    )


def _start(response: BaseHTTPResponse) -> int | None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None

"""Read from registries by the OCI distribution specification 1.1; verify every byte before handing it out.

Requests to mirrors follow containerd. A mirror may serve many registries. It learns the right one from the query
parameter `ns`, which containerd adds to every request for another host than the registry itself (containerd,
docs/hosts.md, "Registry Host Namespace"; core/remotes/docker, addNamespace). So Spegel, Dragonfly and pull-through
registries serve GKM as they serve containerd.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from msgspec import Meta, Struct
from urllib3 import BaseHTTPResponse

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.logs import fields
from gkm.images.image_store import find
from gkm.images.local_image import BlobDownload, small_blob, wrong_blob
from gkm.images.manifest import (
    ACCEPTED_MEDIA_TYPES,
    MAX_MANIFEST_BYTES,
    OCI_INDEX,
    Descriptor,
    Manifest,
    decode,
    parse_referrers,
)
from gkm.images.reference import Reference
from gkm.images.registries.host_rules import DOCKER_HUB, HUB_REGISTRY
from gkm.images.registries.hosts import failure
from gkm.images.registries.transport import NOT_FOUND, OK, RegistryRequest, read_body, read_chunks
from gkm.images.registries.writes import RegistryWrites

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
MAX_RESUMES = 5
"""How often a broken download of a blob is resumed at one source; an attempt that received no byte is the last."""
_PARTIAL = 206
MAX_REFERRER_PAGES = 8
MAX_REFERRER_BYTES = 1 << 20
MAX_REFERRERS = 4_096
"""Limit of referrers of an image over all pages. gkm.images.signatures.discovery reads 64 of them."""
MAX_TAG_BYTES = 4 << 20
"""Limit of bytes of a page of tags."""
_TAGS_IN_A_PAGE = 1000
_NO_REFERRERS_API = frozenset({400, 405, 406, 501})
"""The statuses besides 404 of registries without the referrers API."""
_FAULTS_OF_A_SOURCE = frozenset(
    {
        Reason.NOT_FOUND,
        Reason.UNAUTHORIZED,
        Reason.NOT_ALLOWED,
        Reason.REGISTRY_UNAVAILABLE,
        Reason.DIGEST_MISMATCH,
        Reason.METADATA_INVALID,
        Reason.TOO_LARGE,
        Reason.UNSAFE_CONTENT,
    }
)
"""The faults that a source can have; a full disk, for example, is no reason to read the image from another source."""
_NEXT_PAGE = re.compile(r'<[^<>?]{0,1024}\?([^<>]{1,1024})>\s*;\s*rel="?next"?')
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/(?:[0-9]{1,18}|\*)")
NAMESPACE = "ns"


class _Tags(Struct):
    tags: list[Annotated[str, Meta(max_length=128)]] | None = None


class Registry(RegistryWrites):
    """Reads images from all allowed registries. Thread-safe.

    Every request goes to the mirrors first, also to resolve a tag, as with containerd's default capabilities. If a
    mirror lacks an object, fails or sends wrong bytes, GKM logs it and asks the registry, whose answer is final.
    """

    def resolve(self, ref: Reference) -> str:
        """Return the digest that a reference names now, computed from the bytes and never taken from a header alone.

        Raises:
            GKMError: NOT_FOUND, UNAUTHORIZED, NOT_ALLOWED, REGISTRY_UNAVAILABLE, DIGEST_MISMATCH.
        """
        self.check_allowed(ref)  # a digest needs no request, but the allow-list applies to it too
        return ref.digest or self.manifest(ref).digest

    def manifest(self, ref: Reference, limit: int = MAX_MANIFEST_BYTES) -> Manifest:
        """Return the manifest that a reference names; with a digest, exactly the bytes of that digest.

        Raises:
            GKMError: as `resolve`; DIGEST_MISMATCH when the registry sends other bytes; TOO_LARGE beyond `limit` bytes.
        """
        return self._from_first_source(ref, lambda source: self._manifest_from(source, ref, limit))

    def blob(self, ref: Reference, download: BlobDownload) -> None:
        """Download the missing bytes of a blob; they are verified only when this method returns.

        A download that breaks off resumes up to MAX_RESUMES times while each attempt receives bytes, then at the next
        source.

        Raises:
            GKMError: as `manifest`; DIGEST_MISMATCH for wrong bytes or a wrong length, which a mirror may have sent
                (`has_mirrors`): a caller that can start again does so with `without_mirrors`.
        """
        self._from_first_source(ref, lambda source: self._blob_from(source, ref, download))
        download.verify(ref.name)

    def small_blob(self, ref: Reference, descriptor: Descriptor, limit: int) -> bytes:
        """Return the bytes of a small blob, verified.

        Raises:
            GKMError: as `blob`; TOO_LARGE beyond `limit` bytes.
        """
        try:
            return small_blob(descriptor, limit, partial(self.blob, ref))
        except GKMError as error:
            if error.reason is not Reason.DIGEST_MISMATCH or not self.has_mirrors(ref):
                raise
            _LOG.warning(
                "image blob has wrong bytes, read again without mirrors", extra=fields(image=str(ref), why=str(error))
            )
            return small_blob(descriptor, limit, partial(self.without_mirrors().blob, ref))

    def referrers(self, ref: Reference) -> list[Descriptor]:
        """Return the referrers of a pinned image, from the referrers API or else from its fallback tag.

        Raises:
            GKMError: as `manifest`; TOO_LARGE beyond MAX_REFERRER_BYTES or MAX_REFERRERS.
        """
        found = self._from_first_source(ref, lambda source: self._referrers_from(source, ref))
        return self._fallback_referrers(ref) if found is None else found

    def tags(self, ref: Reference, limit: int) -> list[str]:
        """Return the tags of a repository, page by page, at most `limit`.

        Without mirrors, which list only the tags that they have cached.

        Raises:
            GKMError: as `manifest`; METADATA_INVALID for an answer that lists no tags.
        """
        self.check_allowed(ref)
        found: list[str] = []
        query = f"n={min(limit, _TAGS_IN_A_PAGE)}"
        while query and len(found) < limit:
            deadline = self.deadline()
            with self._read(ref.registry, ref, f"tags/list?{query}", {}, deadline) as response:
                page = decode(read_body(response, MAX_TAG_BYTES, deadline), _Tags, f"tags of {ref.name}").tags or []
                following = _NEXT_PAGE.search(response.headers.get("Link", ""))
            found += page
            query = following[1] if following and page else ""
        return found[:limit]

    def _manifest_from(self, source: str, ref: Reference, limit: int) -> Manifest:
        accepted = {"Accept": ", ".join(ACCEPTED_MEDIA_TYPES)}
        deadline = self.deadline_at(source, ref)
        with self._read(source, ref, f"manifests/{ref.target}", accepted, deadline) as response:
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

    def _blob_from(self, source: str, ref: Reference, download: BlobDownload) -> None:
        failures = 0
        while download.missing > 0:
            before = download.received
            try:
                self._download_rest(source, ref, download)
                if download.missing > 0:
                    raise wrong_blob(ref.name, download.descriptor, "shorter than its manifest says")
                return
            except GKMError as error:
                failures += 1
                if (
                    error.reason is not Reason.REGISTRY_UNAVAILABLE
                    or download.received == before
                    or failures > MAX_RESUMES
                ):
                    raise

    def _referrers_from(self, source: str, ref: Reference) -> list[Descriptor] | None:
        """Return the list of one source, None from a registry without the API.

        Raises:
            GKMError: as `referrers`; NOT_FOUND from a mirror without a list, which may be older than the signatures.
        """
        found: list[Descriptor] = []
        remaining = MAX_REFERRER_BYTES
        path = f"referrers/{ref.target}"
        for _ in range(MAX_REFERRER_PAGES):
            deadline = self.deadline_at(source, ref)
            try:
                with self._read(source, ref, path, {"Accept": OCI_INDEX}, deadline) as response:
                    raw = read_body(response, remaining, deadline)
                    following = _NEXT_PAGE.search(response.headers.get("Link", ""))
                remaining -= len(raw)
                found += parse_referrers(raw, str(ref))
                if len(found) > MAX_REFERRERS:
                    raise _too_many_referrers(ref)
            except GKMError as error:
                if error.reason is Reason.TOO_LARGE:
                    raise _too_many_referrers(ref) from None
                is_registry = source == ref.registry
                if found or not is_registry or error.reason not in (Reason.NOT_FOUND, Reason.METADATA_INVALID):
                    raise
                return None  # also where another service answers in place of the API
            if following is None:
                break
            path = f"referrers/{ref.target}?{following[1]}"
        if not found and source != ref.registry:
            raise GKMError(Reason.NOT_FOUND, f"{source} lists no artifacts of {ref}")
        return found

    def _fallback_referrers(self, ref: Reference) -> list[Descriptor]:
        try:
            manifest = find(self, ref.tag_of_digest(), MAX_REFERRER_BYTES)
        except GKMError as error:
            if error.reason is Reason.TOO_LARGE:
                raise _too_many_referrers(ref) from None
            raise
        found = parse_referrers(manifest.raw, str(ref)) if manifest else []
        if len(found) > MAX_REFERRERS:
            raise _too_many_referrers(ref)
        return found

    def _download_rest(self, source: str, ref: Reference, download: BlobDownload) -> None:
        """Receive the missing bytes of a blob from one response."""
        # Of the whole blob: a registry without ranges sends it from its start.
        deadline = self.deadline_at(source, ref, download.descriptor.size)
        headers = {"Range": f"bytes={download.received}-"} if download.received else {}
        with self._read(source, ref, f"blobs/{download.descriptor.digest}", headers, deadline) as response:
            known = download.received if response.status == OK else 0
            range_sent = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if response.status == _PARTIAL and (range_sent is None or int(range_sent[1]) != download.received):
                raise wrong_blob(ref.name, download.descriptor, "answered with another part than the requested one")
            try:
                begun, sent = time.monotonic(), 0
                for part in read_chunks(response, known + download.missing, deadline):
                    self._check_rate(time.monotonic() - begun, sent)
                    sent += len(part)
                    # A registry without range support sends the blob from its start: skip the bytes that we have.
                    known, fresh = max(0, known - len(part)), part[known:]
                    download.receive(fresh)  # also without a byte: the receiver can end the download
            except GKMError as error:
                if error.reason is Reason.TOO_LARGE:
                    raise wrong_blob(ref.name, download.descriptor, "longer than its manifest says") from error
                raise

    def _check_rate(self, seconds: float, count: int) -> None:
        """End a slow blob long before the deadline of its whole size, which may be days.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE.
        """
        if count < (seconds - self.limits.request) * self.limits.min_rate:
            slow = f"the registry sends too slowly: less than {self.limits.min_rate} bytes a second"
            raise GKMError(Reason.REGISTRY_UNAVAILABLE, slow)

    def _from_first_source(self, ref: Reference, read: Callable[[str], T]) -> T:
        """Return what `read` gets from the first source that has it; only the registry's own failure is raised."""
        *mirrors, registry = self.sources(ref)
        for mirror in mirrors:
            if not self.mirrors_have_time():
                break
            try:
                return read(mirror)
            except GKMError as error:
                if error.reason not in _FAULTS_OF_A_SOURCE:
                    raise
                level = logging.DEBUG if error.reason is Reason.NOT_FOUND else logging.WARNING
                _LOG.log(
                    level,
                    "mirror skipped, the next source is read",
                    extra=fields(mirror=mirror, image=str(ref), why=str(error)),
                )
        return read(registry)

    @contextmanager
    def _read(
        self, source: str, ref: Reference, path: str, headers: dict[str, str], deadline: float
    ) -> Iterator[BaseHTTPResponse]:
        """Yield the response of one source, the registry or a mirror of it."""
        url = self.url(source, ref.repository, path_at(source, ref.registry, path))
        request = RegistryRequest("GET", url, headers, has_alternative=source != ref.registry)
        with self.send(source, ref.repository, request, "pull", deadline) as response:
            if response.status not in (OK, _PARTIAL):
                missing = path.startswith("referrers/") and response.status in _NO_REFERRERS_API
                raise failure(ref, NOT_FOUND if missing else response.status, "read", response.headers)
            yield response


def _too_many_referrers(ref: Reference) -> GKMError:
    return GKMError(
        Reason.TOO_LARGE,
        f"the list of artifacts attached to {ref} has more than the {MAX_REFERRER_BYTES} bytes "
        f"or {MAX_REFERRERS} artifacts that are read",
        "delete artifacts that are attached to the image and not needed",
    )


def is_mirror(host: str, registry: str) -> bool:
    """Return whether `host` is a mirror for images of `registry`."""
    return host != registry and (registry, host) != (DOCKER_HUB, HUB_REGISTRY)


def path_at(host: str, registry: str, path: str) -> str:
    """Return the path, with its query, of a request to `host` for an object of `registry`.

    A mirror may repeat `ns` in the address of the next page: it gets the parameter once, from us.
    """
    if not is_mirror(host, registry):
        return path
    bare, _, query = path.partition("?")
    parameters = [part for part in query.split("&") if part and part.partition("=")[0] != NAMESPACE]
    return f"{bare}?{'&'.join([*parameters, urlencode({NAMESPACE: registry})])}"

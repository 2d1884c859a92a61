"""The registry and the signer for images of captures; each attempt reads credentials and keys again.

So renewed credentials and a replaced key take effect at the next attempt, without a restart.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from gkm.api.config import Config
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import utc_time
from gkm.images.assembly.image import BaseLayers
from gkm.images.captured import statement
from gkm.images.captured.content import PREDICATE_TYPE, short
from gkm.images.captured.statement import CaptureClaim
from gkm.images.configuration import MAX_CONFIG_BYTES, read_config
from gkm.images.local_image import PIECE_BYTES, LocalImage, ProgressCallback
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.credentials import PullSecrets
from gkm.images.registries.registry import Registry
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.sigstore_services import PUBLIC_FULCIO, PUBLIC_REKOR, SigstoreService
from gkm.images.signing import ambient, keyless, keys, sign
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.sign import attest
from msgspec import structs

MAX_BASE_LAYERS: Final = 7
"""Limit of layers in a base image. An image beyond it is packed as a single layer with all files again."""
_SPARE_SECONDS: Final = 300.0
"""Seconds that an upload may take in addition to the time that its bytes need at the configured rate."""


def free_tag(registry: Registry, ref: Reference, digest: str) -> Reference | None:
    """Return the reference to push an image under; None if the registry already has the image under a tag.

    This is the tag `ref`; if another image has that tag, a longer tag with the digest of this image. Nodes whose
    captures extend different generations build different images from the same content. Registries delete an image that
    loses its tag, and tags may be immutable. Raises GKMError.
    """
    for tag in (ref, ref.tagged(f"{ref.target}-{short(digest)}")):
        try:
            found = registry.resolve(tag)
        except GKMError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            return tag
        if found == digest:
            return None
    return ref.pinned(digest)


class CaptureStopped(Exception):
    """The agent is stopping; its next process repeats the interrupted step."""


@dataclass(frozen=True)
class RegistryDestination:
    """Pushes and signs images of captures with the registry and the signer that the configuration names.

    Each method is idempotent, bounded in time, and raises GKMError.
    """

    config: Config
    secrets: PullSecrets
    environment: Mapping[str, str]

    def push(self, ref: Reference, image: LocalImage, report: ProgressCallback) -> str:
        """Push an image under the tag `ref`, less the blobs in the registry; return its digest."""
        size = sum(blob.descriptor.size for blob in image.blobs)
        seconds = _SPARE_SECONDS + 2 * size / self.config.capture.bytes_per_second
        registry = self._registry(ref).within(seconds)
        push.blobs(registry, ref, image, report)
        tag = free_tag(registry, ref, image.digest)
        return push.manifest(registry, tag, image.manifest, image.media_type) if tag else image.digest

    def layers(self, pinned: Reference) -> BaseLayers | None:
        """Return the layers of a base image in the registry; None if they cannot be reused."""
        registry = self._registry(pinned)
        try:
            described = registry.manifest(pinned).image()
            config = registry.small_blob(pinned, described.config, MAX_CONFIG_BYTES)
        except GKMError as error:
            if error.reason is Reason.NOT_FOUND:
                return None
            raise
        layers, diff_ids = described.layers, read_config(config, str(pinned)).diff_ids
        if len(layers) != len(diff_ids) or len(layers) > MAX_BASE_LAYERS:
            return None
        if not all(registry.blob_exists(pinned, layer) for layer in layers):
            return None
        return BaseLayers(tuple(layers), diff_ids)

    def sign(self, pinned: Reference) -> None:
        """Sign an image unless it already has a signature of the current signer."""
        sign.sign(self._registry(pinned), pinned, self._signer())

    def attest(self, pinned: Reference, predicate: Mapping[str, Any]) -> None:
        """Attach a signed attestation about a captured image unless it has an equivalent one.

        An attestation by another node suffices if its time differs by less than half of the maximum age.
        """
        claim = CaptureClaim(
            predicate["namespace"],
            predicate["hardware"],
            predicate["contentDigest"],
            predicate["family"],
            predicate["base"],
        )
        time, longest = utc_time(predicate["time"]), self.config.capture.caches.max_age / 2

        def suffices(payload: bytes) -> bool:
            stated = statement.time_of(payload, claim)
            return stated is not None and time is not None and abs((time - stated).total_seconds()) < longest

        attest(self._registry(pinned), pinned, PREDICATE_TYPE, predicate, self._signer(), suffices=suffices)

    def _registry(self, ref: Reference) -> Registry:
        """Return the registry of an image itself without its mirrors, which may have an older copy.

        The credentials are read anew: from `capture.credentialsSecret` in GKM's own namespace, or else the credentials
        of the registry's host.
        """
        configured = self.config.registries
        hosts = {name: structs.replace(host, mirrors=[]) for name, host in configured.hosts.items()}
        registries = structs.replace(configured, hosts=hosts)
        secret = self.config.capture.credentials_secret
        secrets = PullSecrets(self.secrets.secrets, registries, self.secrets.namespace)
        return Registry(registries, secrets.credentials(str(ref), None, [secret] if secret else []))

    def _signer(self) -> ImageSigner:
        signing = self.config.capture.signing
        if signing.key_file:
            password = self.environment.get(keys.PASSWORD_VARIABLE, "").encode("utf-8", "surrogateescape")
            return ImageSigner.by_key(keys.read(signing.key_file, password))
        try:
            token = ambient.token(self.environment)
        except OSError as error:
            raise GKMError(
                Reason.UNAUTHORIZED, f"the identity token to sign captured images with cannot be read: {error.strerror}"
            ) from error
        if token is None:
            raise GKMError(
                Reason.UNAUTHORIZED,
                "there is no identity token to sign captured images with",
                f"project a service account token with the audience {ambient.AUDIENCE} to {ambient.TOKEN_FILE}",
            )
        fulcio = SigstoreService("Fulcio", signing.fulcio_url or PUBLIC_FULCIO)
        log = Rekor(SigstoreService("Rekor", signing.rekor_url or PUBLIC_REKOR))
        return keyless.signer(fulcio, signing.trusted_root, token, log)


class UploadPace:
    """The progress callback of one upload.

    Sleeps to keep the rate at `bytes_per_second`, and ends the upload on `stop`.
    """

    def __init__(self, bytes_per_second: int, stop: Event, sent: Callable[[int], object]) -> None:
        self._rate = bytes_per_second
        self._stop = stop
        self._sent = sent
        self._before = 0
        self._free_at = time.monotonic()

    def __call__(self, done: int, _total: int) -> None:
        """Receive the bytes uploaded so far, and sleep as the rate requires.

        Raises CaptureStopped when the agent stops.
        """
        count, self._before = done - self._before, done
        # A larger step is a blob that the registry has already, a negative one an upload that starts again.
        if 0 < count <= PIECE_BYTES:
            self._sent(count)
            self._free_at = max(self._free_at, time.monotonic()) + count / self._rate
        if self._stop.wait(max(0.0, self._free_at - time.monotonic())):
            raise CaptureStopped

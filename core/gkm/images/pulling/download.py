"""Download the blobs of an image: several at once, each verified whole, each resumed where an earlier pull stopped."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from gkm.api import msgspec_warmup
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.logs import fields
from gkm.images.local_image import write_all
from gkm.images.manifest import Descriptor
from gkm.images.pulling.blob_files import PART, REGISTRY_PART, BlobFiles
from gkm.images.reference import Reference
from gkm.images.registries.blobs import BlobDownload
from gkm.images.registries.registry import Registry

_LOG = logging.getLogger(__name__)

CONNECTIONS = 3
"""The number of blobs of an image that are fetched at once, because a registry serves a whole fleet."""
_READ_BYTES = 1 << 20


class _DownloadStopped(Exception):
    """The download of another blob failed, so that this one must not send a further request."""


@dataclass(slots=True)
class ImageDownload:
    """The download of one image's blobs into `work`, through the blob `files` that images of a repository share."""

    registry: Registry
    ref: Reference
    files: BlobFiles
    work: Path
    on_bytes: Callable[[int], object]
    """Called with every count of bytes; a negative count takes bytes back. An exception from it ends the download."""
    _stop: Event = field(default_factory=Event)

    def run(self, blobs: Sequence[Descriptor]) -> list[Path]:
        """Return the files of the blobs in their order, each with the size and digest that the manifest states.

        When a blob fails for a transient reason, its received bytes stay on the disk and the next attempt resumes
        there.

        Raises:
            GKMError: as the registry raises; the first failure ends the other downloads.
            OSError: the disk refused.
        """
        self.files.sweep()
        msgspec_warmup.warm_up()  # several connections may request tokens at once
        with ThreadPoolExecutor(min(CONNECTIONS, max(1, len(blobs))), "gkm-blob") as pool:
            tasks = [pool.submit(self._download_blob, number, blob) for number, blob in enumerate(blobs)]
            try:
                return [task.result() for task in tasks]
            except BaseException:
                self._stop.set()
                for task in tasks:
                    task.cancel()
                raise

    def _download_blob(self, number: int, blob: Descriptor) -> Path:
        target = self.work / f"layer-{number}"
        # A wrong digest may come from the resumed bytes or from a mirror: blame the registry only after a download of
        # every byte from the registry itself. The second download may resume one of an earlier pull.
        part = REGISTRY_PART if self.registry.has_mirrors(self.ref) else PART
        origin = self.registry.without_mirrors()
        if not self._fetch(self.registry, blob, target, PART) and not self._fetch(origin, blob, target, part):
            self._fetch(origin, blob, target, part, is_last=True)
        return target

    def _fetch(self, registry: Registry, blob: Descriptor, target: Path, part: str, *, is_last: bool = False) -> bool:
        """Fetch a blob; return False for a digest mismatch that may not be the registry's fault: the caller retries."""
        with self.files.locked(self.ref, blob, lambda: self._count(0), part) as locked:

            def write(part: bytes) -> None:
                write_all(locked.descriptor, part)
                self._count(len(part))

            download = BlobDownload(blob, write)
            download.resume(_parts(locked.descriptor, blob.size))
            resumed_bytes = download.received
            self._count(resumed_bytes)
            os.ftruncate(locked.descriptor, resumed_bytes)
            try:
                registry.blob(self.ref, download)
            except GKMError as error:
                if error.reason is not Reason.REGISTRY_UNAVAILABLE:
                    locked.path.unlink()  # the received bytes are useless for a resume
                from_elsewhere = resumed_bytes or registry.has_mirrors(self.ref)
                if is_last or not from_elsewhere or error.reason is not Reason.DIGEST_MISMATCH:
                    raise
                _LOG.warning("blob fetched again", extra=fields(image=str(self.ref), why=str(error)))
                self._count(-download.received)
                return False
            locked.finalize(target)
        return True

    def _count(self, count: int) -> None:
        """Count received bytes; raise if the download of another blob of the image failed."""
        if self._stop.is_set():
            raise _DownloadStopped
        self.on_bytes(count)


def _parts(descriptor: int, limit: int) -> Iterator[bytes]:
    """Yield at most `limit` bytes of the partial file; bytes beyond the blob's size do not come from a download."""
    while limit > 0 and (part := os.read(descriptor, min(_READ_BYTES, limit))):
        limit -= len(part)
        yield part

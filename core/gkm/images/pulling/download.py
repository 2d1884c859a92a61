"""Blobs to the disk: several at once, each checked whole, each taken up where an earlier process left it."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from gkm.api import msgspec_warmup as first_use
from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import write_all
from gkm.images.manifest import Descriptor
from gkm.images.pulling.blob_files import BlobFiles
from gkm.images.reference import Reference
from gkm.images.registries.blobs import BlobDownload
from gkm.images.registries.registry import Registry

CONNECTIONS = 3
"""At most so many blobs of an image are fetched at once: a registry serves a fleet."""
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class ImageDownload:
    """The blobs of one image on their way into `work`, by way of the `files` that other images have too."""

    registry: Registry
    ref: Reference
    files: BlobFiles
    work: Path
    on_bytes: Callable[[int], object]
    """Called with every count of bytes; a negative count takes bytes back. An exception from it ends the download."""
    _stop: Event = field(default_factory=Event)

    def run(self, blobs: Sequence[Descriptor]) -> list[Path]:
        """Return the files of the blobs, in their order; every one has its size and its digest.

        What came of a blob that failed for a passing reason stays, and the next try takes it up.

        Raises:
            GKMError: what the registry raises; the first failure ends the others.
            OSError: the disk refused.
        """
        self.files.sweep()
        first_use.warm_up()  # several connections may be asked for tokens at once
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
        # What was on the disk may be what is wrong: only bytes that all came now are the registry's to answer for.
        if not self._fetch(blob, target, is_retry=False):
            self._fetch(blob, target, is_retry=True)
        return target

    def _fetch(self, blob: Descriptor, target: Path, *, is_retry: bool) -> bool:
        """Bring a blob; return False for a wrong one, some of which was here before, unless that was so `again`."""
        with self.files.locked(self.ref, blob, lambda: self._count(0)) as locked:

            def write(part: bytes) -> None:
                write_all(locked.descriptor, part)
                self._count(len(part))

            download = BlobDownload(blob, write)
            download.resume(_parts(locked.descriptor, blob.size))
            resumed_bytes = download.received
            self._count(resumed_bytes)
            os.ftruncate(locked.descriptor, resumed_bytes)
            try:
                self.registry.blob(self.ref, download)
            except GKMError as error:
                if error.reason is not Reason.REGISTRY_UNAVAILABLE:
                    locked.path.unlink()  # what came is not worth going on with
                if is_retry or not resumed_bytes or error.reason is not Reason.DIGEST_MISMATCH:
                    raise
                self._count(-download.received)
                return False
            locked.finalize(target)
        return True

    def _count(self, count: int) -> None:
        """Count what has come, unless another blob of the image has failed."""
        if self._stop.is_set():
            raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the download of another layer failed")
        self.on_bytes(count)


def _parts(descriptor: int, limit: int) -> Iterator[bytes]:
    """Yield at most `limit` bytes of what is there: more than the blob has was not written by this code."""
    while limit > 0 and (part := os.read(descriptor, min(_READ_BYTES, limit))):
        limit -= len(part)
        yield part

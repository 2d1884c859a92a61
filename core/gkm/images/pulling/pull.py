"""Pull a described image into a complete entry of the store, or leave no entry.

A pull has two phases: it writes and verifies every blob before it gives one byte to a decompressor or the tar reader.
The result lies in a directory of `work/` until one rename publishes it (docs/design/node-state.md, invariant 1).

Several blobs are downloaded at once, each verified whole, each resumed where an earlier pull stopped.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event

from gkm.api import msgspec_warmup
from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate import disk_space
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.images.archives.compression import FEED_BYTES
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource
from gkm.images.local_image import BlobDownload, ByteCounter, write_all
from gkm.images.manifest import Descriptor
from gkm.images.pulling import entry
from gkm.images.pulling.blob_files import PART, REGISTRY_PART, BlobFiles
from gkm.images.pulling.disk_reservations import DiskReservation
from gkm.images.pulling.entry import FileList, StoreEntry
from gkm.images.pulling.extract import Extraction
from gkm.images.reference import Reference
from gkm.runtimes.placement import directory_of

_LOG = logging.getLogger(__name__)
CONNECTIONS = 3
"""Number of blobs of an image that are downloaded at once; a registry serves a whole fleet of nodes."""
_READ_BYTES = 1 << 20


class PullStage(StrEnum):
    """The phase of a pull: download or extraction."""

    DOWNLOADING = "Downloading"
    EXTRACTING = "Extracting"


Progress = Callable[[PullStage, int], None]
"""Called with a stage and a percentage for every piece, from several threads, one at a time; an exception from it ends
the pull.
"""


def fetch(
    registry: ImageSource,
    image: CacheImage,
    layout: Layout,
    *,
    max_bytes: int,
    reservation: DiskReservation | None = None,
    progress: Progress | None = None,
) -> StoreEntry:
    """Return the store entry of an image; pull the image if the store lacks it.

    Without a `reservation` the pull checks the free space of the disk itself.

    Raises:
        GKMError: as the registry raises; UNSAFE_CONTENT, CONTENT_MISMATCH, TOO_LARGE, DISK_FULL. Only partial blobs
            stay, which the next attempt resumes.
        UnreadableState: another program changed the store.
    """
    present = entry.find(layout, image.digest)
    if present is not None:
        return present
    work = Path(tempfile.mkdtemp(prefix=f"{layout.entry(image.digest).name[:16]}-", dir=layout.work))
    try:
        extraction = extract(
            registry, image, layout, work, max_bytes=max_bytes, reservation=reservation, progress=progress
        )
        listed = FileList(image.digest, image.runtime, extraction.size_bytes, extraction.files)
        return entry.publish(layout, work, listed, extraction.manifest)
    except OSError as error:
        if error.errno not in disk_space.FULL:
            raise
        raise _disk_full(f"the disk of {layout.state} is full") from error
    finally:
        entry.remove_tree(work)


def extract(
    registry: ImageSource,
    image: CacheImage,
    layout: Layout,
    work: Path,
    *,
    max_bytes: int,
    reservation: DiskReservation | None = None,
    progress: Progress | None = None,
) -> Extraction:
    """Download, verify and extract an image into the new directory `work/cache`.

    Raises:
        GKMError: as `fetch`; the content of `work` is then useless.
        OSError: a disk operation failed.
    """
    _check_size(image, max_bytes)
    with _blobs_in_bounds(layout, image):
        reservation = reservation or _reserve_disk(layout, image, work)
        downloaded = _stage_counter(PullStage.DOWNLOADING, image, progress)

        def on_bytes(count: int) -> None:
            reservation.blob_written(count)
            downloaded.add(count)

        blobs = ImageDownload(registry, image.ref, BlobFiles(layout.blobs), work, on_bytes).run(image.layers)
        extraction = Extraction(work / entry.CONTENT, image.formats, max_bytes, image.size_bytes, reservation.consume)
        unpacked = _stage_counter(PullStage.EXTRACTING, image, progress)
        extraction.destination.mkdir()
        for blob in blobs:
            extraction.layer(unpacked.through(_parts(blob)))
            blob.unlink()
        _check_content(image, extraction)
    return extraction


@contextmanager
def _blobs_in_bounds(layout: Layout, image: CacheImage) -> Iterator[None]:
    """Remove the blobs of a refused image, and after every pull the blobs beyond the bound of all blobs."""
    files = BlobFiles(layout.blobs)
    try:
        yield
    except GKMError as error:
        if not error.inconclusive:
            with suppress(OSError):  # the sweep removes them later; the caller must see the refusal
                files.drop(image.ref, image.layers)
        raise
    finally:
        with suppress(OSError):
            files.sweep()


def _stage_counter(stage: PullStage, image: CacheImage, progress: Progress | None) -> ByteCounter:
    """Return a counter of blob bytes that reports a percentage for each piece, so that `progress` can end the pull."""

    def report(done: int, total: int) -> None:
        if progress:
            progress(stage, min(100, done * 100 // max(1, total)))

    return ByteCounter(report, image.download_bytes)


def _reserve_disk(layout: Layout, image: CacheImage, work: Path) -> DiskReservation:
    """Return a reservation that is checked against the free space of the disk only.

    Raises:
        GKMError: DISK_FULL; the unused cached blobs are then removed.
    """

    def grow(content: int, disk: int) -> None:
        _check_free(layout, image, work, disk)
        reservation.extend(content, disk)

    reservation = DiskReservation(image, grow)
    _check_free(layout, image, work, reservation.remaining)
    return reservation


def _check_free(layout: Layout, image: CacheImage, work: Path, wanted: int) -> None:
    if wanted > shutil.disk_usage(work).free:
        BlobFiles(layout.blobs).evict_unused()
    free = shutil.disk_usage(work).free
    if wanted > free:
        raise _disk_full(f"{image.ref} needs {wanted} bytes on the disk of {work.parent}, {max(0, free)} are free")


def _check_size(image: CacheImage, max_bytes: int) -> None:
    largest = max(image.download_bytes, image.size_bytes or 0)
    if largest > max_bytes:
        raise GKMError(
            Reason.TOO_LARGE,
            f"{image.ref} has {largest} bytes, packed or unpacked; at most {max_bytes} are allowed",
            Remedy.RAISE_MAX_IMAGE,
        )


def _parts(blob: Path) -> Iterator[bytes]:
    with blob.open("rb") as file:
        while part := file.read(FEED_BYTES):
            yield part


def _check_content(image: CacheImage, extraction: Extraction) -> None:
    names = [kind.value for kind in image.formats]
    places = {kind: extraction.destination / directory_of(kind.value, names) for kind in image.formats}
    if empty := [kind for kind, place in places.items() if not extraction.files or not place.is_dir()]:
        where = " or ".join(f"{kind.content_directory}/" for kind in empty)
        raise GKMError(Reason.CONTENT_MISMATCH, f"{image.ref} holds no file in {where}: it is empty")
    if image.size_bytes is not None and image.size_bytes != extraction.size_bytes:
        raise GKMError(
            Reason.CONTENT_MISMATCH,
            f"{image.ref} claims a cache of {image.size_bytes} bytes, it has {extraction.size_bytes}",
        )


def _disk_full(what: str) -> GKMError:
    return GKMError(Reason.DISK_FULL, what, Remedy.FREE_SPACE)


class _DownloadStopped(Exception):
    """The download of another blob failed, so this download stops."""


@dataclass(slots=True)
class ImageDownload:
    """Downloads the blobs of one image into `work`; `files` are blobs that images of the same repository share."""

    registry: ImageSource
    ref: Reference
    files: BlobFiles
    work: Path
    on_bytes: Callable[[int], object]
    """Called with the number of new bytes (negative after a failed check). An exception from it ends the download."""
    _stop: Event = field(default_factory=Event)

    def run(self, blobs: Sequence[Descriptor]) -> list[Path]:
        """Return the files of the blobs in their order, each with the size and digest that the manifest states.

        When a blob fails for a transient reason, its received bytes stay on the disk and the next attempt resumes
        there.

        Raises:
            GKMError: as the registry raises; the first failure ends the other downloads.
            OSError: a disk operation failed.
        """
        self.files.sweep()
        msgspec_warmup.warm_up()  # several connections may request tokens at once
        with ThreadPoolExecutor(min(CONNECTIONS, max(1, len(blobs))), "gkm-blob") as pool:
            tasks = [pool.submit(self._download_blob, number, blob) for number, blob in enumerate(blobs)]
            try:
                for task in as_completed(tasks):
                    task.result()
                return [task.result() for task in tasks]
            except BaseException:
                self._stop.set()
                for task in tasks:
                    task.cancel()
                raise

    def _download_blob(self, number: int, blob: Descriptor) -> Path:
        target = self.work / f"layer-{number}"
        # A wrong digest may come from the resumed bytes or from a mirror: blame the registry only after a download of
        # every byte from the registry itself. The second download may resume an earlier pull's download.
        part = REGISTRY_PART if self.registry.has_mirrors(self.ref) else PART
        origin = self.registry.without_mirrors()
        if not self._fetch(self.registry, blob, target, PART) and not self._fetch(origin, blob, target, part):
            self._fetch(origin, blob, target, part, is_last=True)
        return target

    def _fetch(
        self, registry: ImageSource, blob: Descriptor, target: Path, part: str, *, is_last: bool = False
    ) -> bool:
        """Fetch a blob; return False for a digest mismatch that may not be the registry's fault: the caller retries."""
        with self.files.locked(self.ref, blob, lambda: self._count(0), part) as locked:

            def write(part: bytes) -> None:
                write_all(locked.descriptor, part)
                self._count(len(part))

            download = BlobDownload(blob, write)
            download.resume(_blob_parts(locked.descriptor, blob.size))
            resumed_bytes = download.received
            self._count(resumed_bytes)
            os.ftruncate(locked.descriptor, resumed_bytes)
            try:
                registry.blob(self.ref, download)
            except GKMError as error:
                if not error.inconclusive:
                    locked.path.unlink()  # the received bytes are useless for a resume
                from_elsewhere = resumed_bytes or registry.has_mirrors(self.ref)
                if is_last or not from_elsewhere or error.reason is not Reason.DIGEST_MISMATCH:
                    raise
                _LOG.warning(
                    "image blob has wrong bytes, downloaded again", extra=fields(image=str(self.ref), why=str(error))
                )
                self._count(-download.received)
                return False
            locked.finalize(target)
        return True

    def _count(self, count: int) -> None:
        """Count received bytes; raise if the download of another blob of the image failed."""
        if self._stop.is_set():
            raise _DownloadStopped
        self.on_bytes(count)


def _blob_parts(descriptor: int, limit: int) -> Iterator[bytes]:
    """Yield at most `limit` bytes of the partial file; bytes beyond the blob's size do not come from a download."""
    while limit > 0 and (part := os.read(descriptor, min(_READ_BYTES, limit))):
        limit -= len(part)
        yield part

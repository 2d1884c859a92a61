"""Pull a described image into a complete entry of the store, or leave no entry.

A pull has two phases: it writes and verifies every blob before it gives one byte to a decompressor or the tar reader.
The result lies in a directory of `work/` until one rename publishes it (docs/design/node-state.md, invariant 1).
"""

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate.layout import Layout
from gkm.images.archives.inflate import FEED_BYTES
from gkm.images.cache import CacheImage
from gkm.images.local_image import ByteCounter
from gkm.images.pulling import entry
from gkm.images.pulling.blob_files import BlobFiles
from gkm.images.pulling.disk_reservations import DiskReservation
from gkm.images.pulling.download import ImageDownload
from gkm.images.pulling.entry import FileList, StoreEntry
from gkm.images.pulling.extract import Extraction
from gkm.images.registries.registry import Registry


class PullStage(StrEnum):
    """The phase of a pull."""

    DOWNLOADING = "Downloading"
    EXTRACTING = "Extracting"


Progress = Callable[[PullStage, int], None]
"""Called with a stage and a percentage for every piece, from several threads, one at a time; an exception from it ends
the pull.
"""


def fetch(
    registry: Registry,
    image: CacheImage,
    layout: Layout,
    *,
    max_bytes: int,
    reservation: DiskReservation | None = None,
    progress: Progress | None = None,
) -> StoreEntry:
    """Return the store's entry of an image; pull the image if the store lacks it.

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
        listed = FileList(image.digest, image.format.value, extraction.size_bytes, extraction.files)
        return entry.publish(layout, work, listed, extraction.manifest)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _disk_full(f"the disk of {layout.state} is full") from error
    finally:
        entry.remove_tree(work)


def extract(
    registry: Registry,
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
        OSError: the disk refused.
    """
    _check_size(image, max_bytes)
    with _blobs_in_bounds(layout, image):
        reservation = reservation or _reserve_disk(layout, image, work)
        downloaded = _stage_counter(PullStage.DOWNLOADING, image, progress)

        def on_bytes(count: int) -> None:
            reservation.blob_written(count)
            downloaded.add(count)

        blobs = ImageDownload(registry, image.ref, BlobFiles(layout.blobs), work, on_bytes).run(image.layers)
        extraction = Extraction(work / entry.CONTENT, image.format, max_bytes, image.size_bytes, reservation.consume)
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
        if not error.transient:
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
            f"{image.ref} has {largest} bytes, at most {max_bytes} are allowed",
            Remedy.RAISE_MAX_IMAGE,
        )


def _parts(blob: Path) -> Iterator[bytes]:
    with blob.open("rb") as file:
        while part := file.read(FEED_BYTES):
            yield part


def _check_content(image: CacheImage, extraction: Extraction) -> None:
    if not extraction.files:
        raise GKMError(
            Reason.CONTENT_MISMATCH, f"{image.ref} holds no file in {image.format.content_directory}/: it is empty"
        )
    if image.size_bytes is not None and image.size_bytes != extraction.size_bytes:
        raise GKMError(
            Reason.CONTENT_MISMATCH,
            f"{image.ref} claims a cache of {image.size_bytes} bytes, it has {extraction.size_bytes}",
        )


def _disk_full(what: str) -> GKMError:
    return GKMError(Reason.DISK_FULL, what, Remedy.FREE_SPACE)

import fcntl
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.local_image import LocalImage
from gkm.images.pulling import blob_files, pull
from gkm.images.pulling.blob_files import BlobFiles
from gkm.images.pulling.disk_reservations import STEP_BYTES, DiskReservation
from gkm.images.pulling.pull import PullStage
from gkm.images.reference import Reference
from gkm.images.registries import push
from support.host.waiting import scaled, until
from support.images.archives import blob_of, image_of_layers, tree
from support.images.cache_registry import Site
from support.registry import faults

MAX = 1 << 30


def never() -> None:
    raise AssertionError("nobody else holds it")


def disk_with(monkeypatch: pytest.MonkeyPatch, free: Callable[[], int]) -> None:
    """Report `free()` bytes as the free space of every disk."""
    real = os.statvfs("/")

    def measured(_path: Path) -> os.statvfs_result:
        values = list(real)
        values[1], values[4] = 1, free()  # f_frsize, f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", measured)


def described(site: Site) -> CacheImage:
    return cache.describe(site.client, site.ref)


def pushed(site: Site, image: LocalImage) -> Reference:
    for blob in image.blobs:
        push.blob(site.client, site.ref, blob)
    ref = site.ref.tagged("layers")
    return ref.pinned(push.manifest(site.client, ref, image.manifest, image.media_type))


def test_a_failed_pull_leaves_its_partial_blob_and_the_next_one_resumes(site: Site, layout: Layout) -> None:
    image = described(site)
    layer = image.layers[0]
    site.real.misbehave(faults.truncated(f"blobs/{layer.digest}", 3000, times=1), faults.status(layer.digest, 500))
    with pytest.raises(GKMError, match="the registry answers 500"):
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    (part,) = layout.blobs.iterdir()
    assert (part.suffix, part.stat().st_size) == (blob_files.PART, 3000)
    site.real.behave()
    site.real.requests.clear()
    assert pull.fetch(site.client, image, layout, max_bytes=MAX).files
    (extensions,) = site.real.seen("GET", layer.digest)
    assert extensions.headers["range"] == "bytes=3000-"
    assert [path.suffix for path in layout.blobs.iterdir()] == [""]


def test_changed_bytes_leave_no_part(site: Site, layout: Layout) -> None:
    image = described(site)
    site.real.misbehave(faults.tampered(f"blobs/{image.layers[0].digest}"))
    with pytest.raises(GKMError, match="is of digest") as caught:
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not list(layout.blobs.iterdir())


def test_unused_blobs_are_swept(layout: Layout) -> None:
    layout.blobs.mkdir()
    for name, age in (("old.part", blob_files.STALE_SECONDS + 60), ("young.part", 60.0), ("whole", 30.0)):
        (layout.blobs / name).write_bytes(b"")
        os.utime(layout.blobs / name, (time.time() - age,) * 2)
    BlobFiles(layout.blobs).sweep()
    assert {path.name for path in layout.blobs.iterdir()} == {"young.part", "whole"}


def test_whole_blobs_are_cached_up_to_a_bound_the_last_used_first(layout: Layout) -> None:
    layout.blobs.mkdir()
    for number, name in enumerate(("a", "b", "c", "d.part", "e.registry-part")):
        with (layout.blobs / name).open("wb") as file:
            file.truncate(blob_files.MAX_CACHED_BYTES // 2)
        os.utime(layout.blobs / name, (time.time() - number,) * 2)
    BlobFiles(layout.blobs).sweep()
    assert {path.name for path in layout.blobs.iterdir()} == {"a", "b", "d.part", "e.registry-part"}


def test_a_pull_evicts_cached_blobs_when_it_needs_space(
    site: Site, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = described(site)
    layout.blobs.mkdir()
    (layout.blobs / "kept").write_bytes(b"x")
    (layout.blobs / "part.part").write_bytes(b"x")
    wanted = image.download_bytes + (image.size_bytes or 0)
    disk_with(monkeypatch, lambda: 0 if (layout.blobs / "kept").exists() else wanted + (2 << 20))
    assert pull.fetch(site.client, image, layout, max_bytes=MAX).files
    assert (layout.blobs / "part.part").exists()


def test_a_blob_that_another_pull_works_on_is_waited_for(site: Site, layout: Layout) -> None:
    image = described(site)
    files = BlobFiles(layout.blobs)
    with ThreadPoolExecutor() as pool, files.locked(image.ref, image.layers[0], never) as held:
        other = pool.submit(pull.fetch, site.client, image, layout, max_bytes=MAX)
        until(lambda: list(layout.work.iterdir()), "the other pull to begin", 20)
        held.path.write_bytes(blob_of(site.image, image.layers[0].digest))
        fcntl.flock(held.descriptor, fcntl.LOCK_UN)
        assert other.result(timeout=scaled(20)).files
    assert site.real.seen("GET", image.layers[0].digest) == []


def test_images_of_one_repository_fetch_a_shared_blob_once(site: Site, layout: Layout) -> None:
    shared, own = (tree((f"io.triton.cache/{name}", name.encode())) for name in ("shared", "own"))
    for layers in ((shared,), (shared, own), (own, shared)):
        ref = pushed(site, image_of_layers(*layers))
        pull.fetch(site.client, cache.describe(site.client, ref), layout, max_bytes=MAX)
    for layer in (shared, own):
        assert len(site.real.seen("GET", f"blobs/sha256:{hashlib.sha256(layer).hexdigest()}")) == 1


def test_another_repository_gets_nothing_that_it_cannot_fetch(site: Site, layout: Layout) -> None:
    image = described(site)
    pull.fetch(site.client, image, layout, max_bytes=MAX)
    elsewhere = Reference.parse(f"{site.ref.registry}/stranger/image@{image.digest}")
    stranger = replace(image, ref=elsewhere, digest="sha256:" + "0" * 64)
    with pytest.raises(GKMError) as caught:
        pull.fetch(site.client, stranger, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.NOT_FOUND


def test_several_layers_download_at_once_and_keep_their_order(site: Site, layout: Layout) -> None:
    layers = [tree((f"io.triton.cache/{number}", b"x" * 1000 * number)) for number in range(1, 7)]
    ref = pushed(site, image_of_layers(*layers))
    made = pull.fetch(site.client, cache.describe(site.client, ref), layout, max_bytes=MAX)
    listed = json.loads((layout.entry(made.digest) / "files.json").read_text())["files"]
    assert [file["path"] for file in listed] == ["1", "2", "3", "4", "5", "6"]


def test_one_bad_layer_ends_the_others(site: Site, layout: Layout) -> None:
    layers = [tree((f"io.triton.cache/{number}", b"x" * 1000 * number)) for number in range(1, 7)]
    built = image_of_layers(*layers)
    ref = pushed(site, built)
    site.real.misbehave(faults.tampered(f"blobs/{json.loads(built.manifest)['layers'][0]['digest']}"))
    with pytest.raises(GKMError, match="is of digest") as caught:
        pull.fetch(site.client, cache.describe(site.client, ref), layout, max_bytes=MAX)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not list(layout.work.iterdir())
    assert not list(layout.store.iterdir())


def test_the_first_failure_ends_a_larger_layer_before_it(site: Site, layout: Layout) -> None:
    """The layers were waited for in their order: the download of the first went on to its end."""
    large, bad = tree(("io.triton.cache/a", b"x" * 200_000)), tree(("io.triton.cache/b", b"x"))
    built = image_of_layers(large, bad)
    ref = pushed(site, built)
    first, second = (f"blobs/{layer['digest']}" for layer in json.loads(built.manifest)["layers"])
    site.real.misbehave(faults.dripping(first, 2000, 0.02), faults.tampered(second))
    reports: list[int] = []
    with pytest.raises(GKMError, match="is of digest") as caught:
        pull.fetch(
            site.client,
            cache.describe(site.client, ref),
            layout,
            max_bytes=MAX,
            progress=lambda _, percent: reports.append(percent),
        )
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert max(reports) < 90, "the first layer was downloaded to its end"


def test_bytes_stay_while_the_registry_denies_access(site: Site, layout: Layout) -> None:
    """A credential that expires, or an address of a blob store, during a download threw away what had come."""
    whole, partial = tree(("io.triton.cache/a", b"x" * 9000)), tree(("io.triton.cache/b", b"x" * 9000))
    built = image_of_layers(whole, partial)
    ref = pushed(site, built)
    image = cache.describe(site.client, ref)
    layer = image.layers[1].digest
    site.real.misbehave(faults.truncated(f"blobs/{layer}", 3000, times=1), faults.status(layer, 403))
    with pytest.raises(GKMError, match="answers 403") as caught:
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.UNAUTHORIZED
    name = f"*{layer.removeprefix('sha256:')}{blob_files.PART}"
    assert [path.stat().st_size for path in layout.blobs.glob(name)] == [3000], "the bytes that had come are gone"
    site.real.behave()
    site.real.requests.clear()
    assert pull.fetch(site.client, image, layout, max_bytes=MAX).files == 2
    assert [request.headers["range"] for request in site.real.seen("GET", layer)] == ["bytes=3000-"]


PULLER = """
import sys
from pathlib import Path
from gkm.api.config import Registries, RegistryHost
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
ref = Reference.parse(sys.argv[1])
client = Registry(Registries(hosts={ref.registry: RegistryHost(plain_http=True)}))
image = cache.describe(client, ref)
print("described", flush=True)
pull.fetch(client, image, Layout(Path(sys.argv[2]), Path(sys.argv[3])), max_bytes=1 << 30)
"""


def test_a_killed_pull_is_resumed(site: Site, layout: Layout) -> None:
    image = described(site)
    layer = image.layers[0].digest
    site.real.misbehave(faults.stalled(f"blobs/{layer}", after=4000, times=1))
    command = [sys.executable, "-c", PULLER, str(site.ref), str(layout.state), str(layout.run)]

    def partial_is_written() -> bool:
        return [path.stat().st_size for path in layout.blobs.glob("*.part")] == [4000]

    with subprocess.Popen(command, stdout=subprocess.PIPE) as puller:
        until(partial_is_written, "the part to come", 20)
        puller.send_signal(signal.SIGKILL)
    site.real.requests.clear()
    pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert [request.headers["range"] for request in site.real.seen("GET", layer)] == ["bytes=4000-"]


def test_a_pull_without_a_reservation_checks_the_free_space(
    site: Site, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = described(site)
    needed = image.download_bytes + (image.size_bytes or 0)
    disk_with(monkeypatch, lambda: needed - 1)
    with pytest.raises(GKMError) as caught:
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.DISK_FULL
    disk_with(monkeypatch, lambda: needed + STEP_BYTES)
    assert pull.fetch(site.client, image, layout, max_bytes=MAX).files


def test_written_bytes_leave_the_reservation(site: Site, layout: Layout) -> None:
    left: dict[PullStage, int] = {}

    def report(stage: PullStage, _percent: int) -> None:
        left[stage] = min(left.get(stage, MAX), reservation.remaining)

    def grow(content: int, disk: int) -> None:
        reservation.extend(content, disk)

    image = described(site)
    reservation = DiskReservation(image, grow)
    pull.fetch(site.client, image, layout, max_bytes=MAX, reservation=reservation, progress=report)
    assert left[PullStage.DOWNLOADING] == image.size_bytes
    assert reservation.remaining < STEP_BYTES


def test_an_image_without_a_claimed_size_grows_only_into_free_space(
    site: Site, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 8 MiB that compress well, within the allowed ratio.
    content = b"".join(f"{number:08d}".encode() for number in range(1 << 20))
    image = cache.describe(
        site.client, pushed(site, image_of_layers(gzip.compress(tree(("io.triton.cache/a", content)))))
    )
    assert image.size_bytes is None

    def free() -> int:
        return (6 << 20) - sum(path.stat().st_size for path in layout.work.rglob("*") if path.is_file())

    disk_with(monkeypatch, free)
    with pytest.raises(GKMError) as caught:
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.DISK_FULL
    assert not list(layout.work.iterdir())


def test_a_pull_with_a_reservation_does_not_check_the_disk_again(
    site: Site, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    extensions: list[tuple[int, int]] = []
    image = described(site)

    def grow(content: int, disk: int) -> None:
        extensions.append((content, disk))
        reservation.extend(content, disk)

    reservation = DiskReservation(image, grow)
    disk_with(monkeypatch, lambda: 0)
    assert pull.fetch(site.client, image, layout, max_bytes=MAX, reservation=reservation).files
    # Sizes are rounded up to blocks on the disk; the content does not exceed the claim.
    assert extensions == [(0, STEP_BYTES)]

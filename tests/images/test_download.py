import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache, download, pull, push
from gkm.images.build import BuiltImage
from gkm.images.cache import CacheImage
from gkm.images.packed import PackedBlob
from gkm.images.reference import Reference
from images_archives import image_of_layers, tree
from images_site import Site
from testbed import registry_faults as faults
from testbed.waiting import until

MAX = 1 << 30


def described(site: Site) -> CacheImage:
    return cache.describe(site.client, site.ref)


def pushed(site: Site, image: BuiltImage) -> Reference:
    for blob in image.blobs.values():
        push.blob(site.client, site.ref, PackedBlob.of(blob, ""))
    ref = site.ref.tagged("layers")
    return ref.pinned(push.manifest(site.client, ref, image.manifest, image.media_type))


def test_a_failed_pull_leaves_its_part_and_the_next_one_takes_it_up(site: Site, layout: Layout) -> None:
    image = described(site)
    layer = image.layers[0]
    site.real.misbehave(faults.truncated(f"blobs/{layer.digest}", 3000, times=1), faults.status(layer.digest, 500))
    with pytest.raises(GKMError):
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert [path.stat().st_size for path in layout.partial.iterdir()] == [3000]
    site.real.behave()
    site.real.requests.clear()
    assert pull.fetch(site.client, image, layout, max_bytes=MAX).files
    (asked,) = site.real.seen("GET", layer.digest)
    assert asked.headers["range"] == "bytes=3000-"
    assert not list(layout.partial.iterdir())


@pytest.mark.parametrize("spoil", [lambda part: b"x" * len(part), lambda part: part + b"x" * 10_000_000])
def test_a_part_that_somebody_spoilt_costs_one_try(site: Site, layout: Layout, spoil: object) -> None:
    image = described(site)
    blob = site.image.blobs[image.layers[0].digest]
    layout.partial.mkdir(parents=True, exist_ok=True)
    part = layout.partial / image.layers[0].digest.removeprefix("sha256:")
    part.write_bytes(spoil(blob[:1000]))  # type: ignore[operator]
    with pytest.raises(GKMError) as caught:
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert pull.fetch(site.client, image, layout, max_bytes=MAX).files


def test_changed_bytes_leave_no_part(site: Site, layout: Layout) -> None:
    image = described(site)
    site.real.misbehave(faults.tampered(f"blobs/{image.layers[0].digest}"))
    with pytest.raises(GKMError):
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert not list(layout.partial.iterdir())


def test_parts_that_nobody_adds_to_are_swept(layout: Layout) -> None:
    layout.partial.mkdir(parents=True, exist_ok=True)
    for name, age in (("old", download.STALE_SECONDS + 60), ("young", 60.0)):
        (layout.partial / name).write_bytes(b"")
        os.utime(layout.partial / name, (time.time() - age,) * 2)
    download.sweep(layout.partial)
    assert [path.name for path in layout.partial.iterdir()] == ["young"]


def test_many_layers_come_at_once_and_land_in_their_order(site: Site, layout: Layout) -> None:
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
    with pytest.raises(GKMError):
        pull.fetch(site.client, cache.describe(site.client, ref), layout, max_bytes=MAX)
    assert not list(layout.work.iterdir())
    assert not list(layout.store.iterdir())


PULLER = """
import sys
from pathlib import Path
from gkm.api.config import Registries, RegistryHost
from gkm.hoststate.layout import Layout
from gkm.images import cache, pull
from gkm.images.reference import Reference
from gkm.images.registry import Registry
ref = Reference.parse(sys.argv[1])
client = Registry(Registries(hosts={ref.registry: RegistryHost(plain_http=True)}))
image = cache.describe(client, ref)
print("described", flush=True)
pull.fetch(client, image, Layout(Path(sys.argv[2]), Path(sys.argv[3])), max_bytes=1 << 30)
"""


def test_a_pull_that_was_killed_is_taken_up(site: Site, layout: Layout) -> None:
    image = described(site)
    layer = image.layers[0].digest
    site.real.misbehave(faults.stalled(f"blobs/{layer}", after=4000, times=1))
    command = [sys.executable, "-c", PULLER, str(site.ref), str(layout.state), str(layout.run)]
    part = layout.partial / layer.removeprefix("sha256:")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as puller:
        until(lambda: part.exists() and part.stat().st_size == 4000, "the part to come", 20)
        puller.send_signal(signal.SIGKILL)
    site.real.requests.clear()
    pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert [request.headers["range"] for request in site.real.seen("GET", layer)] == ["bytes=4000-"]


def test_two_pulls_do_not_promise_the_same_room(site: Site, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    image = described(site)
    needed = image.download_bytes + (image.size_bytes or 0)
    real = os.statvfs(layout.state)

    def nearly_full(_path: Path) -> os.statvfs_result:
        values = list(real)
        values[1], values[4] = 1, needed + needed // 2  # f_frsize, f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pull._room(layout.state, image, MAX), pytest.raises(GKMError) as caught, pull._room(layout.state, image, MAX):
        pass
    assert caught.value.reason is Reason.DISK_FULL
    with pull._room(layout.state, image, MAX):
        pass

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.local_image import LocalImage
from gkm.images.manifest import MAX_LAYERS
from gkm.images.pulling import entry, pull
from gkm.images.pulling.pull import PullStage
from gkm.images.reference import Reference
from gkm.images.registries import push as pushing
from support.images.archives import file, image_of_layers, tree
from support.images.cache_registry import LIMITS, Site, client_of
from support.registry import faults

MAX = 1 << 30
DATA = Path(__file__).parents[4] / "data"


def fetch(site: Site, layout: Layout, ref: Reference | None = None) -> entry.StoreEntry:
    image = cache.describe(site.client, ref or site.ref)
    return pull.fetch(site.client, image, layout, max_bytes=MAX)


def no_file_is_left(layout: Layout) -> bool:
    return not list(layout.work.iterdir()) and not list(layout.store.iterdir())


def pushed(site: Site, image: LocalImage) -> Reference:
    ref = site.ref.tagged("other")
    return ref.pinned(pushing.image(site.client, ref, image))


def test_a_real_cache_arrives_as_it_was(site: Site, layout: Layout) -> None:
    made = fetch(site, layout)
    original = {p.relative_to(DATA / "triton-cache"): p.read_bytes() for p in (DATA / "triton-cache").rglob("*.*")}
    content = layout.entry(made.digest) / "cache"
    assert {p.relative_to(content): p.read_bytes() for p in content.rglob("*.*")} == original
    assert made.files == len(original)
    assert made.size_bytes == sum(map(len, original.values()))
    assert not list(layout.work.iterdir())


def test_the_entry_is_sealed(site: Site, layout: Layout) -> None:
    content = layout.entry(fetch(site, layout).digest) / "cache"
    assert all(path.stat().st_mode & 0o222 == 0 for path in [content, *content.rglob("*")])


def test_a_second_fetch_sends_no_request(site: Site, layout: Layout) -> None:
    image = cache.describe(site.client, site.ref)
    first = pull.fetch(site.client, image, layout, max_bytes=MAX)
    site.real.requests.clear()
    assert pull.fetch(site.client, image, layout, max_bytes=MAX) == first
    assert site.real.requests == []


def test_progress_is_reported_in_order(site: Site, layout: Layout) -> None:
    reports: list[tuple[PullStage, int]] = []
    image = cache.describe(site.client, site.ref)
    pull.fetch(site.client, image, layout, max_bytes=MAX, progress=lambda *step: reports.append(step))
    assert reports == sorted(reports)
    assert {(PullStage.DOWNLOADING, 100), (PullStage.EXTRACTING, 100)} <= set(reports)


@pytest.mark.parametrize("stage", list(PullStage))
def test_the_progress_callback_can_end_a_pull(site: Site, layout: Layout, stage: PullStage) -> None:
    class CalledOff(Exception):
        pass

    def report(now: PullStage, _percent: int) -> None:
        if now is stage:
            raise CalledOff

    with pytest.raises(CalledOff):
        pull.fetch(site.client, cache.describe(site.client, site.ref), layout, max_bytes=MAX, progress=report)
    assert no_file_is_left(layout)


def test_an_image_that_mcv_built_is_accepted_as_it_is(site: Site, layout: Layout, mcv: LocalImage) -> None:
    made = fetch(site, layout, pushed(site, mcv))
    assert made.size_bytes == 80415
    assert (layout.entry(made.digest) / "cache" / "CHN6BLIJ7AJJRKY2IETERW2O7JXTFBUD3PH2WE3USNVKZEKXG64Q").is_dir()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (faults.tampered("manifests/sha256"), Reason.DIGEST_MISMATCH),
        (faults.tampered("blobs/"), Reason.DIGEST_MISMATCH),
        (faults.overlong("blobs/"), Reason.DIGEST_MISMATCH),
        (faults.truncated("blobs/", 100), Reason.REGISTRY_UNAVAILABLE),
        (faults.without_length("blobs/", cut_after=100), Reason.DIGEST_MISMATCH),
        (faults.wrong_length("blobs/", 10), Reason.DIGEST_MISMATCH),
        (faults.content_encoded("blobs/"), Reason.UNSAFE_CONTENT),
        (faults.status("blobs/", 500), Reason.REGISTRY_UNAVAILABLE),
        (faults.status("blobs/", 404), Reason.NOT_FOUND),
        (faults.status("blobs/", 403), Reason.UNAUTHORIZED),
        (faults.redirected("blobs/", "http://169.254.169.254/latest/meta-data"), Reason.NOT_ALLOWED),
        (faults.redirected("blobs/", "file:///etc/passwd"), Reason.NOT_ALLOWED),
    ],
    ids=lambda value: getattr(value, "path", str(value)) if not isinstance(value, Reason) else value.value,
)
def test_a_registry_that_misbehaves_costs_an_error_with_its_reason(
    site: Site, layout: Layout, fault: faults.Fault, reason: Reason
) -> None:
    site.real.misbehave(fault)
    with pytest.raises(GKMError) as caught:
        fetch(site.patient(), layout)
    assert caught.value.reason is reason
    assert no_file_is_left(layout)


@pytest.mark.parametrize(
    "fault",
    [faults.stalled("blobs/"), faults.stalled("blobs/", after=10), faults.dripping("blobs/", 1, 0.05)],
    ids=["silent", "stalled", "dripping"],
)
def test_a_registry_that_sends_no_end_costs_an_error_at_a_deadline(
    site: Site, layout: Layout, fault: faults.Fault
) -> None:
    site.real.misbehave(fault)
    # A download that goes on until its deadline is resumed, each time for as long.
    strict = replace(site, client=client_of(site.real, limits=replace(LIMITS, request=1.0)))
    with pytest.raises(GKMError) as caught:
        fetch(strict, layout)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
    assert no_file_is_left(layout)


def test_a_registry_that_is_busy_for_a_moment_is_retried(site: Site, layout: Layout) -> None:
    site.real.misbehave(faults.status("blobs/", 429, times=2), faults.status("manifests/", 503, times=1))
    assert fetch(site, layout).files


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (tree(file("io.triton.cache/x", b"", kind=b"2")), Reason.UNSAFE_CONTENT),
        (tree(("io.triton.cache/../../../etc/cron.d/x", b"")), Reason.UNSAFE_CONTENT),
        (gzip.compress(tree(("io.triton.cache/a", b"a")))[:-10], Reason.CONTENT_MISMATCH),
        (b"not an archive" * 100, Reason.CONTENT_MISMATCH),
        (tree(("somewhere/else", b"x")), Reason.CONTENT_MISMATCH),
        (b"", Reason.CONTENT_MISMATCH),
    ],
    ids=["link", "escape", "cut", "no archive", "no cache", "nothing"],
)
def test_content_that_is_hostile_leaves_nothing(site: Site, layout: Layout, layer: bytes, reason: Reason) -> None:
    with pytest.raises(GKMError) as caught:
        fetch(site, layout, pushed(site, image_of_layers(layer)))
    assert caught.value.reason is reason
    assert no_file_is_left(layout)


FIRST = tree(("io.triton.cache/K/a", b"1"), ("io.triton.manifest/manifest.json", b"{}"))


@pytest.mark.parametrize(
    "later",
    [
        tree(("io.triton.cache/K/a", b"2")),
        tree(("io.triton.cache/K", b"2")),
        tree(("io.triton.cache/K/.wh.a", b"")),
        tree(("io.triton.cache/K/.wh..wh..opq", b"")),
        tree(("io.triton.cache/.wh.K", b"")),
        tree(file("io.triton.cache/K", b"", kind=b"2")),
    ],
    ids=["kernel", "its directory", "whiteout", "opaque directory", "whiteout of a directory", "link"],
)
def test_a_later_layer_that_changes_an_earlier_one_leaves_nothing(site: Site, layout: Layout, later: bytes) -> None:
    with pytest.raises(GKMError) as caught:
        fetch(site, layout, pushed(site, image_of_layers(FIRST, later)))
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert no_file_is_left(layout)


def test_a_whiteout_of_the_whole_cache_removes_nothing(site: Site, layout: Layout) -> None:
    later = tree((".wh.io.triton.cache", b""), (".wh..wh..opq", b""), ("io.triton.manifest/.wh.manifest.json", b""))
    with pytest.raises(GKMError) as caught:
        fetch(site, layout, pushed(site, image_of_layers(FIRST, later)))
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert no_file_is_left(layout)


def test_limits_hold_over_all_layers_together(site: Site, layout: Layout) -> None:
    layers = [gzip.compress(tree((f"io.triton.cache/{number}", bytes(1 << 20)))) for number in range(3)]
    ref = pushed(site, image_of_layers(*layers))
    image = cache.describe(site.client, ref)
    with pytest.raises(GKMError) as caught:
        pull.fetch(site.client, image, layout, max_bytes=(3 << 20) - 1)
    assert caught.value.reason is Reason.TOO_LARGE
    assert no_file_is_left(layout)
    assert pull.fetch(site.client, image, layout, max_bytes=3 << 20).files == 3


def test_more_layers_than_captures_make_are_read_up_to_a_bound(site: Site, layout: Layout) -> None:
    """Images of other tools may have more than the 8 of a capture."""
    layers = [tree((f"io.triton.cache/{number}", b"x")) for number in range(MAX_LAYERS + 1)]
    assert fetch(site, layout, pushed(site, image_of_layers(*layers[:-1]))).files == MAX_LAYERS
    with pytest.raises(GKMError, match=f"has {MAX_LAYERS + 1} layers") as caught:
        fetch(site, layout, pushed(site, image_of_layers(*layers)))
    assert caught.value.reason is Reason.METADATA_INVALID


def test_a_description_of_entries_that_no_layer_has_makes_none(site: Site, layout: Layout) -> None:
    lying = json.dumps({"triton": [{"hash": "K", "backend": "cuda"}, {"hash": "ghost", "backend": "cuda"}]}).encode()
    made = fetch(site, layout, pushed(site, image_of_layers(FIRST, tree(("io.triton.manifest/manifest.json", lying)))))
    content = layout.entry(made.digest) / "cache"
    assert [path.relative_to(content).as_posix() for path in content.rglob("*")] == ["K", "K/a"]


def test_a_bomb_leaves_nothing(site: Site, layout: Layout) -> None:
    bomb = gzip.compress(tree(("io.triton.cache/zeros", bytes(64 << 20))))
    with pytest.raises(GKMError) as caught:
        fetch(site, layout, pushed(site, image_of_layers(bomb)))
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert no_file_is_left(layout)


def test_a_label_with_a_wrong_size_is_detected(site: Site, layout: Layout) -> None:
    lying = image_of_layers(tree(("io.triton.cache/a", b"abc")), labels={"cache.triton.image/cache-size-bytes": "4"})
    with pytest.raises(GKMError, match="cache of 4 bytes, it has 3") as caught:
        fetch(site, layout, pushed(site, lying))
    assert caught.value.reason is Reason.CONTENT_MISMATCH
    assert no_file_is_left(layout)


def test_an_image_that_lacks_one_of_its_caches_is_refused(site: Site, layout: Layout) -> None:
    """The variable of that runtime would name a directory that does not exist, which ends the program."""
    summary = '{"targets":[{"backend":"cuda","arch":"90","warp_size":32}]}'
    lacking = image_of_layers(
        tree(("io.triton.cache/a", b"abc"), ("io.vllm.manifest/manifest.json", b"{}")),
        labels={"cache.vllm.image/summary": summary, "gkm.io/caches": "vllm-triton"},
    )
    with pytest.raises(GKMError, match=r"holds no file in io\.vllm\.cache/: it is empty") as caught:
        fetch(site, layout, pushed(site, lacking))
    assert caught.value.reason is Reason.CONTENT_MISMATCH
    assert no_file_is_left(layout)


def test_an_image_beyond_the_limit_is_refused_before_a_byte_is_fetched(site: Site, layout: Layout) -> None:
    image = cache.describe(site.client, site.ref)
    site.real.requests.clear()
    with pytest.raises(GKMError) as caught:
        pull.fetch(site.client, image, layout, max_bytes=1000)
    assert caught.value.reason is Reason.TOO_LARGE
    assert not site.real.seen("GET", "blobs")


def index_of(site: Site, *platforms: str | None) -> Reference:
    """Push an index that names the site's image once for each platform."""
    image = {"mediaType": site.image.media_type, "digest": site.ref.target, "size": len(site.image.manifest)}
    manifests = [image | ({"platform": {"architecture": name, "os": "linux"}} if name else {}) for name in platforms]
    raw = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    ref = site.ref.tagged("index")
    return ref.pinned(pushing.manifest(site.client, ref, raw, "application/vnd.oci.image.index.v1+json"))


@pytest.mark.parametrize("platforms", [(None,), ("s390x", cache.host_platform().architecture), ("s390x", None)])
def test_the_image_of_an_index_for_this_machine_is_fetched(
    site: Site, layout: Layout, platforms: tuple[str | None, ...]
) -> None:
    ref = index_of(site, *platforms)
    made = fetch(site, layout, ref)
    assert made.digest == ref.digest
    assert made.files


@pytest.mark.parametrize("platforms", [(), ("s390x",), (None, None)])
def test_an_index_without_one_image_for_this_machine_is_refused(site: Site, platforms: tuple[str | None, ...]) -> None:
    with pytest.raises(GKMError, match=r"is an index with [02] images for linux/") as caught:
        cache.describe(site.client, index_of(site, *platforms))
    assert caught.value.reason is Reason.METADATA_INVALID


def test_an_index_in_an_index_is_refused(site: Site) -> None:
    inner = {"mediaType": site.image.media_type, "digest": index_of(site, None).target, "size": 1}
    raw = json.dumps({"schemaVersion": 2, "manifests": [inner]}).encode()
    digest = pushing.manifest(site.client, site.ref.tagged("outer"), raw, "application/vnd.oci.image.index.v1+json")
    with pytest.raises(GKMError, match="index of images"):
        cache.describe(site.client, site.ref.pinned(digest))


def test_a_loopback_registry_that_is_not_configured_is_refused(site: Site) -> None:
    from gkm.images.registries.registry import Registry  # noqa: PLC0415 -- the unconfigured one is the exception here

    with pytest.raises(GKMError, match="an address of this machine") as caught:
        Registry().manifest(site.ref)
    assert caught.value.reason is Reason.NOT_ALLOWED


def test_a_registry_outside_the_allow_list_is_refused(site: Site) -> None:
    with pytest.raises(GKMError, match="not among the allowed registries"):
        site.client_with(allow=["registry.example/*"]).manifest(site.ref)

"""Mirrors: what they get by containerd's protocol, and when the registry itself gets the request."""

import errno
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import BlobDownload, LocalImage
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import MAX_REFERRER_PAGES, Registry, is_mirror, path_at
from gkm.images.registries.transport import TransportLimits
from support.images.archives import blob_of
from support.images.cache_registry import PATIENT, Site, client_of
from support.images.mirrors import client_through, insists_on_namespace
from support.registry import faults
from support.registry.server import Registry as RealRegistry
from support.registry.store import OCI_INDEX, OCI_MANIFEST


@pytest.fixture
def mirror(site: Site, built: LocalImage) -> Iterator[RealRegistry]:
    """A mirror with the image of the site, which answers only requests that name the registry of the site."""
    with RealRegistry.start() as mirror:
        push.image(client_of(mirror), Reference.parse(f"{mirror.host}/{site.ref.repository}:1"), built)
        mirror.requests.clear()
        site.real.requests.clear()
        mirror.misbehave(insists_on_namespace(site.real.host))
        yield mirror


@pytest.mark.parametrize(
    ("host", "registry", "path", "expected"),
    [
        ("mirror.example", "registry.example:5000", "manifests/1", "manifests/1?ns=registry.example%3A5000"),
        ("mirror.example", "[fd00::1]:5000", "blobs/x", "blobs/x?ns=%5Bfd00%3A%3A1%5D%3A5000"),
        ("mirror.example", "docker.io", "blobs/x", "blobs/x?ns=docker.io"),
        ("mirror.example", "r.example", "referrers/x?n=2&last=b", "referrers/x?n=2&last=b&ns=r.example"),
        ("mirror.example", "r.example", "referrers/x?ns=evil.example&n=2&ns", "referrers/x?n=2&ns=r.example"),
        ("r.example", "r.example", "manifests/1", "manifests/1"),
        ("registry-1.docker.io", "docker.io", "manifests/1", "manifests/1"),
    ],
)
def test_only_a_mirror_gets_the_name_of_the_registry(host: str, registry: str, path: str, expected: str) -> None:
    assert path_at(host, registry, path) == expected
    assert is_mirror(host, registry) == (path != expected)


def test_every_read_of_a_mirror_names_the_registry(site: Site, mirror: RealRegistry) -> None:
    client = client_through(site, mirror)
    manifest = client.manifest(site.ref)
    assert client.resolve(Reference.parse(f"{site.real.host}/{site.ref.repository}:1")) == site.ref.digest
    layer = manifest.image().layers[0]
    assert client.small_blob(site.ref, layer, layer.size) == blob_of(site.image, layer.digest)
    assert site.real.requests == []
    assert len(mirror.requests) == 3
    assert all(request.path.endswith(f"?ns={site.real.host.replace(':', '%3A')}") for request in mirror.requests)


def test_the_registry_itself_never_gets_the_parameter(site: Site) -> None:
    with RealRegistry.start() as empty:
        client = client_through(site, empty)
        layer = client.manifest(site.ref).image().layers[0]
        assert client.small_blob(site.ref, layer, layer.size)
        assert client.referrers(site.ref) == []
        assert len(empty.requests) >= 3
    assert site.real.requests
    assert not any("ns=" in request.path for request in site.real.requests)


def attach(registry: RealRegistry, site: Site, *kinds: str) -> None:
    subject = {"mediaType": OCI_MANIFEST, "digest": site.ref.digest, "size": 1}
    for kind in kinds:
        registry.store.put_manifest(site.ref.repository, {"subject": subject, "artifactType": kind})


def test_the_pages_of_a_list_come_from_one_source(site: Site, mirror: RealRegistry) -> None:
    link = '</v2/x/referrers/y?last=a&ns=elsewhere>; rel="next"'
    raw = json.dumps({"manifests": [{"mediaType": "m", "digest": "sha256:" + "1" * 64, "size": 1}]}).encode()
    headers = {"Content-Type": OCI_INDEX, "Link": link}
    mirror.misbehave(faults.Fault("referrers/", lambda _: faults.Answer(200, headers, raw)))
    assert len(client_through(site, mirror).referrers(site.ref)) == MAX_REFERRER_PAGES
    namespace = urlencode({"ns": site.real.host})
    queries = [request.path.partition("?")[2] for request in mirror.seen("GET", "referrers/")]
    assert queries == [namespace, *[f"last=a&{namespace}"] * (MAX_REFERRER_PAGES - 1)]
    assert site.real.requests == []


def test_a_mirror_with_a_list_of_referrers_is_enough(site: Site, mirror: RealRegistry) -> None:
    attach(mirror, site, "application/a", "application/b")
    assert len(client_through(site, mirror).referrers(site.ref)) == 2
    assert site.real.requests == []


def test_a_mirror_without_a_list_of_referrers_does_not_hide_those_of_the_registry(
    site: Site, mirror: RealRegistry
) -> None:
    attach(site.real, site, "application/a")
    assert len(client_through(site, mirror).referrers(site.ref)) == 1
    assert mirror.seen("GET", "referrers/")


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_mirror_that_refuses_is_asked_once(site: Site, status: int) -> None:
    with RealRegistry.start() as mirror:
        mirror.misbehave(faults.status("", status))
        assert client_through(site, mirror).manifest(site.ref).digest == site.ref.digest
        assert len(mirror.requests) == 1


def test_a_busy_mirror_is_retried_before_the_registry_gets_its_load(site: Site, mirror: RealRegistry) -> None:
    mirror.behave()
    mirror.misbehave(faults.status("", 429, times=2))
    assert client_through(site, mirror).manifest(site.ref).digest == site.ref.digest
    assert len(mirror.requests) == 3
    assert site.real.requests == []


@pytest.mark.parametrize("path", ["manifests/", "blobs/"])
def test_a_mirror_that_hangs_leaves_the_registry_its_time(site: Site, mirror: RealRegistry, path: str) -> None:
    mirror.behave()
    mirror.misbehave(faults.stalled(path))
    client = client_through(site, mirror, TransportLimits(connect=10.0, stall=2.0, request=60.0))
    layer = client.within(120).manifest(site.ref).image().layers[0]
    assert client.within(120).small_blob(site.ref, layer, layer.size) == blob_of(site.image, layer.digest)
    assert len(mirror.seen("GET", path)) == 1


def test_a_mirror_gets_half_of_the_time_of_a_series(site: Site, mirror: RealRegistry) -> None:
    client = client_through(site, mirror, PATIENT).within(8)
    origin, through_mirror = client.deadline_at(site.real.host, site.ref), client.deadline_at(mirror.host, site.ref)
    assert origin - through_mirror == pytest.approx(4.0)


def test_the_mirrors_of_a_series_share_one_half_of_its_time(site: Site, mirror: RealRegistry) -> None:
    client = client_through(site, mirror, PATIENT)
    assert client.within(0).within(60).mirrors_have_time() is False
    series = client.within(60)
    assert series.mirrors_have_time()
    assert series.deadline_at(mirror.host, site.ref) == series.deadline_at(mirror.host, site.ref)
    assert series.within(60).deadline_at(mirror.host, site.ref) <= series.deadline_at(mirror.host, site.ref)


def test_a_series_whose_mirrors_have_no_time_reads_the_registry(site: Site, mirror: RealRegistry) -> None:
    client = client_through(site, mirror, TransportLimits(connect=10.0, stall=120.0, request=240.0)).within(10)
    mirror.behave()
    mirror.misbehave(faults.stalled(""))
    for _ in range(20):
        assert client.manifest(site.ref).digest == site.ref.digest
    assert len(site.real.seen("GET", "manifests/")) == 20


def test_a_download_that_breaks_off_at_the_mirror_resumes_at_the_registry(site: Site, mirror: RealRegistry) -> None:
    client = client_through(site, mirror)
    layer = client.manifest(site.ref).image().layers[0]
    mirror.behave()
    mirror.misbehave(faults.truncated("blobs/", 2000, times=1), faults.status("blobs/", 500))
    parts: list[bytes] = []
    client.blob(site.ref, BlobDownload(layer, parts.append))
    assert b"".join(parts) == blob_of(site.image, layer.digest)
    assert [request.headers.get("range") for request in site.real.seen("GET", "blobs/")] == ["bytes=2000-"]


def test_a_blob_that_ends_early_at_the_mirror_resumes_at_the_registry(site: Site, mirror: RealRegistry) -> None:
    client = client_through(site, mirror)
    layer = client.manifest(site.ref).image().layers[0]
    mirror.behave()
    mirror.misbehave(faults.tampered("blobs/", lambda body: body[:2000]))
    parts: list[bytes] = []
    client.blob(site.ref, BlobDownload(layer, parts.append))
    assert b"".join(parts) == blob_of(site.image, layer.digest)
    assert [request.headers.get("range") for request in site.real.seen("GET", "blobs/")] == ["bytes=2000-"]


def test_a_full_disk_is_no_reason_to_use_another_source(site: Site, mirror: RealRegistry) -> None:
    def refuse(_: bytes) -> None:
        raise GKMError(Reason.DISK_FULL, "no space") from OSError(errno.ENOSPC, "")

    client = client_through(site, mirror)
    layer = client.manifest(site.ref).image().layers[0]
    with pytest.raises(GKMError, match="no space"):
        client.blob(site.ref, BlobDownload(layer, refuse))
    assert site.real.requests == []


def test_without_mirrors_only_the_registry_is_read(site: Site, mirror: RealRegistry) -> None:
    client = client_through(site, mirror)
    assert client.has_mirrors(site.ref)
    assert not client.without_mirrors().has_mirrors(site.ref)
    assert client.without_mirrors().manifest(site.ref).digest == site.ref.digest
    assert mirror.requests == []


def test_a_mirror_of_another_registry_is_not_used(site: Site, mirror: RealRegistry) -> None:
    hosts = {
        "registry.example": RegistryHost(mirrors=[mirror.host]),
        site.real.host: RegistryHost(plain_http=True),
        mirror.host: RegistryHost(plain_http=True),
    }
    assert Registry(Registries(hosts=hosts), limits=PATIENT).manifest(site.ref).digest == site.ref.digest
    assert mirror.requests == []

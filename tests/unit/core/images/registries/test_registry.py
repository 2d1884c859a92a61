"""The client against a registry that demands credentials, breaks off, redirects, or is slow."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import BlobDownload, LocalImage
from gkm.images.manifest import Descriptor
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.auth import Login
from gkm.images.registries.registry import MAX_REFERRER_BYTES, MAX_REFERRER_PAGES, MAX_REFERRERS, Registry
from support.images.archives import blob_of
from support.images.cache_registry import LIMITS, Site, client_of
from support.images.unreached import unreached
from support.registry import faults
from support.registry.auth import Auth
from support.registry.push import Target
from support.registry.server import Registry as RealRegistry

SECRET = "s3cret-passw0rd"


class Fixed:
    """The same credentials for every registry, so that a leak is visible."""

    def logins(self, registry: str, repository: str) -> list[Login]:  # noqa: ARG002 -- the Protocol's names
        return [Login("robot", SECRET)]


def layer_of(site: Site) -> Descriptor:
    return site.client.manifest(site.ref).image().layers[0]


def fetched(client: Registry, ref: Reference, descriptor: Descriptor) -> bytes:
    parts: list[bytes] = []
    client.blob(ref, BlobDownload(descriptor, parts.append))
    return b"".join(parts)


@pytest.mark.parametrize("bearer", [True, False])
def test_credentials_open_a_private_repository(built: LocalImage, bearer: bool) -> None:  # noqa: FBT001 -- a column
    with RealRegistry.start(auth=Auth("robot", SECRET, bearer=bearer)) as real:
        config = Registries(hosts={real.host: RegistryHost(plain_http=True)})
        ref = Reference.parse(f"{real.host}/team/private:1")
        digest = push.image(Registry(config, Fixed(), LIMITS), ref, built)
        assert Registry(config, Fixed(), LIMITS).resolve(ref) == digest
        with pytest.raises(GKMError) as caught:
            Registry(config, limits=LIMITS).resolve(ref)
        assert caught.value.reason is Reason.UNAUTHORIZED
        assert SECRET not in str(caught.value)


def test_a_revoked_token_is_requested_again(built: LocalImage) -> None:
    auth = Auth("robot", SECRET)
    with RealRegistry.start(auth=auth) as real:
        client = Registry(Registries(hosts={real.host: RegistryHost(plain_http=True)}), Fixed(), LIMITS)
        ref = Reference.parse(f"{real.host}/team/private:1")
        digest = push.image(client, ref, built)
        auth.revoke()
        assert client.resolve(ref) == digest


def test_credentials_never_go_to_a_realm_on_another_host(built: LocalImage) -> None:
    with RealRegistry.start() as thief, RealRegistry.start(auth=Auth("robot", SECRET, realm=f"{thief.url}/t")) as real:
        client = Registry(Registries(hosts={real.host: RegistryHost(plain_http=True)}), Fixed(), LIMITS)
        with pytest.raises(GKMError) as caught:
            push.image(client, Reference.parse(f"{real.host}/team/x:1"), built)
        assert caught.value.reason is Reason.NOT_ALLOWED
        assert "authHosts" in caught.value.hint
        assert thief.requests == []


def test_credentials_do_not_follow_a_redirect_to_another_host(built: LocalImage) -> None:
    with RealRegistry.start() as other, RealRegistry.start(auth=Auth("robot", SECRET, bearer=False)) as real:
        hosts = {host: RegistryHost(plain_http=True) for host in (real.host, other.host)}
        client = Registry(Registries(hosts=hosts), Fixed(), LIMITS)
        ref = Reference.parse(f"{real.host}/team/x:1")
        pinned = ref.pinned(push.image(client, ref, built))
        layer = client.manifest(pinned).image().layers[0]
        elsewhere = Target(other.host, "team/x").blob(blob_of(built, layer.digest))
        real.misbehave(faults.redirected(f"blobs/{layer.digest}", f"{other.url}/v2/team/x/blobs/{elsewhere['digest']}"))
        with pytest.raises(GKMError, match="redirects to"):
            fetched(client, pinned, layer)  # loopback, as an address of a redirect, is refused
        assert not any("authorization" in request.headers for request in other.seen("GET", "blobs"))


def test_a_registry_with_its_own_authority_is_reached_when_that_is_configured(
    tmp_path: Path, built: LocalImage
) -> None:
    with RealRegistry.start(tls=tmp_path) as real:
        ref = Reference.parse(f"{real.host}/team/x:1")
        digest = push.image(client_of(real), ref, built)
        assert client_of(real).resolve(ref) == digest
        stranger = Registry(Registries(hosts={real.host: RegistryHost()}), limits=LIMITS)
        with unreached("certificate is not trusted"):
            stranger.resolve(ref)


def test_a_digest_is_no_way_around_the_registries_that_are_allowed() -> None:
    named = Reference.parse("elsewhere.example/team/x@sha256:" + "a" * 64)
    with pytest.raises(GKMError) as caught:
        Registry(Registries(allow=["registry.example"])).resolve(named)
    assert caught.value.reason is Reason.NOT_ALLOWED


def test_an_authority_that_cannot_be_read_is_named() -> None:
    config = Registries(hosts={"registry.example": RegistryHost(ca_file="/nowhere/ca.crt")})
    with unreached(r"/nowhere/ca\.crt cannot be read"):
        Registry(config).resolve(Reference.parse("registry.example/x:1"))


@pytest.mark.parametrize("times", [1, 3])
def test_a_blob_download_that_breaks_off_resumes(site: Site, times: int) -> None:
    layer = layer_of(site)
    site.real.misbehave(faults.truncated(f"blobs/{layer.digest}", 2000, times=times))
    assert fetched(site.client, site.ref, layer) == blob_of(site.image, layer.digest)
    asked = [request.headers.get("range") for request in site.real.seen("GET", f"blobs/{layer.digest}")]
    assert asked == [None, *(f"bytes={2000 * number}-" for number in range(1, times + 1))]


def test_a_blob_download_without_any_byte_fails(site: Site) -> None:
    layer = layer_of(site)
    site.real.misbehave(faults.truncated(f"blobs/{layer.digest}", 0))
    with pytest.raises(GKMError) as caught:
        fetched(site.client, site.ref, layer)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
    assert len(site.real.seen("GET", f"blobs/{layer.digest}")) <= 3


def test_another_part_than_the_requested_range_is_refused(site: Site) -> None:
    layer = layer_of(site)
    site.real.misbehave(
        faults.truncated(f"blobs/{layer.digest}", 2000, times=1),
        faults.Fault(f"blobs/{layer.digest}", faults.with_headers({"Content-Range": "bytes 5-9/10"})),
    )
    with pytest.raises(GKMError, match="another part than") as caught:
        fetched(site.client, site.ref, layer)
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_a_registry_without_ranges_sends_it_again_from_the_start(site: Site) -> None:
    layer = layer_of(site)
    body = blob_of(site.image, layer.digest)
    site.real.misbehave(
        faults.truncated(f"blobs/{layer.digest}", 2000, times=1),
        faults.Fault(f"blobs/{layer.digest}", lambda _: faults.Answer(200, {}, body)),
    )
    assert fetched(site.client, site.ref, layer) == body


def test_what_a_registry_without_ranges_sends_again_is_not_too_slow(site: Site) -> None:
    """The bytes that are there already did not count: their resume ended after 30 seconds, each time."""
    layer = layer_of(site)
    body, start = blob_of(site.image, layer.digest), layer.size - 100
    slow = faults.Fault(f"blobs/{layer.digest}", lambda _: faults.Answer(200, {}, body), drip=(layer.size // 30, 0.02))
    site.real.misbehave(slow)
    limits = replace(LIMITS, request=0.2, min_rate=layer.size // 10)
    parts: list[bytes] = []
    download = BlobDownload(layer, parts.append)
    download.resume([body[:start]])
    client_of(site.real, limits=limits).blob(site.ref, download)
    assert b"".join(parts) == body[start:]


def test_the_mirror_comes_first_and_the_registry_after_its_failure(site: Site, built: LocalImage) -> None:
    with RealRegistry.start() as mirror:
        hosts = {
            site.real.host: RegistryHost(plain_http=True, mirrors=[mirror.host]),
            mirror.host: RegistryHost(plain_http=True),
        }
        client = Registry(Registries(hosts=hosts), limits=LIMITS)
        assert client.manifest(site.ref).digest == site.ref.digest  # the mirror has nothing yet
        push.image(client_of(mirror), Reference.parse(f"{mirror.host}/{site.ref.repository}:1"), built)
        site.real.requests.clear()
        assert client.manifest(site.ref).digest == site.ref.digest
        assert site.real.requests == []
        mirror.misbehave(faults.status("manifests/", 500))
        assert client.manifest(site.ref).digest == site.ref.digest


@pytest.mark.parametrize("code", [301, 307, 308])
def test_a_redirect_loop_fails(site: Site, code: int) -> None:
    site.real.misbehave(faults.redirected("manifests/", f"/v2/{site.ref.repository}/manifests/x", code))
    with pytest.raises(GKMError, match="redirected more than"):
        site.client.manifest(site.ref)


def test_an_answer_whose_headers_drip_ends_at_the_deadline(site: Site) -> None:
    site.real.misbehave(faults.Fault("manifests/", drip_headers=(1, 0.1)))
    # Without the deadline the test would time out: a byte arrives before each stall timeout.
    with pytest.raises(GKMError) as caught:
        site.client.manifest(site.ref)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE


@pytest.mark.parametrize("address", ["http://127.1:{port}/x", "http://2130706433:{port}/x", "http://0:{port}/x"])
def test_an_address_of_this_machine_is_refused_however_it_is_spelt(site: Site, address: str) -> None:
    with RealRegistry.start() as inside:
        port = inside.host.rpartition(":")[2]
        site.real.misbehave(faults.redirected("manifests/", address.format(port=port)))
        with pytest.raises(GKMError) as caught:
            site.client.manifest(site.ref)
        assert caught.value.reason is Reason.NOT_ALLOWED
        assert inside.requests == []


@pytest.mark.parametrize("location", ["http://[::1/", "http://x:99999999/", "//["])
def test_an_address_that_is_none_is_an_error_with_a_reason(site: Site, location: str) -> None:
    site.real.misbehave(faults.redirected("manifests/", location))
    with pytest.raises(GKMError) as caught:
        site.client.manifest(site.ref)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE


@pytest.mark.parametrize("code", [400, 404, 405, 406, 501])
def test_without_the_referrers_api_the_fallback_tag_is_read(site: Site, code: int) -> None:
    site.real.misbehave(faults.status("referrers/", code))
    assert site.client.referrers(site.ref) == []
    assert site.real.seen("GET", f"manifests/{site.ref.target.replace(':', '-')}")


def test_one_entry_that_cannot_be_checked_does_not_hide_the_others(site: Site) -> None:
    good = {"mediaType": "m", "digest": "sha256:" + "1" * 64, "size": 1}
    bad = [good | {"digest": "sha512:" + "1" * 128}, good | {"size": -1}]
    raw = json.dumps({"schemaVersion": 2, "manifests": [*bad, good]}).encode()
    site.real.misbehave(faults.tampered("referrers/", lambda _: raw))
    assert [found.digest for found in site.client.referrers(site.ref)] == [good["digest"]]


def test_signatures_come_before_other_referrers(site: Site) -> None:
    entries = [{"mediaType": "m", "digest": f"sha256:{number:064x}", "size": 1} for number in range(70)]
    signature = entries[-1] | {"artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json"}
    raw = json.dumps({"schemaVersion": 2, "manifests": [*entries[:-1], signature]}).encode()
    site.real.misbehave(faults.tampered("referrers/", lambda _: raw))
    assert site.client.referrers(site.ref)[0].digest == signature["digest"]


def test_the_pages_of_a_list_of_referrers_are_followed_and_bounded(site: Site) -> None:
    raw = json.dumps({"manifests": [{"mediaType": "m", "digest": "sha256:" + "1" * 64, "size": 1}]}).encode()
    link = {"Content-Type": "application/vnd.oci.image.index.v1+json", "Link": '</v2/x/referrers/y?last=a>; rel="next"'}
    site.real.misbehave(faults.Fault("referrers/", lambda _: faults.Answer(200, link, raw)))
    assert len(site.client.referrers(site.ref)) == MAX_REFERRER_PAGES


PAGE = {"Content-Type": "application/vnd.oci.image.index.v1+json", "Link": '</v2/x/referrers/y?last=a>; rel="next"'}


def a_page(entries: int, padding: int = 0) -> faults.Fault:
    """Return this page for every request, each time with a link to another page."""
    listed = [{"mediaType": "m", "digest": f"sha256:{number:064x}", "size": 1} for number in range(entries)]
    raw = json.dumps({"manifests": listed, "padding": "x" * padding}).encode()
    return faults.Fault("referrers/", lambda _: faults.Answer(200, PAGE, raw))


def test_all_pages_of_referrers_together_have_a_limit_in_bytes(site: Site) -> None:
    site.real.misbehave(a_page(1, padding=MAX_REFERRER_BYTES // 2))
    with pytest.raises(GKMError, match="delete artifacts") as caught:
        site.client.referrers(site.ref)
    assert caught.value.reason is Reason.TOO_LARGE
    assert len(site.real.seen("GET", "referrers/")) == 2


def test_all_pages_of_referrers_together_have_a_limit_in_entries(site: Site) -> None:
    site.real.misbehave(a_page(MAX_REFERRERS // 2 + 1))
    with pytest.raises(GKMError, match="artifacts that are read") as caught:
        site.client.referrers(site.ref)
    assert caught.value.reason is Reason.TOO_LARGE
    assert len(site.real.seen("GET", "referrers/")) == 2


def test_the_fallback_tag_has_the_same_limits(site: Site) -> None:
    listed = [{"mediaType": "m", "digest": f"sha256:{number:064x}", "size": 1} for number in range(MAX_REFERRERS + 1)]
    for value in ({"manifests": listed}, {"manifests": [], "padding": "x" * MAX_REFERRER_BYTES}):
        raw = json.dumps(value).encode()
        site.real.behave()
        site.real.misbehave(
            faults.status("referrers/", 404),
            faults.Fault("manifests/sha256-", lambda _, raw=raw: faults.Answer(200, PAGE, raw)),  # type: ignore[misc]
        )
        with pytest.raises(GKMError) as caught:
            site.client.referrers(site.ref)
        assert caught.value.reason is Reason.TOO_LARGE

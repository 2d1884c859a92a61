"""The real distribution: push, fetch, resume, referrers by tag, and its two authentication schemes."""

import random
from collections.abc import Iterator

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.local_image import BlobDownload, LocalBlob, LocalImage
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.auth import Credentials
from gkm.images.registries.registry import Registry
from support.images.private_registry import keyring
from support.peers import require
from support.registry.auth import Auth
from support.registry.contract import Contract
from support.registry.distribution import PASSWORD, USER, Distribution
from support.registry.push import Target
from support.registry.relay import Relay
from support.registry.token_server import TokenServer

DATA = random.Random(11).randbytes(6 << 20)


def client(host: str, credentials: Credentials | None = None, *, tokens: str = "") -> Registry:
    hosts = {host: RegistryHost(plain_http=True, auth_hosts=[tokens] if tokens else [])}
    if tokens:
        hosts[tokens] = RegistryHost(plain_http=True)
    return Registry(Registries(hosts=hosts), credentials)


def at(host: str, repository: str) -> Reference:
    return Reference.parse(f"{host}/{repository}:1")


def test_a_cache_is_stored_and_fetched(distribution: Distribution, built: LocalImage, layout: Layout) -> None:
    ours, ref = client(distribution.host), at(distribution.host, "team/fetch")
    pinned = ref.pinned(push.image(ours, ref, built))
    assert ours.resolve(ref) == built.digest
    made = pull.fetch(ours, cache.describe(ours, pinned), layout, max_bytes=1 << 30)
    assert made.size_bytes == int(built.labels["cache.triton.image/cache-size-bytes"])


def test_an_existing_image_is_found_and_a_missing_one_is_reported(distribution: Distribution) -> None:
    ours, ref = client(distribution.host), at(distribution.host, "team/there")
    blob = LocalBlob.from_bytes(b"a blob", "")
    assert not ours.blob_exists(ref, blob.descriptor)
    push.blob(ours, ref, blob)
    assert ours.blob_exists(ref, blob.descriptor)
    with pytest.raises(GKMError) as caught:
        ours.resolve(ref)
    assert caught.value.reason is Reason.NOT_FOUND


def test_a_blob_download_resumes_in_the_middle(distribution: Distribution) -> None:
    ours, ref = client(distribution.host), at(distribution.host, "team/resume")
    blob = LocalBlob.from_bytes(DATA, "")
    push.blob(ours, ref, blob)
    parts: list[bytes] = []
    arrival = BlobDownload(blob.descriptor, parts.append)
    arrival.resume([DATA[:1_000_000]])
    ours.blob(ref, arrival)
    assert b"".join(parts) == DATA[1_000_000:]


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_an_upload_that_breaks_off_is_made_again(distribution: Distribution, share: float) -> None:
    blob = LocalBlob.from_bytes(DATA + f"broken at {share}".encode(), "")
    with Relay.start(distribution.host) as relay:
        relay.cuts = [int(len(DATA) * share)] * 2
        push.blob(client(relay.host), at(relay.host, f"team/broken-{int(share * 10)}"), blob)
    ref = at(distribution.host, f"team/broken-{int(share * 10)}")
    assert client(distribution.host).blob_exists(ref, blob.descriptor)


def test_the_referrers_of_an_image_are_found_by_the_fallback_tag(distribution: Distribution) -> None:
    target = Target(distribution.host, "team/referrers")
    subject = target.image([(b"layer", "application/x")], tag="1")
    note = Contract(distribution.host)._note(target, subject)
    ref = at(distribution.host, "team/referrers").pinned(subject)
    assert [found.digest for found in client(distribution.host).referrers(ref)] == [note]
    assert client(distribution.host).referrers(ref.pinned(note)) == []


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Distribution]:
    require.peer("distribution")
    with Distribution.start(tmp_path_factory.mktemp("htpasswd"), htpasswd=True) as running:
        yield running


def test_a_password_opens_it(basic: Distribution, built: LocalImage) -> None:
    ref = at(basic.host, "team/basic")
    right = {basic.host: {"username": USER, "password": PASSWORD}}
    wrong = {basic.host: {"username": USER, "password": "old"}}
    assert push.image(client(basic.host, keyring(wrong, right)), ref, built) == built.digest
    node = client(basic.host)
    assert node.with_credentials(keyring(right)).resolve(ref) == built.digest
    for other in (node, node.with_credentials(keyring(wrong))):
        with pytest.raises(GKMError) as caught:
            other.resolve(ref)
        assert caught.value.reason is Reason.UNAUTHORIZED


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    auth = Auth(USER, PASSWORD, identity_token="refresh")
    with TokenServer.start(auth, tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture(scope="module")
def by_token(tmp_path_factory: pytest.TempPathFactory, tokens: TokenServer) -> Iterator[Distribution]:
    require.peer("distribution")
    with Distribution.start(tmp_path_factory.mktemp("token"), token=tokens.section) as running:
        yield running


@pytest.mark.parametrize("login", [{"username": USER, "password": PASSWORD}, {"identitytoken": "refresh"}])
def test_a_token_of_another_server_opens_it(
    by_token: Distribution, tokens: TokenServer, built: LocalImage, login: dict[str, str], layout: Layout
) -> None:
    ours = client(by_token.host, keyring({by_token.host: login}), tokens=tokens.host)
    ref = at(by_token.host, f"team/{'-'.join(login)}")
    pinned = ref.pinned(push.image(ours, ref, built))
    tokens.requests.clear()
    assert pull.fetch(ours, cache.describe(ours, pinned), layout, max_bytes=1 << 30).files
    assert len(tokens.requests) == 1  # for the manifest; the blobs are under the same scope


def test_a_token_server_that_is_not_configured_gets_no_password(by_token: Distribution, tokens: TokenServer) -> None:
    tokens.requests.clear()
    ours = client(by_token.host, keyring({by_token.host: {"username": USER, "password": PASSWORD}}))
    with pytest.raises(GKMError, match="authHosts") as caught:
        ours.resolve(at(by_token.host, "team/x"))
    assert caught.value.reason is Reason.NOT_ALLOWED
    assert tokens.requests == []

"""What is published is signed, and a published version never changes; its files have one signed statement."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from gkm.images.signatures.attestations import attestations
from gkm.images.signatures.signature_formats import parse_bundle
from gkm.images.signatures.verify import Verifier
from gkm.images.signing.forms import ImageSigner
from releasing import files, layout, provenance, sbom, signing
from releasing.publishing import publish
from support.images.signers import private_key
from support.registry.clients import plain_client
from support.registry.server import Registry
from support.releases.release_files import VERSION, built, release_of

Publish = Callable[[Path], list[str]]
SIGNER = ImageSigner.by_key(private_key())
POLICY = Policy([SIGNER.key.public.pem.decode()])


@pytest.fixture
def registry_server() -> Iterator[Registry]:
    with Registry.start() as server:
        yield server


@pytest.fixture
def client(registry_server: Registry) -> Client:
    return plain_client(registry_server.host)


@pytest.fixture
def published(registry_server: Registry, client: Client) -> Publish:
    def run(release: Path) -> list[str]:
        return list(publish(release, VERSION, f"{registry_server.host}/team", client, lambda: SIGNER))

    return run


def tag(registry_server: Registry) -> Reference:
    return Reference.parse(f"{registry_server.host}/team/gkm-csi:{VERSION}")


def test_all_of_a_release_is_signed_and_a_repeat_adds_nothing(
    registry_server: Registry, client: Client, published: Publish, tmp_path: Path
) -> None:
    release = release_of(tmp_path)
    assert published(release) == published(release)
    index = client.resolve(tag(registry_server))
    assert index == layout.index_of(release / files.IMAGES / "gkm-csi")["digest"]
    images = [image.digest for image in layout.images(release / files.IMAGES / "gkm-csi")]
    for digest in (index, *images):
        ref = tag(registry_server).pinned(digest)
        assert Verifier(Verification(policies=[POLICY])).verify(client, ref, None).verified
        assert len(attestations(client, ref, provenance.PREDICATE)) == 1
        assert len(attestations(client, ref, sbom.PREDICATE)) == (digest in images)


def test_a_published_version_with_other_images_is_refused_and_stays(
    registry_server: Registry, client: Client, published: Publish, tmp_path: Path
) -> None:
    release = release_of(tmp_path)
    published(release)
    before = client.resolve(tag(registry_server))
    shutil.rmtree(release / files.IMAGES / "gkm-csi")
    built(release / files.IMAGES / "gkm-csi", urllib3="2.9.0")
    with pytest.raises(GKMError, match=f"published as {before}") as refused:
        published(release)
    assert refused.value.reason is Reason.NOT_ALLOWED
    assert client.resolve(tag(registry_server)) == before


def test_the_signer_is_requested_when_everything_is_stored(
    registry_server: Registry, client: Client, tmp_path: Path
) -> None:
    release = release_of(tmp_path)
    stored: list[str] = []

    def signer() -> ImageSigner:
        digest = layout.index_of(release / files.IMAGES / "gkm-csi")["digest"]
        stored.append(client.resolve(tag(registry_server).pinned(digest)))
        client.manifest(tag(registry_server).pinned(digest))
        return SIGNER

    list(publish(release, VERSION, f"{registry_server.host}/team", client, signer))
    assert len(stored) == 1


def test_the_files_on_github_have_checksums_by_their_names_and_one_signed_statement(tmp_path: Path) -> None:
    release = release_of(tmp_path)
    assets = files.assets(release, VERSION)
    flat = tmp_path / "flat"
    flat.mkdir()
    sums, bundle = signing.write(flat, assets, VERSION, SIGNER)
    for path in assets:
        shutil.copy(path, flat)
    lines = [line.partition("  ") for line in sums.read_text().splitlines()]
    listed = {name: digest for digest, _, name in lines}
    assert set(listed) == {path.name for path in flat.iterdir()} - {sums.name, bundle.name}
    assert {f"gkm-{VERSION}.tgz", f"gkm-manifests-{VERSION}.tgz", "install.yaml"} <= set(listed)
    assert all(hashlib.sha256((flat / name).read_bytes()).hexdigest() == digest for name, digest in listed.items())
    signature = parse_bundle(bundle.read_bytes(), signing.PREDICATE)
    assert SIGNER.key.public.verifies(signature.signature, signature.signed)
    subjects = {one["name"]: one["digest"]["sha256"] for one in json.loads(signature.payload or b"")["subject"]}
    assert subjects == listed | {sums.name: hashlib.sha256(sums.read_bytes()).hexdigest()}

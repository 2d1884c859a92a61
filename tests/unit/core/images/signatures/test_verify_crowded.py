"""A good signature among dozens of other artifacts: artifacts with the type of a signature are read first."""

import json
from collections.abc import Iterator

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import Reason
from gkm.images.local_image import LocalImage
from gkm.images.signatures.discovery import MAX_SIGNATURES
from gkm.images.signatures.signature_formats import SIGN_PREDICATE
from gkm.images.signatures.verify import Verdict, Verifier
from gkm.images.signing import sign
from gkm.images.signing.forms import ImageSigner
from support.images.cache_registry import Site, filled
from support.images.signers import private_key
from support.registry.push import Target
from support.registry.server import Registry
from support.registry.store import OCI_EMPTY, OCI_INDEX, OCI_MANIFEST
from support.sigstore.key_signatures import BUNDLE, SigningKey, attach_legacy, sign_bundle, sign_legacy

KEY = SigningKey()
PREDICATE = "dev.sigstore.bundle.predicateType"
PROVENANCE = "https://slsa.dev/provenance/v1"
BESIDE = MAX_SIGNATURES


@pytest.fixture(params=[True, False], ids=["referrers", "fallback tag"])
def crowded(request: pytest.FixtureRequest, built: LocalImage) -> Iterator[Site]:
    with Registry.start(referrers=request.param) as real:
        yield filled(real, built)


def target(site: Site) -> Target:
    return Target(site.real.host, site.ref.repository)


def verdict(site: Site) -> Verdict:
    policy = Policy(keys=[KEY.public_pem.decode()])
    return Verifier(Verification(policies=[policy])).verify(site.client, site.ref, "team")


def attach(site: Site, count: int, kind: str, annotations: dict[str, str]) -> None:
    """Attach so many artifacts other than signatures."""
    place = target(site)
    _, image = place.get(f"manifests/{site.ref.target}")
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": kind,
        "config": place.blob(b"{}", OCI_EMPTY),
        "layers": [place.blob(b"xx", "text/plain")],
        "subject": {"mediaType": OCI_MANIFEST, "size": len(image), "digest": site.ref.target},
    }
    for number in range(count):
        place.manifest({**manifest, "annotations": {**annotations, "number": str(number)}})


@pytest.mark.parametrize(
    ("kind", "annotations"),
    [
        pytest.param("application/spdx+json", {}, id="something else"),
        pytest.param("application/x-sigstore-like", {}, id="a name with sigstore in it"),
        pytest.param("application/vnd.oci.empty.v1+json", {}, id="empty"),
        pytest.param(BUNDLE, {PREDICATE: PROVENANCE}, id="attestations"),
    ],
)
def test_a_signature_counts_among_other_artifacts(crowded: Site, kind: str, annotations: dict[str, str]) -> None:
    attach(crowded, BESIDE, kind, annotations)
    sign_bundle(target(crowded), crowded.ref.target, KEY)
    found = verdict(crowded)
    assert found.verified is True, found.message


def test_attached_legacy_signatures_of_others_hide_no_bundle_and_no_tag(crowded: Site) -> None:
    place, digest = target(crowded), crowded.ref.target
    for _ in range(2):
        attach_legacy(place, digest, SigningKey(), more=MAX_SIGNATURES - 1)
    refused = verdict(crowded)
    assert (refused.verified, refused.reason) == (False, Reason.SIGNATURE_INVALID)
    assert (
        refused.findings[-1].reason == f"more signatures are attached to the image, only the first {BESIDE} were read"
    )
    assert len(refused.findings) == MAX_SIGNATURES + 1
    sign_legacy(place, digest, KEY)
    assert verdict(crowded).verified is True
    place.request("DELETE", f"/v2/{place.repository}/manifests/{digest.replace(':', '-')}.sig")
    sign_bundle(place, digest, KEY)
    assert verdict(crowded).verified is True


def test_an_attached_index_is_another_artifact_and_no_damaged_signature(crowded: Site) -> None:
    _, image = target(crowded).get(f"manifests/{crowded.ref.target}")
    subject = {"mediaType": OCI_MANIFEST, "size": len(image), "digest": crowded.ref.target}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [], "subject": subject}
    target(crowded).manifest(index, media_type=OCI_INDEX)
    found = verdict(crowded)
    assert (found.reason, found.findings) == (Reason.SIGNATURE_MISSING, ()), "the index was taken for a signature"


def test_attestations_beyond_the_limit_hide_no_signature(crowded: Site) -> None:
    attach(crowded, BESIDE + 40, BUNDLE, {PREDICATE: PROVENANCE})
    sign_bundle(target(crowded), crowded.ref.target, KEY)
    assert verdict(crowded).verified is True


def test_an_entry_of_the_command_line_in_the_fallback_tag_has_its_artifact_type(built: LocalImage) -> None:
    with Registry.start(referrers=False) as real:
        site = filled(real, built)
        sign.sign(site.client, site.ref, ImageSigner.by_key(private_key()))
        _, index = target(site).get(f"manifests/{site.ref.target.replace(':', '-')}")
    (entry,) = json.loads(index)["manifests"]
    assert entry["annotations"][PREDICATE] == SIGN_PREDICATE

"""The real Kyverno decides by our example about provenance, image volumes and references without a digest."""

import pytest
from gkm.images.reference import Reference
from support.images import kyverno
from support.operator.deployment import cache
from support.registry.push import Target
from support.sigstore.attestations import attach, attach_legacy, statement
from support.sigstore.key_signatures import SigningKey, sign_bundle
from support.sigstore.kyverno import Kyverno

pytestmark = pytest.mark.heavy

OURS, THEIRS = SigningKey(), SigningKey()
BUILDER = "https://ci.example/builder"
NO_PROVENANCE = ["the image of this cache has no provenance of our builder"]


def target(ref: Reference) -> Target:
    return Target(ref.registry, ref.repository)


def provenance(ref: Reference, builder: str = BUILDER) -> bytes:
    return statement(ref.target, {"runDetails": {"builder": {"id": builder}}})


def refusals(ref: Reference, controller: Kyverno) -> list[str]:
    policy = kyverno.policy_for(kyverno.PROVENANCE, str(target(ref)), OURS)
    return controller.refusals(cache("one", str(ref), "team"), policy)


def test_provenance_of_the_builder_by_the_signer_is_required(ref: Reference, kyverno_cli: Kyverno) -> None:
    assert refusals(ref, kyverno_cli) == NO_PROVENANCE
    attach(target(ref), ref.target, provenance(ref, "https://other.example/builder"), OURS)
    assert refusals(ref, kyverno_cli) == NO_PROVENANCE
    attach(target(ref), ref.target, provenance(ref), THEIRS)
    assert refusals(ref, kyverno_cli) == NO_PROVENANCE


def test_provenance_of_the_builder_is_enough(ref: Reference, kyverno_cli: Kyverno) -> None:
    attach(target(ref), ref.target, provenance(ref), OURS)
    assert refusals(ref, kyverno_cli) == []


def test_kyverno_takes_no_legacy_attestation_without_a_log_entry(ref: Reference, kyverno_cli: Kyverno) -> None:
    attach_legacy(target(ref), ref.target, [provenance(ref)], OURS)
    assert refusals(ref, kyverno_cli) == NO_PROVENANCE


def test_a_reference_without_a_digest_is_refused(ref: Reference, kyverno_cli: Kyverno) -> None:
    sign_bundle(target(ref), ref.target, OURS)
    policy = kyverno.policy_for(kyverno.SIGNERS, str(target(ref)), OURS)
    (reason,) = kyverno_cli.refusals(cache("one", f"{target(ref)}:1", "team"), policy)
    assert reason.endswith("does not have a digest")


@pytest.mark.parametrize("key", [OURS, THEIRS], ids=["ours", "another key"])
def test_the_image_of_a_volume_needs_the_signer(key: SigningKey, ref: Reference, kyverno_cli: Kyverno) -> None:
    sign_bundle(target(ref), ref.target, key)
    policy = kyverno.policy_for(kyverno.VOLUMES, str(target(ref)), OURS)
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "cache", "image": {"reference": str(ref)}}]
    spec = {"containers": [{"name": "main", "image": "registry.test/main:1"}], "volumes": volumes}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "team"}, "spec": spec}
    expected = [] if key is OURS else ["no trusted signer has signed the image of this volume"]
    assert kyverno_cli.refusals(pod, policy) == expected

"""What must not be used is refused at admission, and by the agent on its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.images.reference import Reference
from support.cluster.cluster import KubectlFailed
from support.cluster.installation import WEBHOOKS
from support.e2e.fleet import SILENT, Fleet
from support.kube.our_kinds import status_writer
from support.registry.push import Target
from support.sigstore.cosign import Cosign
from support.sigstore.key_signatures import Flaw, SigningKey, sign_bundle, sign_legacy

WRONG = ["unsigned", "other key", "flipped bundle", "other subject", "flipped legacy"]


def wrong_image(fleet: Fleet, kind: str, tmp_path: Path) -> Reference:
    image = fleet.image("wrong", signed=False)
    target = Target(image.registry, image.repository)
    if kind == "other key":
        Cosign.create(tmp_path / "other").sign(str(image))
    elif kind == "flipped bundle":
        sign_bundle(target, image.target, SigningKey(), Flaw.FLIPPED_PAYLOAD)
    elif kind == "other subject":
        sign_bundle(target, image.target, SigningKey(), Flaw.OTHER_SUBJECT)
    elif kind == "flipped legacy":
        sign_legacy(target, image.target, SigningKey(), Flaw.FLIPPED_SIGNATURE)
    return image


@pytest.mark.parametrize("kind", WRONG)
def test_admission_refuses_it_and_says_what_was_looked_for_and_found(
    fleet: Fleet, namespace: str, kind: str, tmp_path: Path
) -> None:
    image = wrong_image(fleet, kind, tmp_path)
    with pytest.raises(KubectlFailed) as refusal:
        fleet.declare("wrong", namespace, image)
    assert "needs a signature by key" in refusal.value.stderr
    assert ("no signature was found" if kind == "unsigned" else "; found ") in refusal.value.stderr


@pytest.fixture
def without_webhooks(fleet: Fleet) -> Iterator[None]:
    """Our webhook is away, as when somebody removed it."""
    kept = fleet.kubectl("get", "validatingwebhookconfiguration", WEBHOOKS, "-o", "json")
    fleet.kubectl("delete", "validatingwebhookconfiguration", WEBHOOKS)
    fleet.until(lambda: not fleet.gkm.admission_judges(), "the API server to forget our webhook")
    yield
    fleet.cluster.kubectl("create", "-f", "-", input=kept)
    fleet.until(fleet.gkm.admission_judges, "the API server to ask our webhook again")


@pytest.mark.usefixtures("without_webhooks")
@pytest.mark.parametrize("kind", ["unsigned", "other key"])
def test_what_slipped_past_admission_gains_nothing(fleet: Fleet, namespace: str, kind: str, tmp_path: Path) -> None:
    image = wrong_image(fleet, kind, tmp_path)
    fleet.declare("wrong", namespace, image)
    fleet.until(lambda: fleet.condition("wrong", namespace, "Verified").get("status") == "False", "a verdict")
    verified = fleet.condition("wrong", namespace, "Verified")
    assert verified["reason"] == ("SignatureMissing" if kind == "unsigned" else "SignatureInvalid")
    assert "needs a signature by key" in verified["message"]
    fleet.pod("user", namespace, "true", cacheName="wrong")
    fleet.refused_mount("user", namespace, saying="needs a signature by key")
    # The mount is answered from the node's disk; the API hears of it with the agent's next report.
    fleet.reaches("wrong", namespace, "Failed")


@pytest.mark.usefixtures("without_webhooks")
def test_the_agent_refuses_on_its_own_what_a_lying_status_calls_verified(fleet: Fleet, namespace: str) -> None:
    image = fleet.image("lied-about", signed=False)
    fleet.kill("controllers")
    try:
        fleet.declare("wrong", namespace, image)
        lie = (
            f'{{"status":{{"image":"{image}","resolvedDigest":"{image.target}","conditions":[{{"type":"Verified",'
            '"status":"True","reason":"CosignSuccess","message":"a lie","lastTransitionTime":"2026-01-01T00:00:00Z",'
            '"observedGeneration":1}]}}'
        )
        patch = ("--subresource=status", "--type=merge", f"--patch={lie}")
        words = ("patch", "gkmcache", "wrong", "-n", namespace, *patch)
        with pytest.raises(KubectlFailed) as refusal:
            fleet.kubectl(*words)
        assert "writes the status of a cache" in refusal.value.stderr
        fleet.cluster.kubectl(*words, kubeconfig=status_writer(fleet.cluster))
        said = fleet.reaches("wrong", namespace, "Failed")
        assert said["reason"] == "SignatureMissing"
        assert "no signature was found" in said["message"]
    finally:
        fleet.gkm.run("controllers")


def test_what_is_no_image_is_refused(fleet: Fleet, namespace: str) -> None:
    for text, words in (
        ("https://registry.example/x", "without a scheme"),
        (f"{fleet.olareg.host}/nothing/here:1", "does not exist"),
        ("registry.example/UPPER", "is not an image reference"),
    ):
        with pytest.raises(KubectlFailed) as refusal:
            fleet.declare("wrong", namespace, text)
        assert words in refusal.value.stderr


def test_a_registry_that_does_not_answer_is_no_refusal_and_nothing_is_pulled(fleet: Fleet, namespace: str) -> None:
    fleet.declare("later", namespace, f"{SILENT}/team/cache:1")  # it would raise KubectlFailed
    fleet.until(lambda: fleet.condition("later", namespace, "Verified"), "a verdict")
    verified = fleet.condition("later", namespace, "Verified")
    assert (verified["status"], verified["reason"]) == ("Unknown", "RegistryUnavailable")
    assert "resolvedDigest" not in fleet.cluster.get("gkmcache", "later", namespace)["status"]
    assert fleet.on_node("later", namespace).get("state") in (None, "Pending")

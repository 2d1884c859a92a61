"""The real kube-apiserver calls the real webhook process; the tests read kubectl's output."""

from collections.abc import Iterator

import pytest
from support.cluster.cluster import Cluster
from support.operator.deployment import Shelf, cache
from support.operator.judged import NAMESPACE, Judged, judged
from support.sigstore.key_signatures import Flaw


@pytest.fixture(scope="module")
def webhook(gkm_cluster: Cluster, images: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    with judged(gkm_cluster, images, tmp_path_factory.mktemp("admission"), "adm", images.config()) as running:
        yield running


def test_a_signed_image_is_admitted_without_a_warning(webhook: Judged) -> None:
    for bundle in (False, True):
        image, _ = webhook.images.push(f"good-{bundle}".lower(), bundle=bundle)
        code, said = webhook.apply(cache(f"adm-good-{bundle}".lower(), image, NAMESPACE))
        assert (code, "Warning" in said) == (0, False), said


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        (None, "SignatureMissing"),
        (Flaw.WRONG_KEY, "SignatureInvalid"),
        (Flaw.FLIPPED_PAYLOAD, "SignatureInvalid"),
        (Flaw.OTHER_SUBJECT, "SignatureInvalid"),
        (Flaw.MISSING, "Signature"),
    ],
)
@pytest.mark.parametrize("namespace", [NAMESPACE, None])
def test_an_image_without_a_valid_signature_is_refused_in_one_sentence(
    webhook: Judged, flaw: Flaw | None, reason: str, namespace: str | None
) -> None:
    image, digest = webhook.images.push(f"bad-{flaw}".lower().replace("flaw.", ""), flaw=flaw)
    code, said = webhook.apply(cache("adm-bad", image, namespace))
    assert code == 1
    assert f"image {image} is refused ({reason}" in said
    assert digest in said
    assert "needs a signature by key" in said
    assert len(said.strip().splitlines()) == 1


def test_an_image_that_is_not_there_is_refused(webhook: Judged) -> None:
    code, said = webhook.apply(cache("adm-none", f"{webhook.images.registry.host}/team/none:1", NAMESPACE))
    assert code == 1
    assert "(NotFound)" in said


def test_an_image_of_a_registry_that_is_away_is_admitted_with_a_warning(webhook: Judged) -> None:
    code, said = webhook.apply(cache("adm-away", f"{webhook.images.closed_port}/team/any:1", NAMESPACE))
    assert code == 0, said
    assert "Warning: image" in said
    assert "not verified yet" in said


def test_a_dry_run_is_reviewed_and_creates_nothing(webhook: Judged) -> None:
    good, _ = webhook.images.push("dry-good")
    bad, _ = webhook.images.push("dry-bad", flaw=None)
    assert webhook.apply(cache("adm-dry", good, NAMESPACE), "--dry-run=server")[0] == 0
    assert webhook.apply(cache("adm-dry", bad, NAMESPACE), "--dry-run=server")[0] == 1
    assert not webhook.cluster.exists("gkmcache", "adm-dry", NAMESPACE)


def test_an_update_is_reviewed_only_when_it_names_another_image(webhook: Judged) -> None:
    image, _ = webhook.images.push("moving")
    assert webhook.apply(cache("adm-update", image, NAMESPACE))[0] == 0
    webhook.images.push("moving", flaw=None, salt="the tag moved to something unsigned")
    labelled = cache("adm-update", image, NAMESPACE, labels={"a": "1"})
    assert webhook.apply(labelled) == (0, "gkmcache.gkm.io/adm-update configured\n")
    other, _ = webhook.images.push("moving-other", flaw=None)
    assert webhook.apply(cache("adm-update", other, NAMESPACE))[0] == 1


def test_an_update_back_to_an_admitted_image_is_reviewed_with_the_present_digest_of_its_tag(
    webhook: Judged,
) -> None:
    first, _ = webhook.images.push("there-and-back")
    second, _ = webhook.images.push("there-and-back-else")
    for image in (first, second, first, second):
        assert webhook.apply(cache("adm-back", image, NAMESPACE))[0] == 0
    webhook.images.push("there-and-back", flaw=None, salt="the tag moved to something unsigned")
    code, said = webhook.apply(cache("adm-back", first, NAMESPACE))
    assert (code, "(SignatureMissing)" in said) == (1, True)
    assert webhook.cluster.get("gkmcache", "adm-back", NAMESPACE)["spec"]["image"] == second


def test_an_object_that_is_being_deleted_loses_its_finalizers(webhook: Judged) -> None:
    image, _ = webhook.images.push("going")
    assert webhook.apply(cache("adm-going", image, NAMESPACE, finalizers=["test.gkm.io/x"]))[0] == 0
    webhook.images.push("going", flaw=None, salt="gone bad")
    cluster = webhook.cluster
    cluster.objects.ask_to_delete("gkmcache", "adm-going", NAMESPACE)
    cluster.objects.merge("gkmcache", "adm-going", {"metadata": {"finalizers": None}}, NAMESPACE)
    cluster.until(lambda: not cluster.exists("gkmcache", "adm-going", NAMESPACE), "it is gone")


def test_the_schema_refuses_invalid_objects_before_the_webhook(webhook: Judged) -> None:
    code, said = webhook.apply(cache("schema-scheme", "https://registry.test/team/cache:1", NAMESPACE))
    assert (code, "without a scheme" in said) == (1, True)
    code, said = webhook.apply(cache("schema-space", "registry.test/team cache:1", NAMESPACE))
    assert (code, "spec.image" in said) == (1, True)


def test_only_the_status_subresource_writes_status(webhook: Judged) -> None:
    image, _ = webhook.images.push("forged")
    forged = cache("adm-forged", image, NAMESPACE) | {"status": {"resolvedDigest": "sha256:" + "0" * 64}}
    assert webhook.apply(forged)[0] == 0
    assert "status" not in webhook.cluster.get("gkmcache", "adm-forged", NAMESPACE)

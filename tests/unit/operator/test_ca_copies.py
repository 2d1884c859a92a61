"""The controllers' copies of what admission published, against an API in memory."""

import base64

import pytest
from gkm.api.installation import ADMISSION_CA, ADMISSION_CA_KEY
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm_operator.admission.certificates import make
from gkm_operator.webhooks import CaCopies, WebhookConfiguration
from support.kube.fake_api import FakeApi
from support.operator.webhook_configurations import NAME, NOW, a_configuration, an_api, copy, trusted, writes

AUTHORITIES = [make(["x"], NOW).authority.decode() for _ in range(2)]


def publish(api: FakeApi, data: object) -> None:
    value = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ADMISSION_CA, "namespace": DEFAULT_NAMESPACE},
    }
    api.apply(CONFIGMAPS, value | {"data": data}, field_manager="x")


def test_every_webhook_of_every_configuration_gets_what_was_published() -> None:
    api = an_api("", "%%%")
    api.create(MUTATING_WEBHOOKS, a_configuration("", "") | {"kind": MUTATING_WEBHOOKS.kind})
    publish(api, {ADMISSION_CA_KEY: "".join(AUTHORITIES)})
    copy(api, WebhookConfiguration(NAME), WebhookConfiguration(NAME, MUTATING_WEBHOOKS))
    for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
        found = api.get(resource, NAME)["webhooks"]
        assert [base64.b64decode(hook["clientConfig"]["caBundle"]) for hook in found] == [
            "".join(AUTHORITIES).encode()
        ] * 2
        assert {hook["clientConfig"]["url"] for hook in found} == {"https://x"}


def test_a_ca_that_is_published_no_more_leaves_the_configurations() -> None:
    api = an_api()
    for published in ("".join(AUTHORITIES), AUTHORITIES[0]):
        publish(api, {ADMISSION_CA_KEY: published})
        copy(api)
    assert len(trusted(api)) == 1


@pytest.mark.parametrize("text", [None, "", "no certificate", "deleted"])
def test_without_a_published_certificate_no_ca_is_taken_away(text: str | None) -> None:
    api = an_api()
    publish(api, {ADMISSION_CA_KEY: AUTHORITIES[0]})
    copy(api)
    if text == "deleted":
        api.delete(CONFIGMAPS, ADMISSION_CA, DEFAULT_NAMESPACE)
    else:
        api.merge(CONFIGMAPS, ADMISSION_CA, {"data": {ADMISSION_CA_KEY: text}}, DEFAULT_NAMESPACE)
    copy(api)
    assert len(trusted(api)) == 1


def test_a_copy_reads_only_the_config_map_until_a_repair_is_due() -> None:
    api, seconds = an_api(), [0.0]
    publish(api, {ADMISSION_CA_KEY: AUTHORITIES[0]})
    copies = CaCopies(
        api, [WebhookConfiguration(NAME)], namespace=DEFAULT_NAMESPACE, repair_seconds=60, elapsed=lambda: seconds[0]
    )
    copies.copy()
    api.calls.clear()
    copies.copy()
    assert {plural for _, plural, _ in api.calls} == {CONFIGMAPS.plural}
    api.delete(VALIDATING_WEBHOOKS, NAME)
    api.create(VALIDATING_WEBHOOKS, a_configuration(""))
    seconds[0] = 60.0
    copies.copy()
    assert len(trusted(api)) == 1
    publish(api, {ADMISSION_CA_KEY: "".join(AUTHORITIES)})
    copies.copy()
    assert len(trusted(api)) == 2


def test_a_conflict_is_tried_again_by_the_next_copy() -> None:
    api = an_api()
    publish(api, {ADMISSION_CA_KEY: AUTHORITIES[0]})
    api.fault = lambda verb, _: ApiError(409, "Conflict", "") if verb == "merge" else None
    copies = CaCopies(api, [WebhookConfiguration(NAME)], namespace=DEFAULT_NAMESPACE)
    with pytest.raises(ApiError, match="Conflict"):
        copies.copy()
    api.fault = lambda _verb, _plural: None
    copies.copy()
    assert (len(trusted(api)), writes(api)) == (1, 2)


def test_a_process_that_ends_at_once_has_copied() -> None:
    api = an_api()
    publish(api, {ADMISSION_CA_KEY: AUTHORITIES[0]})
    copies = CaCopies(api, [WebhookConfiguration(NAME)], namespace=DEFAULT_NAMESPACE)
    copies.work()
    copies.close()
    assert len(trusted(api)) == 1

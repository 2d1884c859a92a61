"""Telling the API server of our CAs, against an API in memory."""

import base64

import pytest
from cryptography import x509
from gkm.kube.errors import ApiError
from gkm.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Json, Resource
from gkm_operator.admission.certificates.issue import make
from gkm_operator.admission.certificates.webhook_ca import WebhookConfiguration, trust, trust_patch
from support.kube.fake_api import FakeApi
from support.operator.webhook_configurations import NAME, NOW, a_configuration, an_api, trusted, writes

CONFIGURATION = WebhookConfiguration(NAME)


def test_the_ca_is_written_once_and_to_every_webhook() -> None:
    api = an_api("", "%%%")
    authority = make(["x"], NOW).authority
    assert [trust(api, CONFIGURATION, [authority], NOW) for _ in range(3)] == [False, True, True]
    assert trusted(api) == [x509.load_pem_x509_certificate(authority)]
    found = api.get(VALIDATING_WEBHOOKS, NAME)
    assert found["webhooks"][0]["clientConfig"]["url"] == "https://x"
    assert trust_patch(found, [authority], NOW) is None
    assert writes(api) == 1


def test_a_conflict_is_tried_again_and_not_for_ever() -> None:
    api = an_api()
    authority = make(["x"], NOW).authority
    conflicts = iter([ApiError(409, "Conflict", "")] * 2)
    api.fault = lambda verb, _: next(conflicts, None) if verb == "merge" else None
    trust(api, CONFIGURATION, [authority], NOW)
    assert len(trusted(api)) == 1
    api.fault = lambda verb, _: ApiError(409, "Conflict", "") if verb == "merge" else None
    with pytest.raises(ApiError, match="Conflict"):
        trust(api, CONFIGURATION, [make(["x"], NOW).authority], NOW)
    with pytest.raises(ApiError) as caught:
        trust(api, WebhookConfiguration("none"), [authority], NOW)
    assert caught.value.not_found


def test_replicas_that_write_at_once_lose_no_ca() -> None:
    api = an_api("", "")
    authorities = [make(["x"], NOW).authority for _ in range(5)]
    between = iter(authorities[1:])

    def another_was_first(verb: str, _: str) -> None:
        """Write another replica's CA between our read and our write."""
        if verb == "merge" and (other := next(between, None)):
            trust(api, CONFIGURATION, [other], NOW)

    api.fault = another_was_first
    trust(api, CONFIGURATION, authorities[:1], NOW)
    assert set(trusted(api)) == {x509.load_pem_x509_certificate(one) for one in authorities}


@pytest.mark.parametrize(
    ("text", "resource"),
    [("x", VALIDATING_WEBHOOKS), ("validating/x", VALIDATING_WEBHOOKS), ("mutating/x", MUTATING_WEBHOOKS)],
)
def test_a_configuration_is_named_with_its_kind(text: str, resource: Resource[Json]) -> None:
    assert WebhookConfiguration.parse(text) == WebhookConfiguration("x", resource)


@pytest.mark.parametrize("text", ["", "mutating/", "another/x", "a/b/c"])
def test_another_text_names_no_configuration(text: str) -> None:
    with pytest.raises(ValueError, match="mutating/NAME"):
        WebhookConfiguration.parse(text)


def test_the_ca_is_written_into_mutating_configurations_too() -> None:
    api = FakeApi()
    api.create(MUTATING_WEBHOOKS, a_configuration("", "") | {"kind": MUTATING_WEBHOOKS.kind})
    authority = make(["x"], NOW).authority
    assert not trust(api, WebhookConfiguration(NAME, MUTATING_WEBHOOKS), [authority], NOW)
    bundles = {hook["clientConfig"]["caBundle"] for hook in api.get(MUTATING_WEBHOOKS, NAME)["webhooks"]}
    assert [base64.b64decode(one) for one in bundles] == [authority]

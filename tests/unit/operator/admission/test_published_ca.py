"""Publishing our CAs, against an API in memory."""

import pytest
from cryptography import x509
from gkm.api.installation import ADMISSION_CA, ADMISSION_CA_KEY
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm_operator.admission.certificates import distrusting, make, publish
from gkm_operator.webhooks import WebhookConfiguration
from support.kube.fake_api import FakeApi
from support.operator.webhook_configurations import NAME, NOW, an_api, copy, published, trusted, writes

CONFIGURATION = WebhookConfiguration(NAME)


def tell(api: FakeApi, *authorities: bytes) -> bool:
    return publish(api, DEFAULT_NAMESPACE, [CONFIGURATION], authorities, NOW)


def test_a_ca_is_published_once_and_the_configuration_is_not_written() -> None:
    api = an_api("", "%%%")
    authority = make(["x"], NOW).authority
    assert [tell(api, authority) for _ in range(3)] == [False, True, True]
    assert published(api) == [x509.load_pem_x509_certificate(authority)]
    assert writes(api) == 0
    assert distrusting(api, [CONFIGURATION], [authority]) == [CONFIGURATION]
    copy(api)
    assert distrusting(api, [CONFIGURATION], [authority]) == []


def test_a_conflict_is_tried_again_and_not_for_ever() -> None:
    api = an_api()
    tell(api, make(["x"], NOW).authority)
    conflicts = iter([ApiError(409, "Conflict", "")] * 2)
    api.fault = lambda verb, _: next(conflicts, None) if verb == "merge" else None
    tell(api, make(["x"], NOW).authority)
    assert len(published(api)) == 2
    api.fault = lambda verb, _: ApiError(409, "Conflict", "") if verb == "merge" else None
    with pytest.raises(ApiError, match="Conflict"):
        tell(api, make(["x"], NOW).authority)


def test_replicas_that_write_at_once_lose_no_ca() -> None:
    api = an_api("", "")
    authorities = [make(["x"], NOW).authority for _ in range(6)]
    tell(api, authorities[5])
    between = iter(authorities[1:5])

    def another_was_first(verb: str, _: str) -> None:
        """Write another replica's CA between our read and our write."""
        if verb == "merge" and (other := next(between, None)):
            tell(api, other)

    api.fault = another_was_first
    tell(api, authorities[0])
    assert set(published(api)) == {x509.load_pem_x509_certificate(one) for one in authorities}


def test_a_lost_config_map_is_made_again_with_the_cas_that_serve() -> None:
    api = an_api()
    first, second = (make(["x"], NOW).authority for _ in range(2))
    for authority in (first, second):
        tell(api, authority)
    copy(api)
    api.delete(CONFIGMAPS, ADMISSION_CA, DEFAULT_NAMESPACE)
    tell(api, second)
    copy(api)
    assert distrusting(api, [CONFIGURATION], [first, second]) == []


def test_an_emptied_config_map_forgets_a_foreign_ca() -> None:
    """As the runbook of admission does after a theft."""
    api = an_api()
    ours, foreign = (make(["x"], NOW).authority for _ in range(2))
    for authority in (ours, foreign):
        tell(api, authority)
    copy(api)
    api.merge(CONFIGMAPS, ADMISSION_CA, {"data": {ADMISSION_CA_KEY: ""}}, DEFAULT_NAMESPACE)
    copy(api)
    tell(api, ours)
    copy(api)
    assert trusted(api) == [x509.load_pem_x509_certificate(ours)]


def test_a_config_map_without_its_data_gets_the_ca() -> None:
    api = an_api()
    value = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ADMISSION_CA, "namespace": DEFAULT_NAMESPACE},
    }
    api.create(CONFIGMAPS, value)
    authority = make(["x"], NOW).authority
    assert not tell(api, authority)
    assert published(api) == [x509.load_pem_x509_certificate(authority)]


def test_a_configuration_that_is_missing_is_an_error_and_the_ca_is_published() -> None:
    api = FakeApi()
    authority = make(["x"], NOW).authority
    tell(api, authority)
    with pytest.raises(ApiError) as caught:
        distrusting(api, [CONFIGURATION], [authority])
    assert caught.value.not_found
    assert published(api) == [x509.load_pem_x509_certificate(authority)]

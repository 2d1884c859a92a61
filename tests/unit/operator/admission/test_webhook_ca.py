"""Telling the API server of our CAs, against an API in memory."""

import pytest
from cryptography import x509
from gkm.kube.errors import ApiError
from gkm.kube.resources import VALIDATING_WEBHOOKS
from gkm_operator.admission.certificates.issue import make
from gkm_operator.admission.certificates.webhook_ca import trust, trust_patch
from support.operator.webhook_configurations import NAME, NOW, an_api, trusted, writes


def test_the_ca_is_written_once_and_to_every_webhook() -> None:
    api = an_api("", "%%%")
    authority = make(["x"], NOW).authority
    assert [trust(api, NAME, [authority], NOW) for _ in range(3)] == [False, True, True]
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
    trust(api, NAME, [authority], NOW)
    assert len(trusted(api)) == 1
    api.fault = lambda verb, _: ApiError(409, "Conflict", "") if verb == "merge" else None
    with pytest.raises(ApiError):
        trust(api, NAME, [make(["x"], NOW).authority], NOW)
    with pytest.raises(ApiError) as caught:
        trust(api, "none", [authority], NOW)
    assert caught.value.not_found


def test_replicas_that_write_at_once_lose_no_ca() -> None:
    api = an_api("", "")
    authorities = [make(["x"], NOW).authority for _ in range(5)]
    between = iter(authorities[1:])

    def another_was_first(verb: str, _: str) -> None:
        """Write another replica's CA between our read and our write."""
        if verb == "merge" and (other := next(between, None)):
            trust(api, NAME, [other], NOW)

    api.fault = another_was_first
    trust(api, NAME, authorities[:1], NOW)
    assert set(trusted(api)) == {x509.load_pem_x509_certificate(one) for one in authorities}

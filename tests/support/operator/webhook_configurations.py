"""A webhook configuration in an API in memory, and what its webhooks trust."""

import base64
from datetime import UTC, datetime

from cryptography import x509
from gkm.kube.resources import VALIDATING_WEBHOOKS, Json
from support.kube.fake_api import FakeApi

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAME = "gkm-caches"


def a_configuration(*bundles: str) -> Json:
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": NAME},
        "webhooks": [
            {"name": f"w{number}.gkm.io", "clientConfig": {"url": "https://x", **({"caBundle": b} if b else {})}}
            for number, b in enumerate(bundles)
        ],
    }


def an_api(*bundles: str) -> FakeApi:
    api = FakeApi()
    api.create(VALIDATING_WEBHOOKS, a_configuration(*(bundles or ("",))))
    return api


def trusted(api: FakeApi) -> list[x509.Certificate]:
    """Return what every webhook trusts."""
    (first, *others) = (hook["clientConfig"]["caBundle"] for hook in api.get(VALIDATING_WEBHOOKS, NAME)["webhooks"])
    assert others == [first] * len(others)
    return x509.load_pem_x509_certificates(base64.b64decode(first))


def writes(api: FakeApi) -> int:
    return sum(1 for verb, _, _ in api.calls if verb == "merge")

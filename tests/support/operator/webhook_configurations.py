"""A webhook configuration in an API in memory, and what its webhooks trust."""

import base64
from datetime import UTC, datetime

from cryptography import x509
from gkm.api.installation import ADMISSION_CA, ADMISSION_CA_KEY
from gkm.kube.api import Api
from gkm.kube.resources import CONFIGMAPS, VALIDATING_WEBHOOKS, Json
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm_operator.webhooks import CaCopies, WebhookConfiguration
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


def published(api: FakeApi) -> list[x509.Certificate]:
    """Return what admission published."""
    text = api.get(CONFIGMAPS, ADMISSION_CA, DEFAULT_NAMESPACE)["data"][ADMISSION_CA_KEY]
    return x509.load_pem_x509_certificates(text.encode())


def copy(api: Api, *configurations: WebhookConfiguration, namespace: str = DEFAULT_NAMESPACE) -> None:
    """Copy once, as the controllers do."""
    CaCopies(api, configurations or [WebhookConfiguration(NAME)], namespace=namespace).copy()


def writes(api: FakeApi) -> int:
    """Return how often the configuration was written."""
    return sum(1 for verb, plural, _ in api.calls if (verb, plural) == ("merge", VALIDATING_WEBHOOKS.plural))

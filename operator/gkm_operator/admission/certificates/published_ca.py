"""Publishes the CAs of this process in a ConfigMap, and looks whether the API server trusts them.

The controllers copy the ConfigMap into the webhook configurations (gkm_operator.webhooks): the account of
admission reads these, and writes only this ConfigMap. Every replica adds its own CAs. A write carries the resource
version of the read, so concurrent writers lose no CA.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from gkm.api.installation import ADMISSION, ADMISSION_CA, ADMISSION_CA_KEY
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Json

from gkm_operator.webhooks import WebhookConfiguration, bundles, has_all, merged_bundle

MAX_TRIES = 5


def publish(
    api: Api,
    namespace: str,
    configurations: Sequence[WebhookConfiguration],
    authorities: Sequence[bytes],
    now: datetime,
) -> bool:
    """Put CAs into the ConfigMap; return whether they were there.

    Raises:
        ApiError: the API server does not answer or refuses, or another writer changes the ConfigMap again and again.
    """
    for tries in range(1, MAX_TRIES + 1):
        found = api.find(CONFIGMAPS, ADMISSION_CA, namespace)
        if found is None:
            _create(api, namespace, _former(api, configurations), authorities, now)
            return False
        bundle = merged_bundle(str((found.get("data") or {}).get(ADMISSION_CA_KEY, "")).encode(), authorities, now)
        if bundle is None:
            return True
        patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, **_data(bundle)}
        try:
            api.merge(CONFIGMAPS, ADMISSION_CA, patch, namespace)
        except ApiError as error:
            if not error.conflict or tries == MAX_TRIES:
                raise
        else:
            break
    return False


def distrusting(
    api: Api, configurations: Iterable[WebhookConfiguration], authorities: Sequence[bytes]
) -> list[WebhookConfiguration]:
    """Return the configurations with a webhook that lacks one of the CAs.

    Raises:
        ApiError: a configuration does not exist, or the API server does not answer.
    """
    return [each for each in configurations if not _trusts(api.get(each.resource, each.name), authorities)]


def _trusts(found: Json, authorities: Sequence[bytes]) -> bool:
    return all(has_all(bundle, authorities) for bundle in bundles(found))


def _create(api: Api, namespace: str, former: bytes, authorities: Sequence[bytes], now: datetime) -> None:
    # By an apply: its request names the object, so RBAC can allow the creation of this one alone.
    value = {
        "apiVersion": CONFIGMAPS.api_version,
        "kind": CONFIGMAPS.kind,
        "metadata": {"name": ADMISSION_CA, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "gkm"}},
        **_data(merged_bundle(former, authorities, now) or former),
    }
    api.apply(CONFIGMAPS, value, field_manager=ADMISSION)


def _former(api: Api, configurations: Sequence[WebhookConfiguration]) -> bytes:
    """Return what the API server trusts already.

    Where the ConfigMap was lost, the other replicas serve with these CAs until they publish them again; after an
    upgrade, so do the pods of a version that wrote the configurations itself.
    """
    found = [api.find(each.resource, each.name) or {} for each in configurations]
    return b"".join(dict.fromkeys(bundle for each in found for bundle in bundles(each)))


def _data(bundle: bytes) -> Json:
    return {"data": {ADMISSION_CA_KEY: bundle.decode("ascii")}}

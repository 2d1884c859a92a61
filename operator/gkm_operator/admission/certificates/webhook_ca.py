"""Telling the API server which CAs to trust: the caBundle of our webhook configuration."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime

from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import VALIDATING_WEBHOOKS, Json

from gkm_operator.admission.certificates import ca_bundle as bundle

MAX_TRIES = 5


def trust(api: Api, configuration: str, authorities: Sequence[bytes], now: datetime) -> bool:
    """Put CAs into the caBundle of every webhook of a ValidatingWebhookConfiguration; return whether they were there.

    Read, change, write with the version that was read: lists of webhooks merge as a whole, and nothing of what another
    replica or an administrator changed meanwhile may be lost.

    Raises:
        ApiError: it is not there, or somebody else writes it again and again.
    """
    for tries in range(1, MAX_TRIES + 1):
        patch = trust_patch(api.get(VALIDATING_WEBHOOKS, configuration), authorities, now)
        if patch is None:
            return True
        try:
            api.merge(VALIDATING_WEBHOOKS, configuration, patch)
        except ApiError as error:
            if not error.conflict or tries == MAX_TRIES:
                raise
        else:
            break
    return False


def trust_patch(found: Json, authorities: Sequence[bytes], now: datetime) -> Json | None:
    """Return the merge patch that makes the webhooks trust the CAs, None where they do."""
    before = found.get("webhooks") or []
    webhooks = [
        webhook | {"clientConfig": _client_patch(webhook["clientConfig"], authorities, now)} for webhook in before
    ]
    if webhooks == before:
        return None
    return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "webhooks": webhooks}


def _client_patch(client_config: Json, authorities: Sequence[bytes], now: datetime) -> Json:
    try:
        before = base64.b64decode(client_config.get("caBundle") or "", validate=True)
    except binascii.Error:
        before = b""
    after = bundle.merged_bundle(before, authorities, now)
    return client_config if after is None else client_config | {"caBundle": base64.b64encode(after).decode()}

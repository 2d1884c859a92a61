"""Telling the API server which CA to trust: the caBundle of our webhook configuration."""

import base64
import binascii
import logging
import re
from threading import Event

from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import VALIDATING_WEBHOOKS, Json

_LOG = logging.getLogger(__name__)

MAX_TRIES = 5
MAX_AUTHORITIES = 8
"""Ours, those of the other replicas, and of the pods before us, which may still serve while a rollout is under way.
With more replicas than this, each would put the others out again and again."""

CHECK_SECONDS = 60.0
"""A configuration that was applied anew has lost our CA, and until it is there again every write of our kinds fails."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]{1,8192}-----END CERTIFICATE-----\n?")


def trust(api: Api, configuration: str, authority: bytes) -> None:
    """Put a CA into the caBundle of every webhook of a ValidatingWebhookConfiguration.

    Read, change, write with the version that was read: lists of webhooks merge as a whole, and nothing of what an
    administrator changed meanwhile may be lost.

    Raises:
        ApiError: it is not there, or somebody else writes it again and again.
    """
    for tries in range(1, MAX_TRIES + 1):
        patch = trusting(api.get(VALIDATING_WEBHOOKS, configuration), authority)
        if patch is None:
            return
        try:
            api.merge(VALIDATING_WEBHOOKS, configuration, patch)
        except ApiError as error:
            if not error.conflict or tries == MAX_TRIES:
                raise
        else:
            return


def keep(api: Api, configuration: str, authority: bytes, stop: Event, seconds: float = CHECK_SECONDS) -> None:
    """See to it every so many seconds that the CA is trusted, until `stop`: a read, and a write where it is not.

    Never raises for what the API server answers: this process serves on, and looks again.
    """
    while not stop.wait(seconds):
        try:
            trust(api, configuration, authority)
        except ApiError as error:
            _LOG.warning("trust not checked", extra=fields(configuration=configuration, why=str(error)))


def trusting(found: Json, authority: bytes) -> Json | None:
    """Return the merge patch that makes the webhooks trust the CA, None where they do."""
    before = found.get("webhooks", [])
    webhooks = [
        webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": _with(webhook["clientConfig"], authority)}}
        for webhook in before
    ]
    if webhooks == before:
        return None
    return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "webhooks": webhooks}


def bundle(before: bytes, authority: bytes) -> bytes:
    """Return the CA and, after it, the newest of those that were trusted before."""
    authorities = [authority.strip(), *(found.strip() for found in _CERTIFICATE.findall(before))]
    return b"\n".join(list(dict.fromkeys(authorities))[:MAX_AUTHORITIES]) + b"\n"


def _with(client_config: Json, authority: bytes) -> str:
    try:
        before = base64.b64decode(client_config.get("caBundle") or "", validate=True)
    except binascii.Error:
        before = b""
    if authority.strip() in before:
        return str(client_config["caBundle"])
    return base64.b64encode(bundle(before, authority)).decode()

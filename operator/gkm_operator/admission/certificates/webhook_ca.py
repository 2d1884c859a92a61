"""The caBundle of webhook configurations: which CAs they hold, and writing them.

Every replica adds its own CAs to the bundle of every webhook. Merging a bundle is a pure function of bytes. The write
carries the resource version of the read, so concurrent writers lose nothing.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Json, Resource

from gkm_operator.admission.certificates.issue import CLOCKS_DIFFER

MAX_TRIES = 5

MAX_CAS = 32
"""Two for each replica that renews, and those of former pods, which may still serve during a rollout. At most 20 kB in
an object of 1.5 MB."""

SAFE_CAS = MAX_CAS // 2
"""A running replica keeps its CA among the first ones, up to this number. So only the CA of a former replica reaches
the end of the list and drops off, unless more than this are added between two checks of a replica, or there are more
than eight replicas."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\r?\n[A-Za-z0-9+/=\r\n]{1,8192}-----END CERTIFICATE-----")


_KINDS = {"validating": VALIDATING_WEBHOOKS, "mutating": MUTATING_WEBHOOKS}


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    """A ValidatingWebhookConfiguration or a MutatingWebhookConfiguration."""

    name: str
    resource: Resource[Json] = VALIDATING_WEBHOOKS

    @classmethod
    def parse(cls, text: str) -> "WebhookConfiguration":
        """Return the configuration that `NAME`, `validating/NAME` or `mutating/NAME` denotes; raise ValueError."""
        kind, _, name = text.rpartition("/")
        if not name or (kind or "validating") not in _KINDS:
            raise ValueError(f"{text!r} is not NAME, validating/NAME or mutating/NAME")
        return cls(name, _KINDS[kind or "validating"])


def trust(api: Api, configuration: WebhookConfiguration, authorities: Sequence[bytes], now: datetime) -> bool:
    """Put CAs into the caBundle of every webhook of a configuration; return whether they were there.

    A patch replaces the list of webhooks as a whole. It carries the version that was read, so it never overwrites a
    change that another replica or an administrator made in between.

    Raises:
        ApiError: the configuration does not exist, or another writer changes it again and again.
    """
    for tries in range(1, MAX_TRIES + 1):
        patch = trust_patch(api.get(configuration.resource, configuration.name), authorities, now)
        if patch is None:
            return True
        try:
            api.merge(configuration.resource, configuration.name, patch)
        except ApiError as error:
            if not error.conflict or tries == MAX_TRIES:
                raise
        else:
            break
    return False


def trust_patch(found: Json, authorities: Sequence[bytes], now: datetime) -> Json | None:
    """Return the merge patch that makes the webhooks trust the CAs; None when they already do."""
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
    after = merged_bundle(before, authorities, now)
    return client_config if after is None else client_config | {"caBundle": base64.b64encode(after).decode()}


def merged_bundle(before: bytes, ours: Sequence[bytes], now: datetime) -> bytes | None:
    """Return a bundle that begins with our CAs; None when the present bundle has them in safe places.

    The other CAs follow in their order, without expired ones, duplicates, and anything that is not a certificate. An
    expired CA alone does not cause a write: replicas whose clocks disagree would overwrite each other forever.
    """
    own = [x509.load_pem_x509_certificate(pem) for pem in ours]
    found = list(_certificates(before))
    if all(ca in found[:SAFE_CAS] for ca in own):
        return None
    unexpired = [ca for ca in found if now - CLOCKS_DIFFER < ca.not_valid_after_utc]
    merged = list(dict.fromkeys((*own, *unexpired)))[:MAX_CAS]
    return b"".join(ca.public_bytes(Encoding.PEM) for ca in merged)


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    for found in _CERTIFICATE.findall(pem):
        try:
            yield x509.load_pem_x509_certificate(found)
        except (ValueError, x509.InvalidVersion):
            continue  # an API server cannot read it either

"""Webhook configurations and the CAs in them: admission publishes its CAs, the controllers copy them.

Admission faces requests from the whole cluster. With the right to change a webhook configuration, an attacker with its
token could make the API server send every Secret to the attacker. So each replica of admission adds its own CAs to the
bundle in one ConfigMap, and the controllers copy its certificates, encoded anew and within bounds. A copy changes
`caBundle` and no other field.

Every replica of the controllers copies, not only the leader, and before it checks its kinds: admission is ready only
after the copy, and must not wait for an election or an incomplete installation. Two replicas copy the same, and a write
carries the version that was read.
"""

import base64
import binascii
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from gkm.api.installation import ADMISSION_CA, ADMISSION_CA_KEY
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.resources import CONFIGMAPS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Json, Resource

from gkm_operator.actions import run_each

_KINDS = {"validating": VALIDATING_WEBHOOKS, "mutating": MUTATING_WEBHOOKS}

CLOCKS_DIFFER = timedelta(minutes=10)
"""How much the clocks of two machines may differ: CAs are valid this long before their issue, and kept as long
after."""

MAX_CAS = 32
"""Two for each replica that renews, and the CAs of former pods, which may still serve during a rollout. At most 20 kB
of ours in an object of 1.5 MB."""

SAFE_CAS = MAX_CAS // 2
"""A running replica keeps its CA among the first ones, up to this number. So only the CA of a former replica reaches
the end of the list and drops off, unless more than this are added between two checks of a replica, or there are more
than eight replicas."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\r?\n[A-Za-z0-9+/=\r\n]{1,2048}-----END CERTIFICATE-----")
"""Three times the size of our CAs: the largest bundle fits eight times into a webhook configuration."""

_LOG = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Interval of reads of the ConfigMap with the CAs."""

REPAIR_SECONDS = 60.0
"""Interval of checks of configurations that should have the CAs."""


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    """The name and kind of a ValidatingWebhookConfiguration or a MutatingWebhookConfiguration."""

    name: str
    resource: Resource[Json] = VALIDATING_WEBHOOKS

    @classmethod
    def parse(cls, text: str) -> "WebhookConfiguration":
        """Parse `NAME`, `validating/NAME` or `mutating/NAME`; raise ValueError for other text."""
        kind, _, name = text.rpartition("/")
        if not name or (kind or "validating") not in _KINDS:
            raise ValueError(f"{text!r} is not NAME, validating/NAME or mutating/NAME")
        return cls(name, _KINDS[kind or "validating"])

    def __str__(self) -> str:
        """Return the name for logs."""
        return f"{self.resource.kind} {self.name}"


def bundles(found: Json) -> Iterator[bytes]:
    """Yield the caBundle of each webhook of a webhook configuration; b"" for a missing or undecodable one."""
    for webhook in found.get("webhooks") or []:
        try:
            yield base64.b64decode(webhook["clientConfig"].get("caBundle") or "", validate=True)
        except binascii.Error:
            yield b""


def bundle_patch(found: Json, bundle: bytes) -> Json | None:
    """Return the merge patch that gives every webhook of a configuration this caBundle; None if all have it.

    A patch replaces the list of webhooks as a whole. It carries the version that was read, so it never overwrites a
    change that an administrator made in between.
    """
    if all(each == bundle for each in bundles(found)):
        return None
    written = {"caBundle": base64.b64encode(bundle).decode()}
    webhooks = [webhook | {"clientConfig": webhook["clientConfig"] | written} for webhook in found["webhooks"]]
    return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "webhooks": webhooks}


def merged_bundle(before: bytes, ours: Sequence[bytes], now: datetime) -> bytes | None:
    """Return the CA bundle with this replica's CAs first; None if they are already at safe positions.

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


def has_all(bundle: bytes, authorities: Sequence[bytes]) -> bool:
    """Return whether a PEM bundle holds all of these CAs."""
    found = set(_certificates(bundle))
    return all(x509.load_pem_x509_certificate(pem) in found for pem in authorities)


def copied_bundle(pem: bytes) -> bytes:
    """Return the certificates in a published bundle, at most MAX_CAS and no other text; b"" if it has none."""
    return b"".join(ca.public_bytes(Encoding.PEM) for ca in islice(_certificates(pem), MAX_CAS))


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    for found in _CERTIFICATE.findall(pem):
        try:
            yield x509.load_pem_x509_certificate(found)
        except (ValueError, x509.InvalidVersion):
            continue  # an API server cannot read it either


class CaCopies(Controller):
    """Copies published CAs into the webhook configurations, if any are named. A failure here stops no other work."""

    def __init__(
        self,
        api: Api,
        configurations: Sequence[WebhookConfiguration],
        *,
        namespace: str,
        poll_seconds: float = POLL_SECONDS,
        repair_seconds: float = REPAIR_SECONDS,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("ca-copies", enabled=bool(configurations))
        self._api = api
        self._configurations = configurations
        self._namespace = namespace
        self._poll_seconds = poll_seconds
        self._repair_seconds = repair_seconds
        self._elapsed = elapsed
        self._copied = b""
        self._repair_at = 0.0

    def run(self) -> None:
        """Copy the CAs at intervals until the process ends; at least once."""
        self.repeat(self.copy, Backoff(self._poll_seconds, self._poll_seconds), failure="webhook CAs not copied")

    def copy(self) -> float:
        """Copy the CAs into all configurations, even if one is refused; return the seconds until the next copy.

        A ConfigMap that is missing, or without a certificate, takes no CA away.

        Raises:
            ApiError: the first error.
        """
        bundle = copied_bundle(self._published())
        if not bundle or (bundle == self._copied and self._elapsed() < self._repair_at):
            return self._poll_seconds
        run_each(partial(self._write, each, bundle) for each in self._configurations)
        self._copied, self._repair_at = bundle, self._elapsed() + self._repair_seconds
        return self._poll_seconds

    def _published(self) -> bytes:
        found = self._api.find(CONFIGMAPS, ADMISSION_CA, self._namespace) or {}
        return str((found.get("data") or {}).get(ADMISSION_CA_KEY, "")).encode()

    def _write(self, configuration: WebhookConfiguration, bundle: bytes) -> None:
        patch = bundle_patch(self._api.get(configuration.resource, configuration.name), bundle)
        if patch is not None:
            self._api.merge(configuration.resource, configuration.name, patch)
            about = fields(configuration=str(configuration))
            _LOG.info("webhook CAs copied into a webhook configuration", extra=about)

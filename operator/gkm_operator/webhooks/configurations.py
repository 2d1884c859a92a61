"""Webhook configurations: their names on the command line, and the caBundle of their webhooks. Pure."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass

from gkm.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Json, Resource

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

    def __str__(self) -> str:
        """Return the name for a log."""
        return f"{self.resource.kind} {self.name}"


def bundles(found: Json) -> Iterator[bytes]:
    """Yield the caBundle of each webhook of a configuration; b"" for none, and for one that cannot be decoded."""
    for webhook in found.get("webhooks") or []:
        try:
            yield base64.b64decode(webhook["clientConfig"].get("caBundle") or "", validate=True)
        except binascii.Error:
            yield b""


def bundle_patch(found: Json, bundle: bytes) -> Json | None:
    """Return the merge patch that gives every webhook this caBundle and changes no other field; None if all have it.

    A patch replaces the list of webhooks as a whole. It carries the version that was read, so it never overwrites a
    change that an administrator made in between.
    """
    if all(each == bundle for each in bundles(found)):
        return None
    written = {"caBundle": base64.b64encode(bundle).decode()}
    webhooks = [webhook | {"clientConfig": webhook["clientConfig"] | written} for webhook in found["webhooks"]]
    return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "webhooks": webhooks}

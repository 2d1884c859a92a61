"""Copies the CAs that admission published into webhook configurations.

Admission faces requests from the whole cluster. With the right to change a webhook configuration, who took its token
could have every Secret sent to him, so admission writes one ConfigMap, and the controllers copy its certificates. A
copy changes `caBundle` and no other field.

Every replica copies, not only the leader, and before it checks its kinds: admission is ready only after the copy, and
must wait neither for an election nor for an installation that is incomplete. Two replicas copy the same, and a write
carries the version that was read.
"""

import logging
import time
from collections.abc import Callable, Sequence

from gkm.api.installation import ADMISSION_CA, ADMISSION_CA_KEY
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS

from gkm_operator.webhooks.ca_bundle import copied_bundle
from gkm_operator.webhooks.configurations import WebhookConfiguration, bundle_patch

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Between two reads of the ConfigMap: a starting replica of admission waits for the next one."""

REPAIR_SECONDS = 60.0
"""Between two reads of configurations that have the bundle: one that was applied anew lost its CAs."""


class CaCopies(Controller):
    """Copies, if there is a configuration to copy to. Whatever fails here stops no other work."""

    def __init__(
        self,
        api: Api,
        configurations: Sequence[WebhookConfiguration],
        *,
        namespace: str,
        look_seconds: float = LOOK_SECONDS,
        repair_seconds: float = REPAIR_SECONDS,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("ca-copies", enabled=bool(configurations))
        self._api = api
        self._configurations = configurations
        self._namespace = namespace
        self._look_seconds = look_seconds
        self._repair_seconds = repair_seconds
        self._elapsed = elapsed
        self._copied = b""
        self._repair_at = 0.0

    def run(self) -> None:
        """Copy until the end; once at least, for a process that ends because its installation is incomplete."""
        self.repeat(self.copy, Backoff(self._look_seconds, self._look_seconds), failure="CAs not copied")

    def copy(self) -> float:
        """Copy into all configurations, also into those after one that fails; return the seconds until the next time.

        A ConfigMap that is missing, or without a certificate, takes no CA away.

        Raises:
            ApiError: the first error.
        """
        bundle = copied_bundle(self._published())
        if not bundle or (bundle == self._copied and self._elapsed() < self._repair_at):
            return self._look_seconds
        errors = [error for each in self._configurations if (error := self._write(each, bundle))]
        if errors:
            raise errors[0]
        self._copied, self._repair_at = bundle, self._elapsed() + self._repair_seconds
        return self._look_seconds

    def _published(self) -> bytes:
        found = self._api.find(CONFIGMAPS, ADMISSION_CA, self._namespace) or {}
        return str((found.get("data") or {}).get(ADMISSION_CA_KEY, "")).encode()

    def _write(self, configuration: WebhookConfiguration, bundle: bytes) -> ApiError | None:
        try:
            patch = bundle_patch(self._api.get(configuration.resource, configuration.name), bundle)
            if patch is not None:
                self._api.merge(configuration.resource, configuration.name, patch)
                _LOG.info("CAs copied", extra=fields(configuration=str(configuration)))
        except ApiError as error:
            return error
        return None

"""A registry with one real cache image, and a client for it."""

from dataclasses import dataclass, replace

from gkm.api.config import Registries, RegistryHost
from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from gkm.images.registries.transport import TransportLimits
from support.registry.server import Registry as RealRegistry

LIMITS = TransportLimits(connect=1.0, stall=0.5, request=3.0, pause=0.01)
PATIENT = TransportLimits(connect=10.0, stall=30.0, request=60.0, pause=0.01)
"""For failures that no deadline ends: on a busy machine, LIMITS may pass before such a failure arrives."""


def client_of(real: RealRegistry, allow: list[str] | None = None, limits: TransportLimits = LIMITS) -> Registry:
    host = RegistryHost(plain_http=real.ca_file is None, ca_file=str(real.ca_file or ""))
    return Registry(Registries(allow=allow or [], hosts={real.host: host}), limits=limits)


@dataclass(frozen=True)
class Site:
    real: RealRegistry
    client: Registry
    image: LocalImage
    ref: Reference
    """The image, pinned."""

    def client_with(self, *, allow: list[str]) -> Registry:
        return client_of(self.real, allow)

    def patient(self) -> "Site":
        return replace(self, client=client_of(self.real, limits=PATIENT))


def filled(real: RealRegistry, image: LocalImage) -> Site:
    client = client_of(real)
    ref = Reference.parse(f"{real.host}/team/vector-add:1")
    return Site(real, client, image, ref.pinned(push.image(client, ref, image)))

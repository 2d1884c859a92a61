"""ResourceClaimTemplate and ResourceClaim (resource.k8s.io/v1), reduced to the device classes that they request."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from gkm.api.mnnvl_metadata import MnnvlMetadata

API_VERSION = "resource.k8s.io/v1"


class DeviceRequest(Struct, frozen=True, rename="camel", gc=False):
    """A request for devices of one class."""

    device_class_name: str = ""


class ClaimRequest(Struct, frozen=True, rename="camel"):
    """A request of a claim: `exactly` one class, or the first class that is available."""

    exactly: DeviceRequest | None = None
    first_available: Annotated[tuple[DeviceRequest, ...], Meta(max_length=8)] | None = None


class ClaimDevices(Struct, frozen=True):
    """The devices of a claim."""

    requests: Annotated[tuple[ClaimRequest, ...], Meta(max_length=32)] | None = None


class ClaimSpec(Struct, frozen=True):
    """The spec of a claim."""

    devices: ClaimDevices = ClaimDevices()

    def device_classes(self) -> Iterator[str]:
        """Yield the requested device classes."""
        for request in self.devices.requests or ():
            for one in (request.exactly, *(request.first_available or ())):
                if one is not None and one.device_class_name:
                    yield one.device_class_name


class TemplateSpec(Struct, frozen=True):
    """The spec of a template: the spec of the claims made from it."""

    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(Struct, frozen=True):
    """A template of claims."""

    metadata: MnnvlMetadata
    spec: TemplateSpec = TemplateSpec()

    def device_classes(self) -> Iterator[str]:
        """Yield the device classes that claims made from it request."""
        return self.spec.spec.device_classes()


class ResourceClaim(Struct, frozen=True):
    """A claim."""

    metadata: MnnvlMetadata
    spec: ClaimSpec = ClaimSpec()

    def device_classes(self) -> Iterator[str]:
        """Yield the requested device classes."""
        return self.spec.device_classes()

"""ResourceClaimTemplate and ResourceClaim (resource.k8s.io/v1), reduced to the device classes that they request."""

from collections.abc import Iterator
from typing import Annotated, Self

from msgspec import Meta, Struct, structs

from gkm.api.mnnvl_metadata import MnnvlMetadata

API_VERSION = "resource.k8s.io/v1"


class DeviceRequest(Struct, frozen=True, rename="camel", gc=False):
    """A request of a ResourceClaim for devices of one class."""

    device_class_name: str = ""


class ClaimRequest(Struct, frozen=True, rename="camel"):
    """A request of a ResourceClaim: `exactly` one class, or the first class that is available."""

    exactly: DeviceRequest | None = None
    first_available: Annotated[tuple[DeviceRequest, ...], Meta(max_length=8)] | None = None


class ClaimDevices(Struct, frozen=True):
    """The device requests of a ResourceClaim."""

    requests: Annotated[tuple[ClaimRequest, ...], Meta(max_length=32)] | None = None


class ClaimSpec(Struct, frozen=True):
    """The spec of a ResourceClaim, reduced to its device requests."""

    devices: ClaimDevices = ClaimDevices()

    def device_classes(self) -> Iterator[str]:
        """Yield the device classes that the claim requests."""
        for request in self.devices.requests or ():
            for one in (request.exactly, *(request.first_available or ())):
                if one is not None and one.device_class_name:
                    yield one.device_class_name


class TemplateSpec(Struct, frozen=True):
    """The spec of a ResourceClaimTemplate: the spec of the claims made from it."""

    spec: ClaimSpec = ClaimSpec()


_NO_SPEC = TemplateSpec()


class ResourceClaimTemplate(Struct, frozen=True):
    """A ResourceClaimTemplate, reduced to the fields that GKM reads."""

    metadata: MnnvlMetadata
    spec: TemplateSpec = TemplateSpec()

    def device_classes(self) -> Iterator[str]:
        """Yield the device classes that claims made from the template request."""
        return self.spec.spec.device_classes()


class WatchedClaimTemplate(ResourceClaimTemplate, frozen=True):
    """A ResourceClaimTemplate as a watch holds it; each device class is kept once and `spec` is emptied."""

    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.spec != _NO_SPEC:
            structs.force_setattr(self, "classes", tuple(dict.fromkeys(self.spec.spec.device_classes())))
            structs.force_setattr(self, "spec", _NO_SPEC)

    def device_classes(self) -> Iterator[str]:
        """Yield the device classes that claims made from the template request."""
        return iter(self.classes)

    def outline(self, why: str) -> Self:
        """Return a reduced copy of a template that is too large."""
        return structs.replace(self, metadata=self.metadata.outline(why))


class ResourceClaim(Struct, frozen=True):
    """A ResourceClaim, reduced to the fields that GKM reads."""

    metadata: MnnvlMetadata
    spec: ClaimSpec = ClaimSpec()

    def device_classes(self) -> Iterator[str]:
        """Yield the device classes that the claim requests."""
        return self.spec.device_classes()

"""Who runs the IMEX daemons of ComputeDomains: NVIDIA's DRA driver, or the administrator of the hosts. Pure.

`imex.mode` of NVIDIA's chart, since v0.5.0, is in no ComputeDomain. Two objects show it: with hostManaged the chart has
no DeviceClass of daemons, and the ResourceSlices of nodes have channels and no daemon. A domain without DaemonSet and
nodes is no proof: a young domain of the other mode also has no DaemonSet and no node.
"""

from collections.abc import Collection
from enum import StrEnum

from msgspec import Struct

DRIVER = "compute-domain.nvidia.com"
"""The driver of the channels and daemons, in ResourceSlices and in the configuration of claims."""
DAEMON_CLASS = "compute-domain-daemon.nvidia.com"
"""The DeviceClass of daemons."""
CHANNEL, DAEMON = "channel", "daemon"


class IMEXMode(StrEnum):
    """Who runs the IMEX daemons: the values of `imex.mode` in NVIDIA's chart, and a value for an unknown mode."""

    DRIVER_MANAGED = "driverManaged"
    HOST_MANAGED = "hostManaged"
    UNKNOWN = "unknown"


class _Text(Struct, frozen=True, gc=False):
    string: str | None = None


class _Attributes(Struct, frozen=True, gc=False):
    type: _Text = _Text()


class PublishedDevice(Struct, frozen=True, gc=False):
    """A device of a ResourceSlice, reduced to its type."""

    attributes: _Attributes = _Attributes()


class SliceSpec(Struct, frozen=True):
    """The spec of a ResourceSlice: devices of one driver on one node."""

    driver: str = ""
    devices: tuple[PublishedDevice, ...] | None = None


class PublishedDevices(Struct, frozen=True):
    """A ResourceSlice (resource.k8s.io/v1), reduced to the types of its devices."""

    spec: SliceSpec = SliceSpec()

    @property
    def types(self) -> frozenset[str]:
        """Return the device types of the slice; an empty set for another driver's slice."""
        devices = self.spec.devices or () if self.spec.driver == DRIVER else ()
        return frozenset(device.attributes.type.string or "" for device in devices)


def mode(*, has_daemon_class: bool, types: Collection[str]) -> IMEXMode:
    """Return who runs the IMEX daemons; `types` are the device types of the driver in all ResourceSlices."""
    if has_daemon_class or DAEMON in types:
        return IMEXMode.DRIVER_MANAGED
    return IMEXMode.HOST_MANAGED if CHANNEL in types else IMEXMode.UNKNOWN

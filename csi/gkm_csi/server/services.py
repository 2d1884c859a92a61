"""The gRPC services of this process: parse a request, call gkm_csi.volumes, and return the response message.

The methods have the names of the specifications. Kubelet finds the registration socket in its plugins_registry
directory and calls GetInfo. This process registers itself instead of a sidecar (node-driver-registrar), so a registered
driver is a running one. Newer kubelets call every 10 s and drop a driver that does not answer, so no method of
IdentityService and RegistrationService waits.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate.logs import fields
from google.protobuf.wrappers_pb2 import BoolValue

from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.proto import registration_pb2 as registration
from gkm_csi.server.version import VERSION
from gkm_csi.status_errors import Code, StatusError, failed_precondition, invalid_argument
from gkm_csi.volumes import request
from gkm_csi.volumes.publish import VolumePublisher
from gkm_csi.volumes.stats import VolumeStats
from gkm_csi.volumes.unpublish import VolumeUnpublisher

_LOG = logging.getLogger(__name__)
_RPC = csi.NodeServiceCapability.RPC

DRIVER_NAME: Final = "csi.gkm.io"


@dataclass(frozen=True)
class IdentityService:
    """The service csi.v1.Identity; `missing` returns the kernel features that this machine lacks now."""

    missing: Callable[[], Sequence[str]]

    def GetPluginInfo(self, _: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:  # noqa: N802 -- name of the RPC
        """Return the driver's name, which is also the name of the CSIDriver object, and its version."""
        return csi.GetPluginInfoResponse(name=DRIVER_NAME, vendor_version=VERSION)

    def GetPluginCapabilities(  # noqa: N802 -- name of the RPC
        self, _: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        """Return no capability: this driver has no controller, no topology and no expansion."""
        return csi.GetPluginCapabilitiesResponse()

    def Probe(self, _: csi.ProbeRequest) -> csi.ProbeResponse:  # noqa: N802 -- name of the RPC
        """Answer that the driver is ready.

        Raises:
            StatusError: this machine lacks a kernel feature (CSI, "Probe Errors": FAILED_PRECONDITION).
        """
        _require_kernel_features(self.missing())
        return csi.ProbeResponse(ready=BoolValue(value=True))


@dataclass(frozen=True, slots=True)
class NodeService:
    """The service csi.v1.Node on the node `name`."""

    name: str
    max_volumes: int
    kubelet: Path
    missing: Callable[[], Sequence[str]]
    """Returns the kernel features that this machine lacks now: a module may be loaded at any time."""
    stats: VolumeStats
    publisher: VolumePublisher
    unpublisher: VolumeUnpublisher
    capture_mode: str
    unmappable: str = ""
    """Why pods in user namespaces cannot mount volumes on this node; "" if they can."""

    def NodeGetInfo(self, _: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:  # noqa: N802 -- name of the RPC
        """Return the name of this node and no topology, which would need another capability."""
        return csi.NodeGetInfoResponse(node_id=self.name, max_volumes_per_node=self.max_volumes)

    def NodeGetCapabilities(  # noqa: N802 -- name of the RPC
        self, _: csi.NodeGetCapabilitiesRequest
    ) -> csi.NodeGetCapabilitiesResponse:
        """Return the capabilities; VOLUME_MOUNT_GROUP stops kubelet from chowning a cache that all pods share."""
        return csi.NodeGetCapabilitiesResponse(
            capabilities=[
                csi.NodeServiceCapability(rpc=_RPC(type=kind))
                for kind in (_RPC.VOLUME_MOUNT_GROUP, _RPC.GET_VOLUME_STATS, _RPC.VOLUME_CONDITION)
            ]
        )

    def NodePublishVolume(  # noqa: N802 -- name of the RPC
        self, message: csi.NodePublishVolumeRequest
    ) -> csi.NodePublishVolumeResponse:
        """Mount a cache into a pod.

        Raises:
            StatusError: the cache cannot be mounted.
        """
        publish_request = request.parse_publish(message, self.kubelet, self.capture_mode)
        _require_kernel_features(self.missing())
        if publish_request.options.user_namespace and self.unmappable:
            raise failed_precondition(
                f"{self.name} cannot mount for a user namespace ({request.USER_NAMESPACE}): {self.unmappable}; "
                f"run the pod on another node, or without hostUsers: false"
            )
        self.publisher.publish(publish_request)
        return csi.NodePublishVolumeResponse()

    def NodeUnpublishVolume(  # noqa: N802 -- name of the RPC
        self, message: csi.NodeUnpublishVolumeRequest
    ) -> csi.NodeUnpublishVolumeResponse:
        """Unmount a volume; the answer is also OK if the volume does not exist.

        Raises:
            StatusError: the volume cannot be unmounted.
        """
        self.unpublisher.unpublish(request.parse_volume_target(message.volume_id, message.target_path, self.kubelet))
        return csi.NodeUnpublishVolumeResponse()

    def NodeGetVolumeStats(  # noqa: N802 -- name of the RPC
        self, message: csi.NodeGetVolumeStatsRequest
    ) -> csi.NodeGetVolumeStatsResponse:
        """Return usage and condition of a volume.

        Raises:
            StatusError: no such volume is published at that path.
        """
        for field in ("volume_id", "volume_path"):
            if not getattr(message, field):
                raise invalid_argument(f"{field} is missing")
        try:
            volume = request.parse_volume_target(message.volume_id, message.volume_path, self.kubelet)
        except StatusError as refusal:  # no volume can be published there
            raise StatusError(Code.NOT_FOUND, refusal.message) from refusal
        return self.stats.get(volume)


@dataclass(frozen=True, slots=True)
class RegistrationService:
    """The service pluginregistration.Registration; `endpoint` is the path of the CSI socket as kubelet sees it."""

    endpoint: str

    def GetInfo(self, _: registration.InfoRequest) -> registration.PluginInfo:  # noqa: N802 -- name of the RPC
        """Return the type, name and socket of this plugin; version 1.0.0 stands for all of CSI 1.x."""
        return registration.PluginInfo(
            type="CSIPlugin", name=DRIVER_NAME, endpoint=self.endpoint, supported_versions=["1.0.0"]
        )

    def NotifyRegistrationStatus(  # noqa: N802 -- name of the RPC
        self, status: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        """Log the result of the registration; kubelet repeats a registration that failed."""
        if status.plugin_registered:
            _LOG.info("CSI driver registered with kubelet", extra=fields(driver=DRIVER_NAME, endpoint=self.endpoint))
        else:
            _LOG.error(
                "registration of the CSI driver with kubelet failed, kubelet tries again",
                extra=fields(driver=DRIVER_NAME, reason=status.error),
            )
        return registration.RegistrationStatusResponse()


def _require_kernel_features(missing: Sequence[str]) -> None:
    """Refuse a call on a machine that cannot mount, with the names of the missing features."""
    if missing:
        what = "; ".join(missing)
        raise failed_precondition(f"csi.gkm.io cannot mount on this node: {what}; the next call looks again")

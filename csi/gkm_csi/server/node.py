"""The service csi.v1.Node: parse a request, call the code that executes it, and return the specification's message."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.server.identity import require_kernel_features
from gkm_csi.status_errors import Code, StatusError, invalid_argument
from gkm_csi.volumes import request
from gkm_csi.volumes.publish import VolumePublisher
from gkm_csi.volumes.stats import VolumeStats
from gkm_csi.volumes.unpublish import VolumeUnpublisher

_RPC = csi.NodeServiceCapability.RPC


@dataclass(frozen=True, slots=True)
class NodeService:
    """csi.v1.Node for the node `name`; the methods have the names of the specification."""

    name: str
    max_volumes: int
    kubelet: Path
    missing: Sequence[str]
    stats: VolumeStats
    publisher: VolumePublisher
    unpublisher: VolumeUnpublisher

    def NodeGetInfo(self, _: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:  # noqa: N802 -- name of the RPC
        """Return the name of this node; no topology, which would need a capability."""
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
        """Mount a cache for a pod.

        Raises:
            StatusError: it cannot be mounted.
        """
        publish_request = request.parse_publish(message, self.kubelet)
        require_kernel_features(self.missing)
        self.publisher.publish(publish_request)
        return csi.NodePublishVolumeResponse()

    def NodeUnpublishVolume(  # noqa: N802 -- name of the RPC
        self, message: csi.NodeUnpublishVolumeRequest
    ) -> csi.NodeUnpublishVolumeResponse:
        """Unmount a volume; OK for a volume that does not exist.

        Raises:
            StatusError: it cannot be unmounted.
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

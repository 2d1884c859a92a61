"""Asking a CSI driver through its socket, as kubelet does."""

from collections.abc import Mapping
from pathlib import Path

import grpc
from gkm_csi.proto import csi_pb2
from google.protobuf.message import Message
from support.host.waiting import scaled

SECONDS = scaled(30.0)


class CSIClient:
    """kubelet's side of one CSI socket."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")

    def close(self) -> None:
        self._channel.close()

    def answers(self) -> bool:
        """Return whether the driver answers its Probe."""
        try:
            self._call("Identity/Probe", csi_pb2.ProbeRequest(), csi_pb2.ProbeResponse)
        except grpc.RpcError:
            return False
        return True

    def publish(self, volume: str, target: Path, pod: Mapping[str, str], attributes: Mapping[str, str]) -> None:
        """NodePublishVolume of an inline volume, with the pod's data as kubelet adds it.

        Raises:
            grpc.RpcError: the driver refused; .code() and .details() say why.
        """
        capability = csi_pb2.VolumeCapability(
            mount=csi_pb2.VolumeCapability.MountVolume(),
            access_mode=csi_pb2.VolumeCapability.AccessMode(
                mode=csi_pb2.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
            ),
        )
        request = csi_pb2.NodePublishVolumeRequest(
            volume_id=volume,
            target_path=str(target),
            volume_capability=capability,
            volume_context={**attributes, **{f"csi.storage.k8s.io/{key}": value for key, value in pod.items()}},
        )
        self._call("Node/NodePublishVolume", request, csi_pb2.NodePublishVolumeResponse)

    def unpublish(self, volume: str, target: Path) -> None:
        """NodeUnpublishVolume; raises as `publish` does."""
        request = csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume, target_path=str(target))
        self._call("Node/NodeUnpublishVolume", request, csi_pb2.NodeUnpublishVolumeResponse)

    def _call(self, method: str, request: Message, answer: type[Message]) -> None:
        call = self._channel.unary_unary(
            f"/csi.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        call(request, timeout=SECONDS)

"""Call a CSI driver as kubelet does, and measure the seconds of each call at the caller."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Self

import grpc
from gkm_csi.proto import csi_pb2
from google.protobuf.message import Message
from support.csi.nodes import publish_message

if TYPE_CHECKING:
    Call = grpc.UnaryUnaryMultiCallable[Message, Message]

SECONDS = 30.0


@dataclass(frozen=True)
class Volume:
    """A volume to be published, with its messages prepared, so that the bench does not measure their construction."""

    publish: csi_pb2.NodePublishVolumeRequest
    unpublish: csi_pb2.NodeUnpublishVolumeRequest

    @classmethod
    def of(cls, name: str, target: Path, attributes: Mapping[str, str]) -> Self:
        return cls(
            publish_message(name, target, attributes, uid=f"uid-{name}"),
            csi_pb2.NodeUnpublishVolumeRequest(volume_id=name, target_path=str(target)),
        )


@dataclass(frozen=True)
class Times:
    """Seconds that calls took."""

    publish: list[float] = field(default_factory=list)
    unpublish: list[float] = field(default_factory=list)

    def figures(self, prefix: str = "") -> dict[str, float]:
        """Return p50 and p99 in milliseconds."""
        return {
            f"{prefix}{call}_{name}_ms": 1000 * value
            for call, seconds in (("publish", self.publish), ("unpublish", self.unpublish))
            for name, value in (("p50", median(seconds)), ("p99", percentile(seconds, 99)))
        }


class Caller:
    """One connection to a driver; its calls are made once, as a Go client's are."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=(("grpc.use_local_subchannel_pool", 1),))
        self._probe = self._call("Identity/Probe", csi_pb2.ProbeRequest, csi_pb2.ProbeResponse)
        self.publish = self._call(
            "Node/NodePublishVolume", csi_pb2.NodePublishVolumeRequest, csi_pb2.NodePublishVolumeResponse
        )
        self.unpublish = self._call(
            "Node/NodeUnpublishVolume", csi_pb2.NodeUnpublishVolumeRequest, csi_pb2.NodeUnpublishVolumeResponse
        )

    def close(self) -> None:
        self._channel.close()

    def answers(self) -> bool:
        """Return whether the driver answers its Probe."""
        try:
            self.probe()
        except grpc.RpcError:
            return False
        return True

    def probe(self) -> float:
        return _timed(self._probe, csi_pb2.ProbeRequest())

    def published(self, volume: Volume) -> float:
        return _timed(self.publish, volume.publish)

    def unpublished(self, volume: Volume) -> float:
        return _timed(self.unpublish, volume.unpublish)

    def pairs(self, volumes: Iterable[Volume], into: Times | None = None) -> Times:
        """Publish and unpublish one volume after the other."""
        times = into or Times()
        for volume in volumes:
            times.publish.append(self.published(volume))
            times.unpublish.append(self.unpublished(volume))
        return times

    def _call(self, name: str, request: type[Message], answer: type[Message]) -> "Call":
        return self._channel.unary_unary(
            f"/csi.v1.{name}", request_serializer=request.SerializeToString, response_deserializer=answer.FromString
        )


def percentile(seconds: list[float], percent: int) -> float:
    """Return the percentile of the values."""
    return sorted(seconds)[min(len(seconds) - 1, len(seconds) * percent // 100)]


def _timed(call: "Call", message: Message) -> float:
    began = perf_counter()
    call(message, timeout=SECONDS)
    return perf_counter() - began

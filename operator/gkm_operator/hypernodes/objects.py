"""The objects that the topology watches, reduced to what it needs of each."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec
from gkm.api.fabrics import SURVEY_KEY, SURVEY_PREFIX, InfiniBandPort, NodeFabric, NodeFabricStatus
from gkm.api.hypernodes import ThinMetadata
from gkm.api.meta import API_VERSION, ObjectMeta
from gkm.api.nodes import NODE_LABEL, NodeSpec
from gkm.api.provider_trees import ProviderTreeSpec, ProviderTreeStatus
from gkm.kube.resources import PROVIDER_TREES, Resource
from msgspec import Struct, field, structs

_NO_STATUS = NodeFabricStatus()


class WatchedFabric(Struct, frozen=True, gc=False):
    """A NodeFabric, as two in JSON: one with the GUIDs of its ports, one with its neighbors.

    That takes little memory, and is quick to compare. The state of a port, which changes most, is in neither.
    """

    metadata: ThinMetadata
    status: NodeFabricStatus = _NO_STATUS
    ports: bytes = b""
    neighbors: bytes = b""
    guids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        status = self.status
        ports = [
            InfiniBandPort(port.device, port.port, port.node_guid, port.port_guid)
            for port in status.infiniband
            if port.port_guid or port.node_guid
        ]
        structs.force_setattr(self, "ports", self._reduced(NodeFabricStatus(infiniband=ports)))
        structs.force_setattr(self, "neighbors", self._reduced(NodeFabricStatus(ethernet=status.ethernet)))
        structs.force_setattr(self, "guids", tuple(sorted({*_guids(ports)})))
        structs.force_setattr(self, "status", _NO_STATUS)

    def _reduced(self, status: NodeFabricStatus) -> bytes:
        name = self.metadata.name
        return msgspec.json.encode(NodeFabric(ObjectMeta(name=name), NodeSpec(node_name=name), status))


def _guids(ports: Iterable[InfiniBandPort]) -> Iterator[str]:
    for port in ports:
        yield from filter(None, (port.port_guid, port.node_guid))


class SurveyText(Struct, frozen=True, gc=False):
    """The data of a survey: the output of ibnetdiscover, compressed and in base64."""

    text: str = field(default="", name=SURVEY_KEY)


class Survey(Struct, frozen=True, gc=False):
    """The ConfigMap with a survey, which has up to 1 MiB. An agent wrote it: it is foreign."""

    metadata: ThinMetadata
    data: SurveyText = SurveyText()


class WatchedSurvey(Struct, frozen=True, gc=False):
    """A survey without its text; `digest` differs between texts and is "" without one."""

    metadata: ThinMetadata
    data: SurveyText = SurveyText()
    digest: str = ""

    def __post_init__(self) -> None:
        text = self.data.text
        structs.force_setattr(self, "digest", sha256(text.encode()).hexdigest() if text else "")
        structs.force_setattr(self, "data", SurveyText())

    @property
    def node(self) -> str:
        """Return the node that the survey is of: an admission policy lets an agent write no other name."""
        return self.metadata.name.removeprefix(SURVEY_PREFIX)


FABRICS = Resource(
    API_VERSION,
    "NodeFabric",
    "nodefabrics",
    namespaced=False,
    type=WatchedFabric,
    unbounded="only agents write it, 512 ports and interfaces at most (gkm.api.fabrics.MAX_PORTS)",
)
SURVEYS = Resource("v1", "ConfigMap", "configmaps", namespaced=True, type=WatchedSurvey, page_limit=32)
"""A survey has almost 1 MB."""
SURVEY_TEXTS = SURVEYS.of(Survey)
SURVEY_LABELS = f"{NODE_LABEL},app.kubernetes.io/part-of=gkm"
"""Selects the surveys; no ConfigMap with credentials or with another purpose has these labels."""


class WatchedTree(Struct, frozen=True, gc=False):
    """A ProviderTree without the metadata that anybody with a right to it could fill."""

    metadata: ThinMetadata
    spec: ProviderTreeSpec = ProviderTreeSpec()
    status: ProviderTreeStatus = field(default_factory=ProviderTreeStatus)


TREES = PROVIDER_TREES.of(WatchedTree)

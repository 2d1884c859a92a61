"""The provider `infiniband`: surveys of subnets, joined with the GUIDs of NodeFabrics.

Agents write surveys: they are foreign. A survey that cannot be read, or takes too much memory, is a fault of this
survey alone, and its last good one counts on until this process ends.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from gkm.topology.fabrics import infiniband
from gkm.topology.fabrics.ibnetdiscover import NotASurvey
from gkm.topology.fabrics.network import Discovery
from gkm.topology.fabrics.subnet import Subnet
from gkm.topology.providers import Provider

from gkm_operator.hypernodes.providers.polling import Known, SourceMissing, following
from gkm_operator.hypernodes.providers.survey_text import parsed

MAX_NETWORK_BYTES = 24 << 20
"""Of one survey. A network of 10,000 hosts with eight adapters each has 12 MiB."""


def provider(_config: Mapping[str, Any], _credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider."""
    return following("infiniband", SurveyReader().read)


class SurveyReader:
    """Parses each survey once; the networks stay as bytes, which take a fraction of the memory."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, bytes | str] = {}
        """The network in a survey, or why there is none, by digest."""
        self._good: dict[str, bytes] = {}
        """The last network of each node."""

    def read(self, known: Known) -> Discovery:
        """Return the HyperNodes of all surveys.

        Raises:
            SourceMissing: no survey can be read.
        """
        surveys = known.view.surveys()
        if not surveys:
            raise SourceMissing("waits for a survey of a node that fabric.ibnetdiscover names or selects")
        faults = self._parse(surveys)
        if not self._good:
            raise SourceMissing(faults[0])
        fabrics, nodes = known.view.fabrics("Ports"), known.nodes
        networks = sorted({*self._good.values()}, key=len)
        while True:
            try:
                subnets = [msgspec.msgpack.decode(network, type=Subnet) for network in networks]
                return infiniband.from_subnets(subnets, fabrics, nodes, known.existing, tuple(faults))
            except MemoryError:
                if len(networks) == 1:
                    raise
                networks.pop()
                faults.append("the largest survey takes too much memory beside the others, and is left out")

    def _parse(self, surveys: Mapping[str, bytes]) -> list[str]:
        """Parse what is new; return the faults."""
        faults = []
        before, self._parsed = self._parsed, {}
        self._good = {node: network for node, network in self._good.items() if node in surveys}
        for node, text in sorted(surveys.items()):
            digest = sha256(text).digest()
            found = self._parsed[digest] = before.get(digest) or self._parsed.get(digest) or _network(text)
            if isinstance(found, bytes):
                self._good[node] = found
            else:
                rest = "; its last good one counts on" if node in self._good else ""
                faults.append(f"a survey cannot be read: {found}{rest}")
        return faults


def _network(text: bytes) -> bytes | str:
    try:
        network = msgspec.msgpack.encode(parsed(text))
    except NotASurvey as error:
        return str(error)
    except MemoryError:
        return "it takes more memory than the provider has"
    if len(network) > MAX_NETWORK_BYTES:
        return f"its network takes {len(network)} bytes; {MAX_NETWORK_BYTES} are possible"
    return network

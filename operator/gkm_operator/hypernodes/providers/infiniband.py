"""The provider `infiniband`: surveys of subnets, joined with the GUIDs of NodeFabrics.

Agents write surveys: they are foreign. A survey is the output of ibnetdiscover, compressed by gzip, in base64 as in its
ConfigMap. One that cannot be read, takes too much memory, or leaves no order in the network, is a fault of this survey
alone, and its last good one stays in use until this process ends.
"""

import binascii
import time
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from gkm.api.fabrics import NodeFabric
from gkm.api.topology_settings import InfinibandConfig
from gkm.topology.fabrics import ibnetdiscover, infiniband
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted
from gkm.topology.fabrics.ibnetdiscover import NotASurvey
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.rails import TooIrregular
from gkm.topology.fabrics.subnet import Subnet
from gkm.topology.providers import Provider

from gkm_operator.hypernodes.providers.polling import Known, SourceMissing, following, parse_config

_GZIP = 16 + zlib.MAX_WBITS


def subnet_of(survey: bytes) -> Subnet:
    """Decode the text of an InfiniBand survey and return its network.

    Raises:
        NotASurvey: the text is not compressed by gzip, is too long, or is no output of ibnetdiscover.
    """
    try:
        stream = zlib.decompressobj(_GZIP)
        text = stream.decompress(b64decode(survey, validate=True), ibnetdiscover.MAX_BYTES + 1)
    except (binascii.Error, zlib.error):
        raise ibnetdiscover.NotASurvey("the survey is not compressed by gzip and in base64") from None
    if len(text) <= ibnetdiscover.MAX_BYTES and not stream.eof:
        raise ibnetdiscover.NotASurvey("the survey is truncated")
    return ibnetdiscover.parse(text)


MAX_NETWORK_BYTES = 24 << 20
"""Limit of bytes of one decoded survey; 10,000 hosts with eight adapters have 12 MiB."""
AGAIN_SECONDS = 300.0
"""Seconds after which surveys that were left out are tried again."""
_SEARCH_SECONDS = 30.0
"""Seconds for finding the survey that must be left out."""
_NO_MEMORY = "it takes more memory than the provider has"


def provider(config: Mapping[str, Any], _credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider `infiniband`; `config` is its configuration."""
    settings = parse_config(config, InfinibandConfig)
    return following("infiniband", SurveyReader(Counted(settings.adapters, settings.switches)).read)


class SurveyReader:
    """Parses each InfiniBand survey once, and makes HyperNodes of all; networks are kept as bytes to save memory."""

    def __init__(self, counted: Counted = EVERY_CABLE, clock: Callable[[], float] = time.monotonic) -> None:
        self._counted = counted
        self._clock = clock
        self._parsed: dict[bytes, bytes | str] = {}
        """The network in a survey, or why there is none, by digest."""
        self._good: dict[str, bytes] = {}
        """The last network of each node."""
        self._read_as: dict[str, bytes] = {}
        """The source of the last network of each node: its survey, as it was parsed."""
        self._used: dict[str, bytes] = {}
        """The network of each node in the last tree."""
        self._left_out: dict[bytes, str] = {}
        """Networks that cannot be used beside the others, and why."""
        self._again = 0.0

    def read(self, known: Known) -> FabricDiscovery:
        """Return the HyperNodes that all usable surveys show.

        Raises:
            SourceMissing: no survey can be used.
        """
        surveys = known.view.surveys()
        if not surveys:
            raise SourceMissing("waits for a survey of a node that fabric.ibnetdiscover names or selects")
        faults = self._parse(surveys)
        if not self._good:
            raise SourceMissing(faults[0])
        discover = partial(_discover, known, known.view.fabrics("Ports"), self._counted)
        deadline = self._clock() + _SEARCH_SECONDS
        while usable := self._usable():
            networks = sorted({*usable.values()})
            found = discover(networks)
            if isinstance(found, FabricDiscovery):
                break
            self._left_out[self._harmful(networks, discover, deadline)] = found
        else:
            raise SourceMissing(f"no survey can be used: {next(iter(self._left_out.values()))}")
        self._used = usable
        for node, network in sorted(self._good.items()):
            if why := self._left_out.get(network):
                faults.append(f"a survey is left out beside the others: {why}{_rest(node in usable)}")
        return replace(found, faults=(*faults, *found.faults))

    def _usable(self) -> dict[str, bytes]:
        """Return the network of each usable node; a network that is left out is replaced by the last tree's network."""
        wanted = {
            node: self._used.get(node, network) if network in self._left_out else network
            for node, network in self._good.items()
        }
        return {node: network for node, network in wanted.items() if network not in self._left_out}

    def _harmful(
        self, networks: Sequence[bytes], discover: Callable[[Sequence[bytes]], FabricDiscovery | str], deadline: float
    ) -> bytes:
        """Return a network without which the others can be used; the first one without a timely result.

        Those that were not in the last tree come first, for it had order, and the largest of them.
        """
        used = {*self._used.values()}
        candidates = sorted(networks, key=lambda network: (network in used, -len(network)))
        for network in candidates:
            if self._clock() >= deadline:
                break
            if isinstance(discover([other for other in networks if other != network]), FabricDiscovery):
                return network
        return candidates[0]

    def _parse(self, surveys: Mapping[str, bytes]) -> list[str]:
        """Parse what is new, and what is to be tried again; return the faults."""
        again = self._clock() >= self._again
        if again:
            self._again = self._clock() + AGAIN_SECONDS
        faults = []
        before, self._parsed = self._parsed, {}
        networks = {*self._good.values()}
        self._good = {node: network for node, network in self._good.items() if node in surveys}
        self._read_as = {node: network for node, network in self._read_as.items() if node in surveys}
        for node, text in sorted(surveys.items()):
            digest = sha256(text).digest()
            found = self._parsed.get(digest) or before.get(digest)
            if found is None or (found == _NO_MEMORY and again and digest not in self._parsed):
                found = _network(text)
            self._parsed[digest] = found
            if isinstance(found, bytes):
                if found is not self._read_as.get(node):
                    self._good[node] = _filled(found, self._good.get(node))
                    self._read_as[node] = found
            else:
                faults.append(f"a survey cannot be read: {found}{_rest(node in self._good)}")
        if again or networks != {*self._good.values()}:
            self._left_out = {}
        return faults


def _filled(network: bytes, earlier: bytes | None) -> bytes:
    """Return a network with what only an earlier one shows, if it is not whole and both together are not too large."""
    if earlier is None:
        return network
    try:
        subnet = msgspec.msgpack.decode(network, type=Subnet)
        if not subnet.faults:
            return network
        both = msgspec.msgpack.encode(subnet.filled(msgspec.msgpack.decode(earlier, type=Subnet)))
    except MemoryError:
        return network
    return both if len(both) <= MAX_NETWORK_BYTES else network


def _rest(counts: bool) -> str:  # noqa: FBT001 -- what the text depends on
    return "; its last good one is still used" if counts else ""


def _discover(
    known: Known, fabrics: Iterable[NodeFabric], counted: Counted, networks: Iterable[bytes]
) -> FabricDiscovery | str:
    """Return the HyperNodes of networks, or the reason why there are no HyperNodes."""
    try:
        subnets = [msgspec.msgpack.decode(network, type=Subnet) for network in networks]
        return infiniband.from_subnets(subnets, fabrics, known.nodes, known.existing, counted=counted)
    except MemoryError:
        return _NO_MEMORY
    except TooIrregular as error:
        return str(error)


def _network(text: bytes) -> bytes | str:
    try:
        network = msgspec.msgpack.encode(subnet_of(text))
    except NotASurvey as error:
        return str(error)
    except MemoryError:
        return _NO_MEMORY
    if len(network) > MAX_NETWORK_BYTES:
        return f"its network takes {len(network)} bytes; {MAX_NETWORK_BYTES} are possible"
    return network

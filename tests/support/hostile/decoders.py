"""Every decoder of JSON from outside, by where the text comes from."""

from functools import partial
from types import SimpleNamespace
from typing import Any

from gkm.api import config
from gkm.api.caches import GKMCache
from gkm.api.fabrics import NodeFabric
from gkm.gpus import inventory
from gkm.gpus.values import Inventory
from gkm.hoststate import files
from gkm.images.assembly import factors_file, triton, vllm
from gkm.templates.rendering import frames, process
from gkm.topology import lists, nodes, pods, provider_trees
from gkm.topology.fabrics import lldpd, tree_file, ufm
from gkm_agent.fabric import lldp, watch
from gkm_agent.standalone.source import manifests_in
from gkm_cli import credential_helpers
from gkm_cli.cache import machines
from support.hostile.decoder import MIB, OBJECT_FACTOR, Decoder
from support.hostile.image_decoders import IMAGES, SIGNATURES
from support.hostile.kube_decoders import KUBE


def _file(text: bytes) -> Any:  # noqa: ANN401 -- gkm.images.assembly.contents.Entry, of which no file is needed here
    return SimpleNamespace(directory=False, name="x.json", size=len(text), read=lambda: text)


_LLDPCLI = dict[str, list[dict[str, list[dict[str, list[dict[str, list[dict[str, str]]]]]]]]]
HOSTS = (
    Decoder("lldpcli", lambda text: lldp.decode(text, lambda _: True), _LLDPCLI, watch.MAX_BYTES),
    Decoder("lldpcli of several nodes", lldpd.decode_nodes, dict[str, _LLDPCLI], lldpd.MAX_BYTES),
    Decoder("ports of UFM", ufm.decode, list[ufm.PortRow], ufm.MAX_PAGE_BYTES),
    Decoder("reply of a rendering child", process.decode, process.ChildReply, frames.MAX_REPLY_BYTES),
    Decoder("probe of GPUs", inventory.decode, Inventory, inventory.MAX_OUTPUT),
    Decoder(
        "credential helper",
        partial(credential_helpers.login_in, "x", 0),
        credential_helpers._HelperOutput,
        credential_helpers.MAX_OUTPUT_BYTES,
    ),
    # 10,000 nodes that cannot be read are named, each with why.
    Decoder(
        "nodes offline",
        lambda text: lists.parse_nodes([text]),
        lists._List,
        64 * MIB,
        free=5 * MIB,
        factor=OBJECT_FACTOR,
    ),
    Decoder(
        "NodeFabrics offline", lambda text: lists.parse_fabrics([text]), NodeFabric, 64 * MIB, factor=OBJECT_FACTOR
    ),
    Decoder("one node offline", lambda text: lists.parse_nodes([text]), nodes.Node, 64 * MIB, factor=OBJECT_FACTOR),
    Decoder("one pod offline", lambda text: lists.parse_pods([text]), pods.Pod, 64 * MIB, factor=OBJECT_FACTOR),
    Decoder("version of a kernel", triton.version_in, triton.KernelVersion, triton.MAX_METADATA_BYTES),
    Decoder(
        "metadata of a kernel", lambda text: triton.parse_kernel(_file(text)), triton.Kernel, triton.MAX_METADATA_BYTES
    ),
    # The number of its values has an absolute limit instead.
    Decoder(
        "tree of a provider",
        provider_trees.decode,
        provider_trees.TreeContent,
        provider_trees.MAX_BYTES,
        factor=OBJECT_FACTOR,
    ),
    Decoder("factors of vLLM", lambda text: vllm._factors(_file(text)), vllm.CacheKeyFactors, factors_file.MAX_BYTES),
)
YAML = (
    Decoder("GPUs in a file", lambda text: machines.parse(text, "x"), list[machines._Node], machines.MAX_BYTES),
    # JSON is YAML. A value takes up to a kilobyte, so their number is limited instead (gkm.api.documents).
    Decoder("configuration file", config.parse, config.Config, files.MAX_BYTES, free=48 * MIB, factor=0),
    Decoder("tree file", tree_file.parse, tree_file.Model, tree_file.MAX_BYTES, free=48 * MIB, factor=0),
    Decoder("manifests of the agent", manifests_in, list[GKMCache], MIB, free=48 * MIB, factor=0),
)
GROUPS = {"images": IMAGES, "signatures": SIGNATURES, "kube": KUBE, "hosts": HOSTS, "yaml": YAML}
DECODERS = {decoder.name: decoder for group in GROUPS.values() for decoder in group}

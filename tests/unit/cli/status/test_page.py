"""The page of a status: the parts of the screen and two pictures, bounded, and safe with any text."""

import re
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from gkm.api.topology_settings import HyperNodes, Topology, TopologyProvider
from gkm.kube.errors import ApiError
from gkm.kube.resources import NODES, Resource
from gkm_cli.cells import Drawing, picture
from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.clusters.usage import PODS
from gkm_cli.status import drawings, page
from gkm_cli.status.parts import (
    CACHE_STATES,
    CacheKind,
    Caches,
    CacheState,
    FabricDomain,
    FabricDomains,
    Nodes,
    NotKnown,
    Problems,
    RunState,
    Status,
    WaitingPods,
    WaitingVolume,
    WorkloadDomain,
)
from support.cli.html_tags import Tags
from support.cli.plan_files import node, pod
from support.kube.fake_api import FakeApi

EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e&quot;'"
MOST_BYTES = 3_000_000


def cache(name: str, state: str = "ready", nodes: tuple[int, int, int, int, int] = (4, 3, 2, 1, 5)) -> CacheState:
    return CacheState("GKMCache", "ml", name, "", 0, state, *nodes, "Because", name)


def status(text: str, count: int = 1) -> Status:
    """A status whose texts are all `text`, with so many objects of each kind."""
    each = range(count)
    kind = CacheKind(text, count, dict.fromkeys(CACHE_STATES, 0), 1, 1, 1, 1)
    return Status(
        time=text,
        namespace="",
        nodes=Nodes(count, count, count, 0, 0, 0, (text,) * count),
        caches=Caches((kind,), tuple(cache(text, "failed") for _ in each)),
        waiting_pods=WaitingPods(count, tuple(WaitingVolume(text, text, 1, text, text, text) for _ in each)),
        fabric_domains=FabricDomains(tuple(FabricDomain(text, 3, 1, 1, 1) for _ in each), 1, (text,) * count),
        compute_domains=tuple(WorkloadDomain(text, text, "not ready", 3, 2, 1, text, text) for _ in each),
        runs=tuple(RunState(text, text, "not planned", 8, 0, 0, "", text, text) for _ in each),
        problems=Problems(1, 0, 0, 0, (), ()),
    )


@pytest.fixture
def api() -> FakeApi:
    """A rack of four nodes with eight GPUs; a node is cordoned, and a pod takes five GPUs of another."""
    made = FakeApi()
    for number in range(4):
        add(made, NODES, node(f"gpu-{number}", "rack0", "b0", unschedulable=number == 3))
    add(made, PODS, pod("busy", "gpu-0", 5))
    return made


def add(api: FakeApi, resource: Resource[Any], item: dict[str, dict[str, str]]) -> None:
    api.create(resource, item)
    name, where = item["metadata"]["name"], item["metadata"].get("namespace")
    api.merge(resource, name, {"status": item["status"]}, where, subresource="status")


def topology(api: FakeApi) -> Drawing | NotKnown:
    return page.topology(ClusterConnection(api, "default"), Topology)


def totals(drawn: Drawing | NotKnown) -> dict[str, int]:
    assert isinstance(drawn, Drawing)
    return {style.meaning: count for style, count in zip(drawn.styles, drawn.total, strict=True) if count}


def test_the_topology_has_each_gpu_once(api: FakeApi) -> None:
    assert totals(topology(api)) == {"used by pods": 5, "free": 19, "not usable": 8}


def test_a_node_whose_use_cannot_be_read_has_no_free_gpu(api: FakeApi) -> None:
    wrong = pod("wrong", "gpu-1", 1)
    wrong["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": "many"}}
    add(api, PODS, wrong)
    assert totals(topology(api)) == {"used by pods": 5, "free": 11, "not usable": 8, "not known": 8}


def test_a_topology_that_cannot_be_read_says_why_on_the_page(api: FakeApi) -> None:
    api.fault = lambda _verb, plural: ApiError(403, "Forbidden", "no") if plural == "pods" else None
    drawn = topology(api)
    assert isinstance(drawn, NotKnown)
    text = "\n".join(page.html(status("x"), drawn))
    assert "not known: missing right: list pods in all namespaces" in text
    assert text.count("<svg ") == 1


def test_a_topology_says_which_providers_are_missing_from_it(api: FakeApi) -> None:
    providers = [TopologyProvider("labels"), TopologyProvider("ufm")]
    settings = Topology(hyper_nodes=HyperNodes(enabled=True), providers=providers)
    drawn = page.topology(ClusterConnection(api, "default"), lambda: settings)
    text = "\n".join(page.html(status("x"), drawn))
    assert "the topology of ufm is not used here" in text, "the picture is taken for the topology of the controllers"


def test_caches_are_bars_with_the_shares_of_their_nodes() -> None:
    drawn = drawings.caches(Caches((), (cache("a"), cache("new", "waiting", (0, 0, 0, 0, 0)))))
    assert totals(drawn) == {
        "ready": 4,
        "pulling": 3,
        "waiting": 2,
        "failed": 1,
        "does not fit": 5,
        "on no node": 1,
    }
    root = ET.fromstring("\n".join(picture(drawn, ())))  # noqa: S314 -- our own output, without entities
    drawn_parts = Counter(path.attrib["class"] for path in root.iter("{http://www.w3.org/2000/svg}path"))
    assert drawn_parts == {style.name: 1 for style in drawings.CACHES}
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "cache a (ready): 4 ready, 3 pulling, 2 waiting, 1 failed, 5 does not fit" in titles


def test_no_text_becomes_an_element_or_a_request(api: FakeApi) -> None:
    text = "\n".join(page.html(status(EVIL, 3), topology(api)))
    tags = Tags()
    tags.feed(text)
    assert not {"script", "img", "a", "link", "iframe", "image", "use", "foreignobject"} & tags.tags
    assert not [name for name in tags.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")]
    assert not re.search(r"url\(|@import|\x1b|\u202e", text)
    assert "default-src 'none'" in text


def test_a_page_of_a_large_cluster_is_bounded_and_says_what_it_leaves_out() -> None:
    text = "\n".join(page.html(status("<&" * 100, 10_000), None))
    assert len(text.encode()) < MOST_BYTES
    assert "... and 9900 more" in text
    assert f"not drawn: {10_000 - drawings.MAX_CACHES} more caches" in text

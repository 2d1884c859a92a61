"""A registry that is weak, not hostile: a pull resumes broken downloads, and the content is right in the end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from support.images.archives import image_of_layers, tree
from support.images.hostile_row import MAX_BYTES
from support.images.hostile_scene import LIMITS, SECRET, USER, Fixed, Scene, scene
from support.registry import faults
from support.registry.auth import Auth
from support.registry.faults import Answer, Fault
from support.registry.server import Registry as RealRegistry
from support.registry.wire import Request

CONTENT = bytes(range(256)) * 4000
LAYER = tree(("io.triton.cache/K/a.cubin", CONTENT))
TENTH = len(LAYER) // 10


@dataclass(frozen=True)
class Weakness:
    """A fault of the layer's download, and the first byte that the next request asks for."""

    name: str
    faults: Callable[[str], tuple[Fault, ...]]
    asked: tuple[int, ...]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


WEAKNESSES = (
    Weakness("reset at 90 %", lambda blob: (faults.reset(blob, 9 * TENTH, times=1),), (0, 9 * TENTH)),
    Weakness("cut at 90 %", lambda blob: (faults.truncated(blob, 9 * TENTH, times=1),), (0, 9 * TENTH)),
    Weakness("cut three times", lambda blob: (faults.truncated(blob, 1000, times=3),), (0, 1000, 2000, 3000)),
    Weakness("a length that is too long", lambda blob: (faults.wrong_length(blob, len(LAYER) + 10),), (0,)),
    Weakness("no length", lambda blob: (faults.without_length(blob),), (0,)),
    Weakness(
        "busy for a moment", lambda blob: (faults.status(blob, 429, times=2, headers={"Retry-After": "0"}),), (0,) * 3
    ),
    Weakness("away for a moment", lambda blob: (faults.status(blob, 503, times=2),), (0,) * 3),
    Weakness("silent once", lambda blob: (faults.stalled(blob, after=5000, times=1),), (0, 5000)),
)


def fetched(site: Scene, layout: Layout) -> Path:
    registry = site.client()
    image = cache.describe(registry, site.ref.pinned(registry.resolve(site.ref)))
    return pull.fetch(registry, image, layout, max_bytes=MAX_BYTES).path


@pytest.mark.parametrize("weakness", WEAKNESSES, ids=str)
def test_a_weak_registry_costs_a_try_and_no_byte(weakness: Weakness, tmp_path: Path, layout: Layout) -> None:
    with scene(tmp_path) as site:
        site.put(LAYER)
        blob = f"blobs/{site.layers[0]}"
        site.real.misbehave(*weakness.faults(blob))
        path = fetched(site, layout)
        asked = [request.headers.get("range", "bytes=0-") for request in site.real.seen("GET", blob)]
    assert (path / "cache" / "K" / "a.cubin").read_bytes() == CONTENT
    assert asked == [f"bytes={start}-" for start in weakness.asked]


def test_a_dripping_download_ends_and_its_bytes_are_resumed(tmp_path: Path, layout: Layout) -> None:
    with scene(tmp_path) as site:
        site.put(LAYER)
        blob = f"blobs/{site.layers[0]}"
        site.real.misbehave(faults.dripping(blob, 100, 0.05))
        with pytest.raises(GKMError) as caught:
            fetched(site, layout)
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
        assert caught.value.transient
        (part,) = layout.blobs.iterdir()
        came = part.stat().st_size
        site.real.behave()
        site.real.requests.clear()
        path = fetched(site, layout)
        assert [request.headers["range"] for request in site.real.seen("GET", blob)] == [f"bytes={came}-"]
    assert 0 < came < len(LAYER)
    assert (path / "cache" / "K" / "a.cubin").read_bytes() == CONTENT


class Diverting(RealRegistry):
    """A registry that redirects uploads to another host."""

    elsewhere: str = ""

    def answer(self, request: Request) -> Answer:
        answer = super().answer(request)
        if request.method == "POST" and answer.status == 202:
            path = dict(answer.headers)["Location"]
            return answer._replace(headers={**answer.headers, "Location": f"{self.elsewhere}{path}"})
        return answer


def test_an_upload_to_another_host_carries_no_credentials() -> None:
    """oras-go CVE-2026-50151: Authorization followed the Location of an upload to any host."""
    with RealRegistry.start() as thief, Diverting.start(auth=Auth(USER, SECRET, bearer=False)) as real:
        assert isinstance(real, Diverting)
        real.elsewhere = thief.url
        hosts = {host: RegistryHost(plain_http=True) for host in (real.host, thief.host)}
        client = Registry(Registries(hosts=hosts), Fixed(), LIMITS)
        with pytest.raises(GKMError) as caught:
            push.image(client, Reference.parse(f"{real.host}/team/x:1"), image_of_layers(LAYER))
        assert SECRET not in str(caught.value)
        assert not any("authorization" in request.headers for request in thief.requests)

"""Where kubelet pulls the images, a status has the verified image, and counts the nodes of the pods that have it."""

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, Literal

import pytest
from gkm.api.caches import CacheStatus, ImageVolume
from gkm.images.signatures.verify import Verdict
from gkm.kube.controller import close_watches, stop_all
from gkm.kube.resources import CSI_DRIVERS, GKMCACHES
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.throttling import StatusInterval
from gkm_operator.installation import faults
from gkm_operator.pods import PODS
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.operator.deployment import cache
from support.operator.images import DIGEST, GOOD, OTHER, UNSIGNED, FakeImages
from support.operator.nodes import put

IMAGE = "registry.test/team/cache:1"
REFERENCE = f"registry.test/team/cache@{DIGEST}"
VOLUME = ImageVolume(REFERENCE, "/cache", ["sm_90"])
Delivery = Literal["csi", "image", "auto"]


class Watched:
    """The controllers of a cluster with one cache."""

    def __init__(self, delivery: Delivery = "image", verdict: Verdict = GOOD, namespace: str | None = "a") -> None:
        self.api = FakeApi()
        self.images = FakeImages({IMAGE: DIGEST}, {DIGEST: verdict, OTHER: GOOD}, volumes={DIGEST: VOLUME})
        self.stop = Event()
        self.controller = CachesController(
            self.api, self.images, status_interval=StatusInterval(0.0, 0.0), delivery=delivery
        )
        self.api.create(GKMCACHES, cache("x", IMAGE, namespace))

    def run(self) -> None:
        assert self.controller.watch(self.stop)
        self.controller.work()

    def pod(self, name: str, node: str, phase: str = "Running", namespace: str = "a", **volume: Any) -> None:  # noqa: ANN401 -- JSON
        """Create or change a pod with an image volume."""
        source = volume or {"image": {"reference": REFERENCE}}
        spec = {"nodeName": node, "containers": [{"name": "a"}], "volumes": [{"name": "gkm-cache", **source}]}
        meta = {"name": name, "namespace": namespace}
        put(
            self.api,
            PODS,
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}},
        )

    def until(self, good: Callable[[CacheStatus], object]) -> CacheStatus:
        def probe() -> CacheStatus | None:
            status = self.api.get(GKMCACHES, "x", "a").status
            return status if good(status) else None

        return until(probe, "the status")

    def counts(self, total: int, ready: int, pods: int) -> CacheStatus:
        wanted = (total, ready, pods)
        return self.until(lambda status: (status.total_nodes, status.ready_nodes, status.pods_using) == wanted)


@pytest.fixture
def made() -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def start(**arguments: Any) -> Watched:  # noqa: ANN401 -- of Watched
        started.append(Watched(**arguments))
        return started[-1]

    yield start
    stop_all([each.controller for each in started])
    close_watches([each.controller for each in started])


def test_the_status_has_the_verified_image_and_says_how_pods_get_it(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.run()
    status = watched.until(lambda status: status.image_volume)
    assert (status.delivery, status.image_volume) == ("image", VOLUME)
    ready = status.condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "ImageVolume")


def test_an_image_without_a_mount_path_says_what_to_do(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.images.volumes = {}
    watched.run()
    status = watched.until(lambda status: status.condition("Ready"))
    ready = status.condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "NoMountPath")
    assert "gkm cache build --for-path" in ready.message


def test_a_refused_image_has_no_volume(made: Callable[..., Watched]) -> None:
    watched = made(verdict=UNSIGNED)
    watched.run()
    status = watched.until(lambda status: status.condition("Verified"))
    assert status.image_volume is None
    assert status.delivery == "image"


def test_a_verdict_that_is_taken_back_takes_the_volume_along(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.run()
    watched.until(lambda status: status.image_volume)
    watched.images.verdicts[DIGEST] = UNSIGNED
    watched.controller.verification.recheck_all()
    status = watched.until(lambda status: status.image_volume is None)
    verified = status.condition("Verified")
    assert verified is not None
    assert verified.status == "False"


def test_the_nodes_are_those_of_the_pods_with_this_image(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.pod("one", "node-a")
    watched.pod("two", "node-a")
    watched.pod("three", "node-b", "Pending")
    watched.pod("waits", "", "Pending")
    watched.pod("other", "node-c", namespace="b")
    watched.pod("older", "node-c", image={"reference": f"registry.test/team/cache@{OTHER}"})
    watched.pod("directory", "node-c", emptyDir={})
    watched.run()
    watched.counts(2, 1, 2)
    watched.pod("three", "node-b")
    watched.counts(2, 2, 3)
    watched.pod("three", "node-b", "Succeeded")
    watched.api.delete(PODS, "one", "a")
    watched.counts(1, 1, 1)


def test_auto_is_stated_and_follows_the_csidriver(made: Callable[..., Watched]) -> None:
    watched = made(delivery="auto")
    watched.pod("one", "node-a")
    watched.run()
    assert watched.counts(1, 1, 1).delivery == "image"
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.gkm.io"}}
    watched.api.create(CSI_DRIVERS, driver)
    assert watched.counts(0, 0, 0).delivery == "csi"
    watched.api.delete(CSI_DRIVERS, "csi.gkm.io")
    assert watched.counts(1, 1, 1).delivery == "image"


def test_without_the_word_no_pod_is_watched_for_its_images(made: Callable[..., Watched]) -> None:
    watched = made(delivery="csi")
    watched.pod("one", "node-a")
    watched.run()
    status = watched.until(lambda status: status.image_volume)
    assert (status.delivery, status.total_nodes) == ("csi", 0)


def test_an_installation_without_nodes_is_complete() -> None:
    assert set(faults(None, None, None, "image").values()) == {""}
    assert set(faults(None, None, None, "auto").values()) == {""}
    assert all(faults(None, None, None).values())
    assert faults(None, {"metadata": {}}, None, "auto")["csidriver"] == "there is no CSIDriver csi.gkm.io"

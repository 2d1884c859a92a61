"""What the schema refuses of updatePolicy, and what the API server does with a status made from an older object."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gkm.api.caches import CacheStatus
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from gkm_operator.caches.controller import FIELD_MANAGER
from gkm_operator.caches.status import apply_configuration
from support.cluster.cluster import Cluster
from support.operator.deployment import Shelf, cache, operator
from support.operator.images import DIGEST, OTHER

NAMESPACE, NAME = "tracked", "x"
TAG = "registry.example/team/cache:1"


@pytest.fixture(scope="module")
def api(gkm_cluster: Cluster) -> Api:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return connect(str(gkm_cluster.kubeconfig))


@pytest.fixture
def clean(api: Api) -> Iterator[None]:
    yield
    for resource, namespace in ((GKMCACHES, NAMESPACE), (CLUSTERGKMCACHES, None)):
        try:
            api.delete(resource, NAME, namespace)
        except ApiError as error:
            assert error.not_found


@pytest.fixture
def controllers(gkm_cluster: Cluster) -> Api:
    """The API with the controllers' account, the only one that may write a status."""
    return connect(str(gkm_cluster.kubeconfig_for("system:serviceaccount:gkm-system:gkm-controllers")))


def make(api: Api, image: str, namespace: str | None = NAMESPACE, **policy: str) -> None:
    made = cache(NAME, image, namespace)
    resource: Resource[Any] = GKMCACHES if namespace else CLUSTERGKMCACHES
    api.create(resource, made | {"spec": made["spec"] | ({"updatePolicy": policy} if policy else {})})


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("namespace", [NAMESPACE, None], ids=["GKMCache", "ClusterGKMCache"])
@pytest.mark.parametrize("image", [f"registry.example/team/cache@{DIGEST}", f"{TAG}@{DIGEST}"])
def test_an_image_named_by_digest_cannot_be_tracked(api: Api, image: str, namespace: str | None) -> None:
    with pytest.raises(ApiError, match="named by digest cannot be tracked"):
        make(api, image, namespace, mode="Track")
    make(api, image, namespace, mode="Pinned")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("interval", "why"),
    [
        ("59s", "at least 1m"),
        ("0h", "at least 1m"),
        ("", "updatePolicy.interval"),
        ("15", "updatePolicy.interval"),
        ("-5m", "updatePolicy.interval"),
        ("99999999999999h", "updatePolicy.interval"),
        ("1m1m1m1m1m1m1m1m1m", "updatePolicy.interval"),
    ],
)
def test_an_interval_that_no_registry_should_bear_is_refused(api: Api, interval: str, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        make(api, TAG, mode="Track", interval=interval)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("interval", ["1m", "60s", "15m", "1h30m", "720h"])
def test_valid_intervals_are_accepted(api: Api, interval: str) -> None:
    make(api, TAG, mode="Track", interval=interval)
    found = api.get(GKMCACHES, NAME, NAMESPACE).spec.update_policy
    assert (found.tracks, found.interval) == (True, interval)


@pytest.mark.usefixtures("clean")
def test_a_status_made_from_an_older_object_is_a_conflict_and_changes_nothing(api: Api, controllers: Api) -> None:
    make(api, TAG)
    old = api.get(GKMCACHES, NAME, NAMESPACE)
    written = apply_configuration(old, CacheStatus(image=TAG, resolved_digest=OTHER))
    controllers.apply(GKMCACHES, written, field_manager=FIELD_MANAGER, subresource="status")
    stale = apply_configuration(old, CacheStatus(image=TAG, resolved_digest=DIGEST))
    with pytest.raises(ApiError) as refused:
        controllers.apply(GKMCACHES, stale, field_manager=FIELD_MANAGER, subresource="status")
    assert refused.value.conflict
    assert api.get(GKMCACHES, NAME, NAMESPACE).status.resolved_digest == OTHER


@pytest.mark.usefixtures("clean")
def test_a_tag_that_has_moved_is_followed_as_soon_as_it_is_tracked(
    api: Api, gkm_cluster: Cluster, images: Shelf, tmp_path: Path
) -> None:
    image, first = images.push("tracked")
    config = tmp_path / "config.yaml"
    config.write_text(images.config(), encoding="utf-8")
    account = gkm_cluster.kubeconfig_for("system:serviceaccount:gkm-system:gkm-controllers")
    arguments = (f"--config={config}", "--health=127.0.0.1:0", f"--kubeconfig={account}")

    def standing() -> CacheStatus:
        return api.get(GKMCACHES, NAME, NAMESPACE).status

    def reason() -> str:
        verified = standing().condition("Verified")
        return verified.reason if verified else ""

    with operator(tmp_path, "controllers", *arguments):
        make(api, image)
        gkm_cluster.until(lambda: standing().resolved_digest == first, "it is verified")
        _, second = images.push("tracked", salt="moved")
        api.merge(GKMCACHES, NAME, {"spec": {"updatePolicy": {"mode": "Track"}}}, NAMESPACE)
        gkm_cluster.until(lambda: standing().resolved_digest == second, "the tag is followed")
        images.push("tracked", salt="moved to something unsigned", flaw=None)
        # Any change of the policy has it looked at; nobody waits for an interval here.
        api.merge(GKMCACHES, NAME, {"spec": {"updatePolicy": {"interval": "20m"}}}, NAMESPACE)
        gkm_cluster.until(lambda: reason() == "UpdateRefused", "what is unsigned is refused")
        assert standing().resolved_digest == second

"""What the schema refuses of spec.rollout, and that the API server stores and removes the status of a rollout."""

from collections.abc import Iterator
from typing import Any

import pytest
from gkm.api.rollouts import LAST_RANK, RolloutPolicy, RolloutStatus
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from gkm_operator.caches.controller import FIELD_MANAGER
from gkm_operator.caches.status import apply_configuration
from msgspec import structs
from support.cluster.cluster import Cluster
from support.operator.deployment import cache
from support.operator.images import DIGEST

NAMESPACE, NAME = "rollouts", "x"
KINDS = pytest.mark.parametrize(
    ("resource", "namespace"), [(GKMCACHES, NAMESPACE), (CLUSTERGKMCACHES, None)], ids=["GKMCache", "ClusterGKMCache"]
)


@pytest.fixture(scope="module")
def api(gkm_cluster: Cluster) -> Api:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return connect(str(gkm_cluster.kubeconfig))


@pytest.fixture
def controllers(gkm_cluster: Cluster) -> Api:
    """The API with the controllers' account, the only one that may write a status."""
    return connect(str(gkm_cluster.kubeconfig_for("system:serviceaccount:gkm-system:gkm-controllers")))


@pytest.fixture(autouse=True)
def clean(api: Api) -> Iterator[None]:
    yield
    for resource, namespace in ((GKMCACHES, NAMESPACE), (CLUSTERGKMCACHES, None)):
        try:
            api.delete(resource, NAME, namespace)
        except ApiError as error:
            assert error.not_found


def make(api: Api, resource: Resource[Any], namespace: str | None, rollout: object) -> None:
    made = cache(NAME, "registry.example/team/cache:1", namespace)
    api.create(resource, made | {"spec": made["spec"] | {"rollout": rollout}})


@KINDS
@pytest.mark.parametrize("rollout", [{"maxConcurrentNodes": 0}, {"maxConcurrentNodes": 100_001}, {}])
def test_a_number_of_nodes_that_makes_no_sense_is_refused(
    api: Api, resource: Resource[Any], namespace: str | None, rollout: dict[str, int]
) -> None:
    with pytest.raises(ApiError, match="maxConcurrentNodes"):
        make(api, resource, namespace, rollout)


@KINDS
def test_the_status_of_a_rollout_is_stored_and_removed(
    api: Api, controllers: Api, resource: Resource[Any], namespace: str | None
) -> None:
    make(api, resource, namespace, {"maxConcurrentNodes": 3})
    expected = RolloutStatus(DIGEST, LAST_RANK)
    for rollout in (expected, None):
        found = api.get(resource, NAME, namespace)
        assert found.spec.rollout == RolloutPolicy(3)
        status = structs.replace(found.status, rollout=rollout)
        controllers.apply(
            resource, apply_configuration(found, status), field_manager=FIELD_MANAGER, subresource="status"
        )
        assert api.get(resource, NAME, namespace).status.rollout == rollout

"""Random pods on a real kube-apiserver, with and without the webhook of caches: it makes no valid pod invalid."""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, DEFAULT_CACHE, INJECTED
from gkm.kube.client import connect
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import cache, namespace
from support.examples import examples
from support.operator.admission_process import AdmissionSite
from support.operator.deployment import called_here, component
from support.operator.random_pods import Json, PodTries, Tried, random_pod

WITH, WITHOUT = "pods-with", "pods-without"
NUMBER = examples(2000)
SEED = 34
UNCALLED = {"name": "not-compared", "expression": f"request.namespace != '{WITHOUT}'"}


@pytest.fixture(scope="module")
def tries(gkm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodTries]:
    with ExitStack() as stack:
        site = AdmissionSite(
            gkm_cluster, connect(str(gkm_cluster.kubeconfig)), stack, tmp_path_factory.mktemp("admission")
        )
        spaces = [namespace(name) for name in (WITH, WITHOUT)]
        for each in spaces:
            each["metadata"]["labels"] = {DEFAULT_CACHE: "llama"}
        gkm_cluster.apply(spaces)
        for name in (WITH, WITHOUT):
            gkm_cluster.until(lambda name=name: gkm_cluster.exists("serviceaccount", "default", name), "its account")  # type: ignore[misc] # bound now
        gkm_cluster.apply([cache("llama", WITH, "registry.test/a:1"), cache("shared", None, "registry.test/a:1")])
        found = component("pod-caches")
        gkm_cluster.apply([called_here(each, site.port, UNCALLED) if "webhooks" in each else each for each in found])
        site.serve({"fabric": {"cacheLabels": True}}, "gkm-pod-caches", "--pod-caches=on", ("mutating",))
        made = PodTries(gkm_cluster)
        gkm_cluster.until(lambda: is_called(made), "the webhook to see the default of the namespace")
        yield made
        gkm_cluster.objects.delete_named("mutatingwebhookconfiguration", "gkm-pod-caches")


def is_called(tries: PodTries) -> bool:
    spec = {"containers": [{"name": "main", "image": "registry.test/a:1"}]}
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    return INJECTED in tries.create(plain, WITH).pod["metadata"].get("annotations", {})


def test_no_pod_that_was_valid_is_refused_and_no_field_of_it_changes(tries: PodTries) -> None:
    random = Random(SEED)
    pods = [random_pod(random) for _ in range(NUMBER)]
    assert_the_pods_are_of_many_shapes(pods, tries.compared(pods, WITHOUT, WITH))


def assert_the_pods_are_of_many_shapes(pods: list[Json], valid: list[tuple[Tried, Tried]]) -> None:
    """A test of pods that are all refused, or that all stay as they are, would prove no statement."""
    changed = [new.pod for _, new in valid if injected(new)]
    plain = [pod for pod in changed if not {CACHE, CLUSTER_CACHE} & set(pod["metadata"].get("labels", {}))]
    assert len(pods) // 3 < len(valid) < len(pods)
    assert min(len(changed), len(valid) - len(changed)) > NUMBER // 20
    assert len(plain) > NUMBER // 20


def injected(tried: Tried) -> bool:
    return any(each["name"] == "gkm-cache" and "csi" in each for each in tried.pod["spec"].get("volumes", ()))


def test_the_largest_pod_that_etcd_stores_is_stored_with_the_webhook_too(tries: PodTries) -> None:
    sizes = range(1 << 20, 2 << 20)
    # The first that etcd refuses; a pod of 1 MiB it stores.
    largest = sizes[bisect_left(sizes, 1, key=lambda size: int(bool(stored(tries, size, WITHOUT)))) - 1]
    assert largest > sizes[0]
    for size in (largest, largest - 200, largest - 2000, (1 << 20) - 2000):
        assert stored(tries, size, WITH) == ""


def stored(tries: PodTries, size: int, space: str) -> str:
    """Store a pod with a variable of a size, and delete it; return the refusal."""
    variable = {"name": "A", "value": "x" * size}
    container = {"name": "main", "image": "registry.test/a:1", "env": [variable]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"s{size}"}, "spec": {"containers": [container]}}
    return tries.store(pod, space)

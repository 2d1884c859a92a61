"""The kind ComputeDomain is removed under running controllers, and installed again: a cluster of its own."""

from collections.abc import Iterator
from functools import partial

import pytest
from support.cluster.gkm_objects import namespace
from support.grove.objects import pod_clique_set
from support.host import pages
from support.operator.domain_cluster import DomainCluster, domain_cluster, install_kinds
from support.operator.domains import ENROLLED
from support.peers import require


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainCluster]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with domain_cluster(tmp_path_factory.mktemp("kind")) as made:
        made.controllers()
        yield made


def test_a_kind_that_is_removed_is_reported_and_its_domains_come_back_with_it(place: DomainCluster) -> None:
    team = "team"
    place.cluster.apply(namespace(team))
    place.cluster.apply(pod_clique_set("my-pcs", replicas=2, annotations=ENROLLED, namespace=team))
    place.until_names(team, "my-pcs-0", "my-pcs-1")
    place.cluster.objects.delete_patiently("customresourcedefinition", "computedomains.resource.nvidia.com")
    try:
        place.cluster.until(partial(place.has_condition, "DomainsAvailable", "False"), "the condition")
        place.cluster.until(lambda: "DomainsUnavailable" in [event[0] for event in place.events(team)], "an event")
        assert pages.fetch(place.health[1], "readyz")[0] == 200
    finally:
        install_kinds(place.cluster)
    place.until_names(team, "my-pcs-0", "my-pcs-1")
    place.cluster.until(partial(place.has_condition, "DomainsAvailable", "True"), "the condition")

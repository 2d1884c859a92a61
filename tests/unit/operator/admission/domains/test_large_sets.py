"""Reviews of objects whose set the watch holds as an outline: the set is read, whole, for each review."""

from gkm.kube.errors import ApiError
from support.grove.objects import NAMESPACE, clique, pod_clique_set
from support.operator.enrolled_cliques import CLIQUES, ENABLED, an_object, keys
from support.operator.workloads import ON, Workloads

MANY = [clique(f"worker-{number}") for number in range(64)]


def a_site() -> Workloads:
    site = Workloads(ON)
    site.create_set(pod_clique_set("test-pcs", *MANY, replicas=2, annotations=ENABLED), *keys(2))
    site.observe()
    return site


def test_its_cliques_get_the_claim() -> None:
    site = a_site()
    held = site.view.pod_clique_set(NAMESPACE, "test-pcs")
    assert held is not None
    assert held.metadata.oversized.startswith("spec.template.cliques: it takes ")
    found = site.review(CLIQUES, an_object(replica=1, name="worker-7"))
    assert found.allowed
    spec = found.object["spec"]["podSpec"]
    assert spec["resourceClaims"] == [{"name": "mnnvl-claim", "resourceClaimTemplateName": "test-pcs-1"}]


def test_a_set_that_cannot_be_read_is_no_reason_to_admit() -> None:
    site = a_site()
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    found = site.review(CLIQUES, an_object(replica=1, name="worker-7"))
    assert not found.allowed
    assert "PodCliqueSet test-pcs cannot be read" in found.message

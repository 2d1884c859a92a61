"""Reviews of workloads on a real kube-apiserver, with the webhooks, the account and the rights that ship."""

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import msgspec
import pytest
from gkm.api.domain_capacity import CliqueCapacity, DomainCapacity, NodePool
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, DOMAIN_LABEL, PART_OF, REPLICA_INDEX
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from gkm_operator.computedomains.objects import of_set
from gkm_operator.mnnvl.required import SetDomainKey
from support.cluster.gkm_objects import namespace
from support.examples import examples
from support.grove.objects import Json, claim_template, clique, container, pod_clique_set
from support.kube.our_kinds import CONTROLLERS
from support.operator.admission_process import AdmissionSite
from support.operator.deployment import called_here
from support.operator.domain_cluster import documents, domain_cluster
from support.operator.random_pods import PodTries, lost, random_pod
from support.operator.workloads import DOMAINS, SETS, publish

NAMESPACE = "domains-admission"
ENABLED = {AUTO_MNNVL: "enabled"}
CLIQUES: Resource[Json] = Resource("grove.io/v1alpha1", "PodClique", "podcliques", namespaced=True, type=Json)
GROUPS: Resource[Json] = Resource(
    "grove.io/v1alpha1", "PodCliqueScalingGroup", "podcliquescalinggroups", namespaced=True, type=Json
)
TEMPLATES: Resource[Json] = Resource(
    "resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", namespaced=True, type=Json
)
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=Json)
CLAIM = [{"name": "mnnvl-claim"}]
DOMAIN_NAMES = ("job", "a.b", "a" * 63, "Not_A_Name")


class Site(AdmissionSite):
    """The cluster with the webhooks of workloads."""

    def start(self) -> None:
        """Start the webhook (again) and wait until the API server calls it."""
        self.serve({"network": {"autoMNNVLEnabled": True, "placement": "preferred"}}, "gkm-domains", "--domains=on")
        # An API server takes a moment to see a changed configuration.
        probe = pod_clique_set("probe", annotations={AUTO_MNNVL: "x"}, namespace=NAMESPACE)
        self.cluster.until(lambda: "must be" in self.refusal(SETS, probe), "the webhook is called")
        if not self.cluster.exists("podcliqueset", "listed", NAMESPACE):
            self.create_set("listed", annotations=ENABLED)
        # Before the domains are listed, the refusal has other words.
        waiting = a_clique("worker", "listed")
        self.cluster.until(lambda: "of its" in self.refusal(CLIQUES, waiting), "the domains to be listed")

    def create_set(self, *words: Any, domains: int = 0, **fields: Any) -> PodCliqueSet:  # noqa: ANN401 -- the builder's
        """Create a set, and the domains of its first replicas as the controllers write them."""
        made = self.api.create(SETS, pod_clique_set(*words, namespace=NAMESPACE, **fields))
        found = msgspec.convert(made, PodCliqueSet)
        for replica in range(domains):
            self.create_domain(found, replica)
        return found

    def create_domain(self, owner: PodCliqueSet, replica: int) -> None:
        desired = of_set(owner, SetDomainKey(replica, ""))
        connect(str(self.cluster.kubeconfig_for(CONTROLLERS))).create(
            DOMAINS, desired.manifest(desired.names[0], "2026-01-01T00:00:00Z")
        )

    def create_clique(self, name: str, of: str, replica: int = 0, **metadata: object) -> Json:
        return self.api.create(CLIQUES, a_clique(name, of, replica, **metadata))

    def created_clique(self, name: str, of: str, replica: int = 0, **metadata: object) -> Json:
        """Create a PodClique as soon as admission has seen its domains."""
        made: list[Json] = []

        def created() -> bool:
            try:
                made.append(self.create_clique(name, of, replica, **metadata))
            except ApiError as error:
                assert "ComputeDomains" in error.message or "does not exist" in error.message
            return bool(made)

        self.cluster.until(created, "the domains to be seen")
        return made[0]

    def refusal(self, resource: Resource[Json], value: Json) -> str:
        try:
            self.api.create(resource, value)
        except ApiError as error:
            return error.message
        return ""


def a_clique(name: str, of: str, replica: int = 0, **metadata: object) -> Json:
    labels = {PART_OF: of, REPLICA_INDEX: str(replica)}
    meta = {"name": f"{of}-{replica}-{name}", "namespace": NAMESPACE, "labels": labels, **metadata}
    return {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "metadata": meta, "spec": clique(name)["spec"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("admission")
    with domain_cluster(tmp_path_factory.mktemp("domains")) as place, ExitStack() as stack:
        cluster = place.cluster
        cluster.apply(namespace(NAMESPACE))
        cluster.until(lambda: cluster.exists("serviceaccount", "default", NAMESPACE), "its account")
        made = Site(cluster, connect(str(cluster.kubeconfig)), stack, directory)
        shipped = documents("webhooks.yaml")
        cluster.apply([*documents("admission-rights.yaml"), *(called_here(each, made.port) for each in shipped)])
        publish(made.api)
        made.start()
        yield made


def test_a_new_set_is_enrolled_by_default_and_its_annotation_is_immutable(site: Site) -> None:
    assert site.create_set("default").metadata.annotation(AUTO_MNNVL) == "enabled"
    assert site.create_set("cpu", clique("worker", 0)).metadata.annotation(AUTO_MNNVL) is None
    assert site.create_set("out", annotations={AUTO_MNNVL: "disabled"}).metadata.annotation(AUTO_MNNVL) == "disabled"
    change: Json = {"metadata": {"annotations": {AUTO_MNNVL: "disabled"}}}
    with pytest.raises(ApiError, match="is immutable"):
        site.api.merge(SETS, "default", change, NAMESPACE)
    with pytest.raises(ApiError, match="cannot be added"):
        site.api.merge(SETS, "cpu", change, NAMESPACE)
    site.api.merge(SETS, "cpu", {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
    site.api.merge(SETS, "cpu", {"spec": {"replicas": 2}}, NAMESPACE)


def test_a_claim_template_shows_whether_a_set_requests_gpus(site: Site) -> None:
    site.api.create(TEMPLATES, claim_template("gpus", "gpu.nvidia.com", namespace=NAMESPACE))
    containers = [{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}]
    by_template = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    claimed = clique("worker", containers=containers, resourceClaims=by_template)
    assert site.create_set("claimed", claimed).metadata.annotation(AUTO_MNNVL) == "enabled"


def test_no_clique_exists_before_all_domains(site: Site) -> None:
    owner = site.create_set("order", replicas=2, domains=1, annotations=ENABLED)
    group = a_clique("sg", "order") | {"kind": GROUPS.kind, "spec": {"replicas": 1, "cliqueNames": ["worker"]}}
    for resource, value in ((CLIQUES, a_clique("worker", "order")), (GROUPS, group)):
        message = site.refusal(resource, value)
        assert "admission webhook" in message
        assert "of its 2 ComputeDomains" in message
    site.create_domain(owner, 1)
    made = site.created_clique("worker", "order")
    spec = made["spec"]["podSpec"]
    assert spec["resourceClaims"] == [{"name": "mnnvl-claim", "resourceClaimTemplateName": "order-0"}]
    assert spec["containers"][0]["resources"]["claims"] == CLAIM
    assert made["metadata"]["labels"][DOMAIN_LABEL] == "order-0"
    assert site.api.create(GROUPS, group)["metadata"]["annotations"] == ENABLED


def test_a_writer_that_replaces_the_specification_gets_the_claim_again(site: Site) -> None:
    site.create_set("replaced", domains=1, annotations=ENABLED)
    site.created_clique("worker", "replaced")
    before = site.cluster.get("podclique", "replaced-0-worker", NAMESPACE)
    template = a_clique("worker", "replaced") | {"spec": {**clique("worker")["spec"], "replicas": 3}}
    site.cluster.objects.replace(template)
    after = site.cluster.get("podclique", "replaced-0-worker", NAMESPACE)
    assert after["spec"] == before["spec"] | {"replicas": 3}
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    site.cluster.objects.scale("podclique", "replaced-0-worker", 4, NAMESPACE)
    assert site.cluster.get("podclique", "replaced-0-worker", NAMESPACE)["spec"]["podSpec"] == before["spec"]["podSpec"]


def test_the_real_api_server_accepts_a_pod_of_an_injected_clique(site: Site) -> None:
    site.create_set("pods", domains=1, annotations=ENABLED)
    made = site.created_clique("worker", "pods")
    labels = made["metadata"]["labels"] | {"grove.io/podclique": "pods-0-worker"}
    metadata = {"name": "pods-0-worker-a", "namespace": NAMESPACE, "labels": labels}
    pod = site.api.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]["podSpec"]}
    )
    assert pod["spec"]["resourceClaims"] == made["spec"]["podSpec"]["resourceClaims"]
    assert pod["spec"]["affinity"] == made["spec"]["podSpec"]["affinity"]
    (term,) = pod["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"] == {"matchLabels": {DOMAIN_LABEL: "pods-0"}}


def a_pod(name: str, domain: str) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {DOMAIN_LABEL: domain}}
    containers = [container("main", 8), container("side")]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def test_a_pod_with_the_label_gets_the_claim_of_that_domain(site: Site) -> None:
    pod = site.api.create(PODS, a_pod("labeled", "job"))
    assert pod["spec"]["resourceClaims"] == [{"name": "mnnvl-claim", "resourceClaimTemplateName": "job"}]
    assert [each["resources"].get("claims") for each in pod["spec"]["containers"]] == [CLAIM, None]
    odd = site.api.create(PODS, a_pod("odd", "No_Name"))
    assert "resourceClaims" not in odd["spec"]


def test_what_the_cluster_lacks_reaches_the_user_as_a_warning(site: Site) -> None:
    capacity = DomainCapacity((CliqueCapacity("a.1", (NodePool("GB200", 8, 18, 2),)),))
    publish(site.api, capacity)
    wanted = pod_clique_set("large", clique("worker", replicas=4), annotations=ENABLED, namespace=NAMESPACE)
    said = "a replica needs 4 whole nodes in one clique; the largest free clique has 2"

    def warned() -> bool:
        return any(said in one for one in site.cluster.objects.warnings(wanted))

    site.cluster.until(warned, "the capacity to be seen")


def test_what_is_being_deleted_loses_its_finalizers_also_without_its_domains(site: Site) -> None:
    owner = site.create_set("going", domains=1, annotations=ENABLED, replicas=1)
    site.created_clique("worker", "going", finalizers=["test.example/x"])
    site.api.merge(SETS, "going", {"spec": {"replicas": 2}}, NAMESPACE)
    assert owner.replicas == 1
    site.cluster.objects.ask_to_delete("podclique", "going-0-worker", NAMESPACE)
    site.api.merge(CLIQUES, "going-0-worker", {"metadata": {"finalizers": None}}, NAMESPACE)
    site.cluster.until(lambda: not site.cluster.exists("podclique", "going-0-worker", NAMESPACE), "it is gone")


def test_an_outage_refuses_workloads_of_grove_and_never_a_pod(site: Site) -> None:
    site.create_set("outage", domains=1, replicas=1, annotations=ENABLED)
    site.created_clique("worker", "outage")
    site.process.stop()
    try:
        outage(site)
    finally:
        site.start()


def outage(site: Site) -> None:
    new = pod_clique_set("new", namespace=NAMESPACE)
    for resource, value in ((SETS, new), (CLIQUES, a_clique("other", "outage"))):
        assert "failed calling webhook" in site.refusal(resource, value)
    assert "resourceClaims" not in site.api.create(PODS, a_pod("during", "job"))["spec"]
    site.api.merge(SETS, "outage", {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
    site.api.merge(CLIQUES, "outage-0-worker", {"metadata": {"finalizers": ["test.example/x"]}}, NAMESPACE)
    site.cluster.objects.ask_to_delete("podclique", "outage-0-worker", NAMESPACE)
    site.api.merge(CLIQUES, "outage-0-worker", {"metadata": {"finalizers": None}}, NAMESPACE)
    site.cluster.objects.ask_to_delete("podcliqueset", "outage", NAMESPACE)


def test_no_pod_that_was_valid_is_refused_and_no_field_of_it_changes(site: Site) -> None:
    """Without the label, the API server calls no webhook for it."""
    random, tries = Random(34), PodTries(site.cluster)
    pods = [random_pod(random) for _ in range(examples(1000))]
    joined = 0
    for pod in pods:
        before = tries.create(pod, NAMESPACE)
        if before.refusal:
            continue
        labels = pod["metadata"]["labels"] | {DOMAIN_LABEL: random.choice(DOMAIN_NAMES)}
        after = tries.create(pod | {"metadata": pod["metadata"] | {"labels": labels}}, NAMESPACE)
        assert after.refusal == ""
        assert lost(kept(before.pod), after.pod) == []
        assert lost(labels, after.pod["metadata"]["labels"]) == []
        joined += any(each["name"] == CLAIM[0]["name"] for each in after.pod["spec"].get("resourceClaims", ()))
    assert len(pods) // 20 < joined < len(pods)


def kept(pod: Json) -> Json:
    """Return what is the same in each try."""
    metadata = {key: value for key, value in pod["metadata"].items() if key in {"labels", "annotations", "name"}}
    return {"metadata": metadata, "spec": pod["spec"]}

"""The shipped rights are the used ones: every process runs under them, and an audit log records its requests."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import NODES
from gkm_operator.plans.reconciler import KEPT_PLANS
from support.agent.capturing import CaptureNode
from support.cluster.audit import Request
from support.cluster.cluster import KubectlFailed
from support.grove.objects import clique, pod_clique_set
from support.operator.accounts import POD_GROUPS, SHARED, Accounts, accounts
from support.operator.deployment import manifests
from support.operator.domain_cluster import DomainCluster, object_of, workloads_of_every_kind
from support.operator.domains import ENROLLED
from support.operator.flavors_path import FLAVORS_PATH
from support.operator.group_templates import DOMAIN, Json, config_map, group, pool, task_pod, template
from support.operator.nodes import put
from support.operator.plans import gpu_node, run
from support.operator.rights import BASE, DOMAINS, POD_CACHES, RIGHTS, SYSTEM, TASK_GROUPS, TOPOLOGY, Right, authorized
from support.operator.seen import NODE, TEAM
from support.peers import require

FORBIDDEN = 403
GPU_NODE = "audited-gpus"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """All requests of all processes in the life of a cache, of a node and of a leader."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with accounts(tmp_path_factory.mktemp("accounts")) as place:
        a_life(place)
        for process in place.processes.values():
            process.stop(30)
            assert process.popen.returncode == 0, process.tail()
        return place.audit.requests()


def a_life(place: Accounts) -> None:
    until, seen = place.cluster.until, place.seen
    place.register_node()
    first = place.controllers("first")
    place.controllers("second")
    place.admission()
    agent = place.agent()

    for namespace in (TEAM, None):
        place.declare("llama", namespace)
    for namespace in (TEAM, None):
        until(partial(seen.is_verified, "llama", namespace), "the controllers to verify it")
        until(partial(seen.is_ready, "llama", namespace), "the agent to fetch it")
    until(lambda: f"cache.gkm.io/{TEAM}.llama" in seen.labels(), "the Node to be labelled")
    until(lambda: place.cluster.exists("nodefabric", NODE), "the fabric to be told")
    until(lambda: place.cluster.exists("configmap", f"gkm-ibnetdiscover-{NODE}", SYSTEM), "the survey to be kept")
    until(lambda: place.cluster.kubectl("events", "--for=gkmcache/llama", "-n", TEAM, "--no-headers"), "an event")

    seen.use("llama")
    until(lambda: seen.on_node("llama", TEAM).get("pods"), "the pod to be told")
    seen.last_pod_goes()
    until(lambda: not seen.on_node("llama", TEAM).get("pods"), "the pod to be gone")

    first.stop()
    place.declare("next", TEAM)
    until(lambda: seen.is_verified("next", TEAM), "the second to lead")

    agent.stop(30)
    for namespace in (TEAM, None):
        where = ("--namespace", namespace) if namespace else ()
        place.cluster.kubectl("delete", "gkmcachenode" if namespace else "clustergkmcachenode", NODE, *where)
    place.agent()
    for namespace in (TEAM, None):
        until(partial(seen.is_ready, "llama", namespace), "the agent to say it again")

    place.cluster.kubectl("delete", "node", NODE)
    until(partial(seen.has_no_object, TEAM), "the objects to go with their Node")
    place.register_node()
    until(partial(seen.is_ready, "llama", TEAM), "the agent to come back")

    # Here, for a process ends with the thread that starts it.
    place.provider()
    features = (captures, a_run, topology, domains, task_groups)
    with ThreadPoolExecutor(len(features)) as threads:
        for done in [threads.submit(feature, place) for feature in features]:
            done.result()

    place.configure_webhook()
    until(place.is_judged, "the CA to be put back", 120)

    place.cluster.kubectl("delete", "gkmcache", "--all", "--namespace", TEAM)
    place.cluster.kubectl("delete", "clustergkmcache", "--all")
    for namespace in (TEAM, None):
        until(partial(seen.has_no_object, namespace), "the agent to take its words back")


def captures(place: Accounts) -> None:
    """Captures of a namespace, and of one whose captures are for the cluster; newer ones supersede them."""
    until, cluster = place.cluster.until, place.cluster
    node = CaptureNode(place.machine.root, place.machine.registry.host, place=place.machine.layout)
    for namespace, kind in ((TEAM, "gkmcache"), (SHARED, "clustergkmcache")):
        where = ("--namespace", namespace) if kind == "gkmcache" else ()

        def names() -> list[str]:
            listed = cluster.kubectl("get", kind, "-l", "gkm.io/captured-runtime", "-o", "name", *where)  # noqa: B023
            return listed.split()

        node.capture(f"{namespace}-older", namespace=namespace)
        (older,) = until(names, f"the capture of {namespace} to be registered", 120)
        node.capture(f"{namespace}-newer", namespace=namespace, copies=("A" * 52,), start_time="2026-01-02T00:00:00Z")
        # One look: between two of them the newer one appears, and the older one is still there.
        until(lambda: len(found := names()) == 1 and found != [older], "the newer one to supersede it", 120)  # noqa: B023
        for volume in ("older", "newer"):
            shutil.rmtree(place.machine.layout.captured / f"{namespace}-{volume}")
        until(lambda: not place.seen.node_object(namespace).get("status", {}).get("captures"), "no capture", 120)  # noqa: B023
        cluster.kubectl("delete", kind, "-l", "gkm.io/captured-runtime", *where)


def a_run(place: Accounts) -> None:
    """A Run that is planned again until its first plan is old enough to go."""
    until, cluster = place.cluster.until, place.cluster
    put(connect(str(cluster.kubeconfig)), NODES, gpu_node(GPU_NODE, "domain"))
    words = ("get", "serviceaccount", "gkm-flavors", "--namespace", SYSTEM, "--output", FLAVORS_PATH)
    until(lambda: "h100" in cluster.kubectl(*words).split(","), "its flavor to be known")
    cluster.apply(run("llama", 8, TEAM))
    for number in range(1, KEPT_PLANS + 2):
        until(partial(cluster.exists, "placementplan", f"llama-{number}", TEAM), f"plan {number}")
        until(lambda: cluster.get("run", "llama", TEAM).get("status", {}).get("planRef"), "the plan to be named")
        cluster.kubectl("annotate", "run", "llama", "--namespace", TEAM, f"gkm.io/plan-again={number}", "--overwrite")
    until(lambda: not cluster.exists("placementplan", "llama-1", TEAM), "the oldest plan to go")
    cluster.kubectl("delete", "run", "llama", "--namespace", TEAM)
    cluster.kubectl("delete", "node", GPU_NODE)


def topology(place: Accounts) -> None:
    """A node that gets a rack, another rack, and none; Topologies that somebody changes."""
    until, cluster = place.cluster.until, place.cluster

    def label(value: str) -> None:
        cluster.kubectl("label", "node", NODE, f"rack={value}" if value else "rack-", "--overwrite")

    def is_level(value: str) -> bool:
        return place.seen.labels().get("level.gkm.io/rack") == value

    def has_levels(kind: str) -> bool:
        return len(cluster.get(kind, "racks")["spec"]["levels"]) > 1

    until(partial(cluster.exists, "topologies.kueue.x-k8s.io", "racks"), "the Topology of Kueue")
    until(partial(cluster.exists, "topologies.kai.scheduler", "racks"), "the Topology of KAI")
    for name in ("a", "b"):
        label(name)
        until(partial(cluster.exists, "hypernode", f"rack-{name}"), f"the HyperNode of rack {name}")
        until(partial(is_level, name), "the label of its level")
    cluster.apply(gpu_node("beside", "domain") | {"metadata": {"name": "beside", "labels": {"rack": "b"}}})
    until(lambda: len(cluster.get("hypernode", "rack-b")["spec"]["members"]) > 1, "a second member")
    levels = json.dumps({"spec": {"levels": [{"nodeLabel": "other"}]}})
    for kind in ("topologies.kueue.x-k8s.io", "topologies.kai.scheduler"):
        cluster.kubectl("patch", kind, "racks", "--type=merge", f"--patch={levels}")
        until(partial(has_levels, kind), f"{kind} to be put back", 60)
    label("")
    cluster.kubectl("delete", "node", "beside")
    until(lambda: not cluster.exists("hypernode", "rack-b"), "the HyperNode to go")
    until(partial(cluster.exists, "configmap", "gkm-topology", SYSTEM), "the report")
    until(lambda: cluster.get("providertree", "infiniband").get("status", {}).get("conditions"), "the verdict")


def domains(place: Accounts) -> None:
    """ComputeDomains of sets and of labels, and PodCliques whose set and claims admission has to read."""
    team = DomainCluster(place.cluster, place.audit, place.machine.root, place.stack)
    owners = workloads_of_every_kind(place.cluster, TEAM)
    claims = [{"name": "a", "resourceClaimTemplateName": "none"}, {"name": "b", "resourceClaimName": "none"}]
    cliques = [clique("worker", resourceClaims=claims)]
    place.cluster.apply(pod_clique_set("pcs", *cliques, namespace=TEAM, annotations=ENROLLED))
    team.until_names(TEAM, "pcs-0", *owners)
    team.make_template("pcs-0", TEAM)
    team.use("pcs-0", TEAM)
    undecided = [{"name": "main", "resources": {"claims": [{"name": "b"}]}}]
    by_claim = clique("worker", containers=undecided, resourceClaims=claims[1:])
    place.cluster.apply(pod_clique_set("by-claim", by_claim, namespace=TEAM, annotations=ENROLLED))
    read = Right("gkm-controllers", "get", "resource.k8s.io", "resourceclaims")
    place.cluster.until(lambda: any(map(read.covers, place.audit.requests())), "the claim to be looked for")
    place.cluster.kubectl("delete", "podcliqueset", "by-claim", "--namespace", TEAM)
    labels = {"app.kubernetes.io/part-of": "unknown", "grove.io/podcliqueset-replica-index": "0"}
    unknown = object_of("grove.io/v1alpha1", "PodClique", "unknown-0-worker", TEAM, labels=labels)
    place.cluster.apply(unknown | {"spec": clique("worker")["spec"]})
    place.cluster.kubectl("scale", "podcliqueset", "pcs", "--replicas=0", "--namespace", TEAM)
    team.until_names(TEAM, *owners)


def task_groups(place: Accounts) -> None:
    """Templates of all kinds that are allowed by default, and what admission reads by its name."""
    pod_groups = [{"apiVersion": f"{group}/v1", "kind": "PodGroup", "metadata": {"name": "x"}} for group in POD_GROUPS]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}}
    app = {"app": "{{ WF_GROUP_NAME }}"}
    pod: Json = {"metadata": {"labels": app}, "spec": {"containers": [{"name": "main", "image": "registry.test/a:1"}]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}} | {
        "spec": {"selector": {"matchLabels": app}, "template": pod}
    }
    for number, value in enumerate([config_map(), DOMAIN, service, deployment, *pod_groups]):
        place.cluster.apply(template(f"t-{number}", value))
    place.cluster.apply(pool("pool", "t-0", "t-1"))
    unread = [pool("other", "missing"), group("g", of="missing"), task_pod("missing") | {"kind": "Pod"}]
    for value in unread:
        value["metadata"] |= {"namespace": TEAM} if "namespace" in value["metadata"] else {}
        with pytest.raises(KubectlFailed, match="not exist"):
            place.cluster.kubectl("create", "--filename=-", input=json.dumps(value))
    for kind in ("pools", "grouptemplates"):
        place.cluster.kubectl("delete", kind, "--all")


def is_discovery(request: Request) -> bool:
    """Whether a request is for the list of kinds, which everybody may read."""
    return request.verb == "get" and request.resource.startswith(("/api/", "/apis/"))


def test_no_request_of_a_process_was_refused(asked: list[Request]) -> None:
    # By the authorizer or by a policy. Who bears a token that is not taken is nobody, and not in this log.
    assert asked
    assert [request for request in asked if request.code == FORBIDDEN] == []


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: "-".join(filter(None, vars(right).values())))
def test_a_right_that_ships_is_used(asked: list[Request], right: Right) -> None:
    assert any(right.covers(request) for request in authorized(asked))


def test_every_request_is_covered_by_our_rights(asked: list[Request]) -> None:
    """What everybody may do (to look at /version) would be found here too."""
    needed = [one for one in asked if not is_discovery(one)]
    assert [one for one in needed if not any(right.covers(one) for right in RIGHTS)] == []


def test_no_right_is_granted_twice() -> None:
    twice = [
        (wide, right)
        for wide, right in product(RIGHTS, RIGHTS)
        if wide != right
        and replace(right, name=wide.name, namespace=wide.namespace) == wide
        and wide.name in ("", right.name)
        and wide.namespace in ("", right.namespace)
        # A component may need all objects where the base names those that it needs.
        and not (right in BASE and wide in TOPOLOGY)
    ]
    assert twice == []
    for part in (BASE, DOMAINS, TASK_GROUPS, POD_CACHES):
        assert len(part) == len(set(part))


def test_the_csi_driver_has_no_right_and_no_token() -> None:
    assert [right for right in RIGHTS if right.account == "gkm-csi"] == []
    shipped = {(one["kind"], one["metadata"]["name"]): one for one in manifests()}
    assert shipped["ServiceAccount", "gkm-csi"]["automountServiceAccountToken"] is False
    pod = shipped["DaemonSet", "gkm-csi"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("gkm-csi", False)
    assert not any("projected" in volume for volume in pod["volumes"])

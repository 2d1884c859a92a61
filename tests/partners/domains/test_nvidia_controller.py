"""What NVIDIA's compute-domain-controller does with a ComputeDomain, without GKM: the facts of GKM's design."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from gkm.api.mnnvl_metadata import FINALIZER
from support.cluster.cluster import KubectlFailed
from support.domains import node_side
from support.domains.dra_cluster import CLIQUE, DraCluster, phase, pod
from support.domains.nvidia import ACCOUNT, UID_LABEL
from support.grove.objects import Json, compute_domain

NAME = "train-0"
MARK = "example.test/in-use"
GUARD = "nvidia-facts"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"


@pytest.fixture
def uid(dra: DraCluster, team: str) -> str:
    """The uid of the domain NAME, which has its template."""
    return created(dra, team)


def created(dra: DraCluster, team: str, **metadata: object) -> str:
    domain = compute_domain(NAME, namespace=team)
    domain["metadata"] |= metadata
    dra.cluster.apply(domain)
    found = str(dra.cluster.get("computedomain", NAME, team)["metadata"]["uid"])
    dra.cluster.until(lambda: dra.daemon_set(found) and dra.template(NAME, team), "the template and the DaemonSet")
    return found


def annotate(dra: DraCluster, kind: str, team: str, **annotations: str) -> None:
    words = [f"{key.replace('__', '/')}={value}" for key, value in annotations.items()]
    dra.cluster.kubectl("annotate", kind, NAME, "--namespace", team, "--overwrite", *words)


def delete(dra: DraCluster, kind: str, team: str) -> None:
    dra.cluster.kubectl("delete", kind, NAME, "--namespace", team, "--wait=false")


def drop_finalizers(dra: DraCluster, kind: str, team: str) -> None:
    patch = '--patch={"metadata":{"finalizers":null}}'
    dra.cluster.kubectl("patch", kind, NAME, "--namespace", team, "--type=merge", patch)


def phases(dra: DraCluster, team: str) -> list[str]:
    return sorted(phase(found) for found in dra.cluster.objects.every("pods", team))


def is_terminating(found: Json) -> bool:
    return "deletionTimestamp" in found["metadata"]


def test_a_domain_yields_its_template_and_daemon_set(dra: DraCluster, team: str, uid: str) -> None:
    template = dra.template(NAME, team)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == CHANNEL_CLASS
    assert template["metadata"]["labels"][UID_LABEL] == uid
    assert dra.daemon_set(uid)["spec"]["template"]["spec"]["nodeSelector"] == {UID_LABEL: uid}


def test_a_domain_without_nodes_calls_itself_ready(dra: DraCluster, team: str, uid: str) -> None:
    dra.cluster.until(lambda: dra.domain(NAME, team).get("status") == {"status": "Ready"}, f"{uid} to be Ready")


def test_a_pod_that_was_there_first_gets_the_channel_of_a_node(dra: DraCluster, team: str) -> None:
    dra.cluster.apply(pod("early", team, NAME))
    uid = created(dra, team)
    found = dra.running("early", team)
    (status,) = found["status"]["resourceClaimStatuses"]
    claim = dra.cluster.get("resourceclaim", status["resourceClaimName"], team)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["device"], result["pool"]) == ("channel-0", found["spec"]["nodeName"])
    (config,) = claim["status"]["allocation"]["devices"]["config"]
    assert config["opaque"]["parameters"]["domainID"] == uid


@pytest.mark.usefixtures("uid")
def test_a_node_has_one_channel(dra: DraCluster, team: str) -> None:
    node = dra.nodes[0]
    dra.cluster.apply([pod(name, team, NAME, gpus=1, node=node) for name in ("one", "two")])

    def messages() -> list[str]:
        return [
            condition.get("message", "")
            for found in dra.cluster.objects.every("pods", team)
            for condition in found["status"].get("conditions", ())
            if condition.get("reason") == "Unschedulable"
        ]

    (message,) = dra.cluster.until(messages, "a pod that finds no channel")
    assert "cannot allocate all claims" in message
    dra.cluster.until(lambda: phases(dra, team) == ["Pending", "Running"], "the other one to run")


def test_nodes_of_the_status_are_the_daemons_of_cliques(dra: DraCluster, team: str, uid: str) -> None:
    dra.cluster.apply([pod(name, team, NAME) for name in ("one", "two")])
    for name in ("one", "two"):
        dra.running(name, team)
    nodes = dra.join(uid, team)

    def joined() -> list[tuple[str, str, str]]:
        found = dra.domain(NAME, team)["status"].get("nodes", ())
        return sorted((node["name"], node["cliqueID"], node["status"]) for node in found)

    dra.cluster.until(lambda: joined() == [(node, CLIQUE, "Ready") for node in nodes], "two nodes")
    node_side.unprepare(dra.cluster, nodes[0])
    dra.cluster.until(lambda: joined() == [(nodes[1], CLIQUE, "Ready")], "the node without a daemon to be left out")


def test_foreign_annotations_stay_on_the_domain_and_its_template(dra: DraCluster, team: str, uid: str) -> None:
    for kind in ("resourceclaimtemplate", "computedomain"):
        annotate(dra, kind, team, example__mark="3")
    # Another event of the domain, and its result, come after what the annotations caused.
    dra.cluster.apply(pod("one", team, NAME))
    dra.running("one", team)
    dra.join(uid, team)
    dra.cluster.until(lambda: dra.domain(NAME, team)["status"].get("nodes"), "a node")
    for found in (dra.template(NAME, team), dra.domain(NAME, team)):
        assert found["metadata"]["annotations"] == {"example/mark": "3"}


@pytest.mark.usefixtures("uid")
def test_a_deleted_template_stays_and_pods_still_get_claims_from_it(dra: DraCluster, team: str) -> None:
    delete(dra, "resourceclaimtemplate", team)
    annotate(dra, "computedomain", team, example__event="1")
    dra.cluster.apply(pod("late", team, NAME))
    dra.running("late", team)
    assert is_terminating(dra.template(NAME, team))


@pytest.mark.usefixtures("uid")
def test_a_lost_template_returns_with_the_next_update_of_its_domain(dra: DraCluster, team: str) -> None:
    # The first status is an update, too: after it there is none until that of the test.
    dra.cluster.until(lambda: dra.domain(NAME, team).get("status") == {"status": "Ready"}, "the first status")
    delete(dra, "resourceclaimtemplate", team)
    drop_finalizers(dra, "resourceclaimtemplate", team)
    assert not dra.template(NAME, team)
    dra.cluster.apply(pod("waits", team, NAME))
    annotate(dra, "computedomain", team, example__event="1")
    dra.running("waits", team)
    assert not is_terminating(dra.template(NAME, team))


def test_a_finalizer_protects_nothing(dra: DraCluster, team: str) -> None:
    uid = created(dra, team, finalizers=[FINALIZER])
    dra.cluster.apply(pod("one", team, NAME))
    node = dra.running("one", team)["spec"]["nodeName"]
    dra.join(uid, team)
    delete(dra, "computedomain", team)
    dra.cluster.until(lambda: not dra.template(NAME, team), "the template to go")
    dra.cluster.until(lambda: not dra.daemon_set(uid) and not dra.node_label(node), "the DaemonSet to go")
    dra.cluster.until(lambda: dra.domain(NAME, team)["metadata"]["finalizers"] == [FINALIZER], "the domain to be empty")
    assert dra.domain(NAME, team)["status"]["status"] == "Ready"
    drop_finalizers(dra, "computedomain", team)
    assert created(dra, team) != uid


def test_a_template_of_a_user_under_the_name_is_left_alone(dra: DraCluster, team: str) -> None:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    own = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": NAME, "namespace": team},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    dra.cluster.apply(own)
    uid = created(dra, team)
    dra.cluster.until(lambda: dra.domain(NAME, team)["metadata"].get("finalizers"), "the finalizer of the controller")
    assert "labels" not in dra.template(NAME, team)["metadata"]
    delete(dra, "resourceclaimtemplate", team)
    annotate(dra, "computedomain", team, example__event="1")
    dra.cluster.until(
        lambda: dra.template(NAME, team).get("metadata", {}).get("labels", {}).get(UID_LABEL) == uid, "its own template"
    )


@pytest.fixture
def guarded(dra: DraCluster, team: str) -> Iterator[None]:
    """A policy that refuses to delete templates with the annotation MARK other than 0 in the namespace of the test."""
    name = {"metadata": {"name": GUARD}}
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    resources = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["DELETE"]}
    rules = [{**resources, "resources": ["resourceclaimtemplates"]}]
    expression = f"oldObject.metadata.?annotations[?'{MARK}'].orValue('0') == '0'"
    spec = {
        "matchConstraints": {
            "resourceRules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
        },
        "matchConditions": [{"name": "controller", "expression": f"request.userInfo.username == '{ACCOUNT}'"}],
        "validations": [{"expression": expression, "message": "pods use it"}],
    }
    binding = {"policyName": GUARD, "validationActions": ["Deny"]}
    dra.cluster.apply(api | name | {"kind": "ValidatingAdmissionPolicy", "spec": spec})
    dra.cluster.apply(api | name | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    kubeconfig = dra.cluster.kubeconfig_for(ACCOUNT)
    created(dra, team)
    mark(dra, team, "1")

    def is_refused() -> bool:
        words = ("delete", "resourceclaimtemplate", NAME, "--namespace", team, "--dry-run=server")
        try:
            dra.cluster.kubectl(*words, kubeconfig=kubeconfig)
        except KubectlFailed as refused:
            return "pods use it" in refused.stderr
        return False

    try:
        dra.cluster.until(is_refused, "the policy to hold")
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            dra.cluster.kubectl("delete", kind, GUARD)


def mark(dra: DraCluster, team: str, value: str) -> None:
    words = ("annotate", "resourceclaimtemplate", NAME, "--namespace", team, "--overwrite", f"{MARK}={value}")
    dra.cluster.kubectl(*words)


@pytest.mark.usefixtures("guarded")
def test_a_refused_deletion_of_the_template_stops_the_teardown(dra: DraCluster, team: str) -> None:
    uid = dra.domain(NAME, team)["metadata"]["uid"]
    dra.cluster.apply(pod("one", team, NAME))
    node = dra.running("one", team)["spec"]["nodeName"]
    dra.join(uid, team)
    log = dra.nvidia.process.log
    before = log.read_text().count("pods use it")
    delete(dra, "computedomain", team)
    # It tries again and again, and does not go on to its next step.
    dra.cluster.until(lambda: log.read_text().count("pods use it") > before + 5, "several attempts")
    dra.cluster.apply(pod("two", team, NAME))
    dra.running("two", team)
    assert is_terminating(dra.domain(NAME, team))
    assert (dra.daemons(uid), dra.node_label(node)) == ([node], uid)
    mark(dra, team, "0")
    # An update starts the next attempt, which may be minutes away, or may have come first.
    with suppress(KubectlFailed):
        annotate(dra, "computedomain", team, example__event="1")
    dra.cluster.until(lambda: not dra.domain(NAME, team), "the domain to go")
    assert not dra.node_label(node)


def test_a_domain_that_was_deleted_while_the_controller_was_away_goes_later(
    dra: DraCluster, team: str, uid: str
) -> None:
    dra.nvidia.process.kill()
    try:
        delete(dra, "computedomain", team)
        assert is_terminating(dra.domain(NAME, team))
        assert dra.template(NAME, team)
    finally:
        dra.nvidia.restart()
    dra.cluster.until(lambda: not dra.domain(NAME, team) and not dra.daemon_set(uid), "the domain to go")

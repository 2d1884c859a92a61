"""The real command on a real API server: it finds every planted fault, nothing else, and names missing rights."""

import copy
import json
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gkm.api.imex import DAEMON_CLASS
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.installation.objects import NAME_LABEL
from support.cli.doctor_lists import NVIDIA_LABEL, SET_LABELS, claim, owner, pod
from support.cli.doctor_site import USER, Site, bind, problems, shipped_role, site
from support.grove.kinds import COMPUTE_DOMAIN
from support.grove.objects import Json, claim_template, compute_domain, pod_clique_set
from support.peers import require

CHANNEL = "compute-domain-default-channel.nvidia.com"
DOMAIN, TEMPLATE = "ComputeDomain team/llama-0", "ResourceClaimTemplate team/llama-0"
CRD = "CustomResourceDefinition computedomains.resource.nvidia.com"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with site(tmp_path_factory.mktemp("doctor")) as made:
        yield made


def with_metadata(made: Json, **metadata: Any) -> Json:  # noqa: ANN401 -- JSON
    return made | {"metadata": made["metadata"] | metadata}


def node(uid: str) -> Json:
    metadata = {"name": "node-0", "labels": {NVIDIA_LABEL: uid}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def config(text: str) -> Json:
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": text}}


def condition_of(reason: str, message: str) -> Json:
    made = {"type": "MNNVLReady", "status": "False", "reason": reason, "message": message}
    return made | {"lastTransitionTime": "2026-01-01T00:00:00Z"}


def not_ready() -> Json:
    condition = condition_of("NodesIsolated", "1 of 4 nodes")
    return with_metadata(compute_domain("llama-0"), annotations={"gkm.io/mnnvl-ready": json.dumps(condition)})


GROVE_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "grove:system:grove-operator"},
    "rules": [{"apiGroups": ["resource.nvidia.com"], "resources": ["computedomains"], "verbs": ["create"]}],
}
ORPHAN = with_metadata(compute_domain("llama-0", labels=SET_LABELS), ownerReferences=[owner("PodCliqueSet", "llama")])


def test_a_healthy_cluster_has_no_finding(place: Site) -> None:
    with place.planted(pod_clique_set("llama")) as (set_uid,):
        domain = with_metadata(ORPHAN, ownerReferences=[owner("PodCliqueSet", "llama", set_uid)])
        with place.planted(domain) as (uid,):
            template = claim_template("llama-0", CHANNEL, labels={NVIDIA_LABEL: uid})
            with place.planted(template, node(uid), pod("p", "llama-0")) as (_, _, pod_uid):
                used = claim("p-claim", uid, pod_uid=pod_uid)
                with place.planted(used):
                    code, found = place.findings()
    assert (code, problems(found)) == (0, [])
    assert len(found) == 11


FAULTS: dict[str, tuple[str, list[Json]]] = {
    "domains/orphans": (DOMAIN, [ORPHAN]),
    "domains/readiness": (DOMAIN, [not_ready()]),
    "domains/node-labels": ("Node node-0", [node("dead")]),
    "domains/claim-templates": (TEMPLATE, [claim_template("llama-0", CHANNEL, labels={NVIDIA_LABEL: "dead"})]),
    "domains/template-names": (TEMPLATE, [compute_domain("llama-0"), claim_template("llama-0", CHANNEL)]),
    "domains/claims": ("ResourceClaim team/c", [claim("c", "dead")]),
    "domains/pods": (TEMPLATE, [compute_domain("llama-0"), pod("p", "llama-0")]),
    "domains/switch": (
        "ClusterRole grove:system:grove-operator",
        [config("network: {autoMNNVLEnabled: true}"), GROVE_ROLE],
    ),
}
"""The object of the finding, and what plants the fault, by the name of the check that must find it."""
PLANTED_BELOW = {"domains/terminating", "domains/version", "domains/imex"}


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_found_and_nothing_else(place: Site, name: str) -> None:
    subject, objects = FAULTS[name]
    with place.planted(*objects):
        code, found = place.findings()
    assert problems(found) == [("problem", name, subject)]
    assert code == 3
    assert place.findings()[0] == 0


def test_every_check_of_domains_has_its_fault() -> None:
    ours = {check.name for check in CHECKS if check.name.startswith("domains/")}
    assert set(FAULTS) | PLANTED_BELOW == ours


def test_a_mode_of_imex_that_is_half_changed_is_a_warning(place: Site) -> None:
    metadata = {"name": "node-0-channels"}
    attributes = {"type": {"string": "channel"}}
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {
            "driver": "compute-domain.nvidia.com",
            "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-0",
            "devices": [{"name": "channel-0", "attributes": attributes}],
        },
    }
    daemons = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DAEMON_CLASS},
        "spec": {},
    }
    with place.planted(slice_, daemons):
        code, found = place.findings()
    assert (code, problems(found)) == (0, [("warning", "domains/imex", f"DeviceClass {DAEMON_CLASS}")])


def test_an_allocated_claim_whose_pod_is_gone_is_found(place: Site) -> None:
    with place.planted(compute_domain("llama-0")) as (uid,), place.planted(claim("c", uid, pod_uid="gone")):
        code, found = place.findings()
    assert (code, problems(found)) == (3, [("problem", "domains/claims", "ResourceClaim team/c")])


def test_the_printed_command_ends_a_stuck_deletion(place: Site) -> None:
    finalizer = "grove.io/computedomain-finalizer"
    with place.planted(with_metadata(compute_domain("llama-0", labels=SET_LABELS), finalizers=[finalizer])):
        place.cluster.objects.ask_to_delete("computedomain", "llama-0", "team")
        code, found = place.findings()
        assert (code, problems(found)) == (3, [("problem", "domains/terminating", DOMAIN)])
        (hint,) = (one["hint"] for one in found if one["severity"] == "problem")
        program, *words = hint.split(" -p ")[0].split()
        assert program == "kubectl"
        place.cluster.kubectl(*words, "-p", hint.split(" -p ")[1].strip("'"))
        assert place.findings()[0] == 0


def redefined(**changes: object) -> Json:
    """The definition with another version beside v1beta1, and changes of v1beta1."""
    made = copy.deepcopy(COMPUTE_DOMAIN)
    (version,) = made["spec"]["versions"]
    made["spec"]["versions"] = [version | {"storage": False} | changes, version | {"name": "v1", "storage": True}]
    return made


def test_a_definition_of_another_release_is_found(place: Site) -> None:
    crd = ("customresourcedefinition", "computedomains.resource.nvidia.com")
    required = copy.deepcopy(COMPUTE_DOMAIN)
    spec = required["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["required"] = ["channel", "numNodes"]
    del spec["properties"]["numNodes"]["default"]
    try:
        place.cluster.apply(required)
        code, found = place.findings()
        assert (code, problems(found)) == (0, [("warning", "domains/version", CRD)])
        place.cluster.apply(redefined(served=False))
        place.cluster.until(lambda: "not checked" in str(place.findings()[1]), "v1beta1 to be gone")
        code, found = place.findings()
        assert code == 3
        assert ("problem", "domains/version", CRD) in problems(found)
        assert ("warning", "domains/version", CRD) in problems(found)
        assert {check for severity, check, _ in problems(found) if severity == "not checked"} >= {"domains/terminating"}
    finally:
        place.cluster.objects.delete_patiently(*crd)
        place.cluster.apply(COMPUTE_DOMAIN)
        place.cluster.until_kinds_established()
        place.cluster.forget_kinds()
        place.cluster.until(lambda: place.findings()[0] == 0, "the kind to be back")


def test_without_the_kinds_only_the_switch_makes_a_problem(place: Site) -> None:
    kind = "customresourcedefinition"
    crds = ("computedomains.resource.nvidia.com", "podcliquesets.grove.io")
    definitions = [place.cluster.get(kind, crd) for crd in crds]
    try:
        for crd in crds:
            place.cluster.objects.ask_to_delete(kind, crd)
        for crd in crds:
            place.cluster.until(lambda: not place.cluster.exists(kind, crd), f"{crd} to be gone", 120)  # noqa: B023
        place.cluster.until(lambda: place.findings()[0] == 0, "nothing to be a problem")
        with place.planted(config("network: {autoMNNVLEnabled: true}")):
            code, found = place.findings()
        assert (code, problems(found)) == (3, [("problem", "domains/version", CRD)])
    finally:
        for definition in definitions:
            del definition["status"]
            definition["metadata"] = {"name": definition["metadata"]["name"]}
        place.cluster.apply(definitions)
        place.cluster.until_kinds_established()
        place.cluster.until(lambda: place.findings()[0] == 0, "the kinds to be back")


def test_people_read_what_to_do(place: Site) -> None:
    with place.planted(ORPHAN):
        done = place.doctor()
    assert (done.returncode, done.stderr) == (3, "")
    assert "problem: ComputeDomain team/llama-0: its workload is gone" in done.stdout
    assert "  next: kubectl delete computedomain llama-0 -n team, then run gkm doctor again" in done.stdout
    assert "11 checks: 1 problem, 0 warnings, 0 not checked" in done.stdout


def test_without_rights_nothing_is_known_and_each_right_is_named(place: Site) -> None:
    done = place.doctor("-o", "json", user="nothing")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert done.stderr.startswith("error: 11 checks could not read the cluster")
    assert {one["severity"] for one in found} == {"not checked"}
    reasons = {one["check"]: one["why"] for one in found}
    assert reasons["domains/orphans"] == (
        "missing right: list computedomains.resource.nvidia.com in all namespaces; "
        "missing right: list podcliquesets.grove.io in all namespaces; missing right: list pods in all namespaces"
    )
    assert reasons["domains/switch"] == "missing right: get configmaps/gkm-config in the namespace gkm-system"


def is_reported(place: Site, right: str) -> bool:
    return right in str(place.findings(user=USER)[1])


def test_the_shipped_role_has_the_rights_that_these_checks_need(place: Site) -> None:
    role = shipped_role()
    bind(place, role)
    with place.planted(config("network: {autoMNNVLEnabled: true}")):
        place.cluster.until(lambda: place.findings(user=USER)[0] == 0, "the role to be in force")
        for rule in role["rules"][-3:]:
            for resource in rule["resources"]:
                fewer = copy.deepcopy(role)
                found = next(one for one in fewer["rules"] if one == rule)
                found["resources"] = [one for one in rule["resources"] if one != resource] or ["none"]
                bind(place, fewer)
                right = f"missing right: {rule['verbs'][0]} {resource}"
                place.cluster.until(partial(is_reported, place, right), right)
    place.cluster.objects.delete(role)
    place.cluster.objects.delete_named("clusterrolebinding", USER)


def test_one_namespace_leaves_out_the_checks_of_the_whole_cluster(place: Site) -> None:
    elsewhere = with_metadata(ORPHAN, name="elsewhere", namespace="default")
    with place.planted(ORPHAN, elsewhere, node("dead")):
        code, found = place.findings("-n", "team")
        assert (code, problems(found)) == (3, [("problem", "domains/orphans", DOMAIN)])
        assert "left out, because they need the whole cluster: domains/node-labels" in place.doctor("-n", "team").stdout
    done = place.doctor("-n", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: there is no namespace nowhere; kubectl get namespaces lists all\n"


def test_the_grace_period_holds_for_new_objects(place: Site) -> None:
    with place.planted(ORPHAN):
        assert place.doctor("--grace", "3600").returncode == 0


def test_hostile_texts_stay_on_their_lines(place: Site) -> None:
    condition = condition_of("\x1b[2J", "\u202e\r\n" + "x" * 5000)
    hostile = with_metadata(compute_domain("llama-0"), annotations={"gkm.io/mnnvl-ready": json.dumps(condition)})
    with place.planted(hostile):
        for output in ("table", "json", "yaml"):
            done = place.doctor("-o", output)
            assert done.returncode == 3
            assert all(line.isprintable() for line in done.stdout.splitlines())


def test_refused_credentials_are_one_line(place: Site) -> None:
    refused = place.cluster.control_plane.kubeconfig("refused", {"token": "not-a-token"})
    done = place.doctor("--kubeconfig", str(refused))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the API server refuses the credentials")
    assert (done.stderr.count("\n"), "not-a-token" in done.stderr) == (1, False)


def test_an_api_server_that_does_not_answer_is_one_line(place: Site) -> None:
    with place.cluster.control_plane.stalled("kube-apiserver"):
        done = place.doctor()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: the API server does not answer")


def an_agent() -> Json:
    """A pod of the agent on a node without a kubelet, which has no log then."""
    status = {"name": "agent", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gkm-agent-0", "namespace": "gkm-system", "labels": {NAME_LABEL: "gkm-agent"}},
        "spec": {"nodeName": "node-0", "containers": [{"name": "agent", "image": "registry.test/gkm-agent:1"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def test_a_bundle_of_a_real_cluster_names_what_it_lacks_and_has_no_secret(place: Site, tmp_path: Path) -> None:
    metadata = {"name": "pull", "namespace": "gkm-system"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "hunter2"}}
    path = tmp_path / "bundle.tar.gz"
    place.cluster.until(lambda: place.cluster.exists("serviceaccount", "default", "gkm-system"), "the account")
    with place.planted(secret, compute_domain("llama-0"), node("uid"), an_agent()):
        done = place.doctor("--bundle", str(path))
    with tarfile.open(path) as found:
        files = {each.name.partition("/")[2]: file.read() for each in found if (file := found.extractfile(each))}
    about = json.loads(files["about.json"])
    assert about["kubernetes"]["gitVersion"].startswith("v1.")
    assert [part["file"] for part in about["parts"] if part["notRead"]] == ["logs/gkm-agent-0.agent.log"]
    assert "logs/gkm-agent-0.agent.log is not in it: " in done.stderr
    (domain,) = json.loads(files["objects/computedomains.json"])["items"]
    assert domain["metadata"]["name"] == "llama-0"
    assert b"hunter2" not in b"".join(files.values())

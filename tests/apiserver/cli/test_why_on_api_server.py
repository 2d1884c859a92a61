"""`gkm why` and `gkm cache list` on a real API server: every link is broken once, and named."""

import json
from collections.abc import Iterator

import pytest
from gkm_cli.why.links import LINKS, NEEDS
from support.cli.command import gkm
from support.cli.why_faults import FAULTS, UNKNOWN, attributes, failed_mount, on_node, unverified
from support.cli.why_site import DIGEST, NAMESPACE, Json, WhySite, why_site
from support.cluster.rights import until_rights_hold
from support.peers import require


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WhySite]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with why_site(tmp_path_factory.mktemp("why")) as made:
        yield made


def test_every_link_has_a_fault() -> None:
    assert {link for link, _, _ in FAULTS.values()} == set(LINKS)


def test_on_a_healthy_pod_every_link_holds(place: WhySite) -> None:
    with place.made():
        code, steps = place.steps()
        people = place.why()
    assert (code, [step["check"] for step in steps]) == (0, list(LINKS))
    assert all(step["ok"] for step in steps)
    assert (people.returncode, people.stderr) == (0, "")
    assert people.stdout.rstrip().endswith("every link holds")


@pytest.mark.parametrize("name", FAULTS)
def test_the_broken_link_is_named_with_what_to_do(place: WhySite, name: str) -> None:
    link, plant, hint = FAULTS[name]
    with place.made(plant):
        code, steps = place.steps()
        people = place.why()
    (broken,) = [step for step in steps if step["state"] == "broken"]
    assert (code, broken["check"]) == (3, link)
    assert hint in broken["hint"]
    behind: set[str] = set()
    for step in steps:
        if {link, *behind} & {*NEEDS.get(step["check"], ())}:
            behind.add(step["check"])
    assert {step["check"] for step in steps if not step["ok"]} == {link, *behind}
    assert {step["state"] for step in steps if step["check"] in behind} <= {"skipped"}
    assert people.returncode == 3
    assert f"broken: {link}: " in people.stdout
    assert f"  next: {broken['hint']}" in people.stdout


def test_an_end_that_no_message_explains_is_no_success(place: WhySite) -> None:
    _, plant, hint = UNKNOWN["an end without a message"]
    with place.made(plant):
        people = place.why()
    assert (people.returncode, people.stderr) == (
        1,
        "error: not every link could be checked: hits; see their next steps\n",
    )
    assert f"  next: read why: {hint}" in people.stdout
    assert "every link holds" not in people.stdout


def test_the_pods_of_a_workload_and_those_that_fail_are_explained(place: WhySite) -> None:
    spec = {"selector": {"matchLabels": {"app": "server"}}}
    template = {"metadata": {"labels": {"app": "server"}}, "spec": {"containers": [{"name": "server", "image": "i"}]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "s", "namespace": NAMESPACE}}

    def change(made: dict[str, Json]) -> None:
        made["pod"]["metadata"]["labels"] = {"app": "server"}
        failed_mount(made)

    place.cluster.apply([deployment | {"spec": spec | {"template": template}}])
    with place.made(change):
        pods = [
            {(step["namespace"], step["pod"]) for step in place.steps(*words, "-n", NAMESPACE)[1]}
            for words in (("deploy/s",), ("-l", "app=server"), ("gkmcache/llama",), ())
        ]
        people = place.why("deploy/s", "-n", NAMESPACE)
    assert pods == [{(NAMESPACE, "server")}] * 4
    assert (people.returncode, people.stdout.splitlines()[0]) == (3, f"pod {NAMESPACE}/server")
    with place.made():
        done = place.why("-n", NAMESPACE)
    assert (done.returncode, done.stdout) == (
        0,
        f"no pod of the namespace {NAMESPACE} waits or fails for a volume of GKM\n",
    )


def test_the_message_of_kubelet_is_the_cause_of_a_mount_that_fails(place: WhySite) -> None:
    with place.made(failed_mount):
        uid = place.cluster.get("pod", "server", NAMESPACE)["metadata"]["uid"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "server.1", "namespace": NAMESPACE},
            "involvedObject": {"kind": "Pod", "name": "server", "namespace": NAMESPACE, "uid": uid},
            "reason": "FailedMount",
            "message": "MountVolume.SetUp failed: cache llama is Extracting",
            "type": "Warning",
            "lastTimestamp": "2026-11-23T12:00:00Z",
        }
        place.cluster.apply([event])
        _, steps = place.steps()
    (broken,) = [step for step in steps if step["state"] == "broken"]
    assert "cache llama is Extracting" in broken["detail"]


def test_a_cluster_wide_cache_is_followed_too(place: WhySite) -> None:
    def change(made: dict[str, Json]) -> None:
        attributes(made).clear()
        attributes(made).update(clusterCacheName="llama", mountPath="/cache")
        for one, kind in (("cache", "ClusterGKMCache"), ("report", "ClusterGKMCacheNode")):
            made[one]["kind"] = kind
            del made[one]["metadata"]["namespace"]

    with place.made(change):
        code, steps = place.steps()
    assert (code, all(step["ok"] for step in steps)) == (0, True)


def test_people_with_the_rights_of_one_namespace_see_that_every_link_holds(place: WhySite) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]},
        {"apiGroups": ["gkm.io"], "resources": ["gkmcaches", "gkmcachenodes"], "verbs": ["get"]},
    ]
    kind, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    names = {"name": "developer", "namespace": NAMESPACE}
    role = {"apiVersion": kind, "kind": "Role", "metadata": names, "rules": rules}
    binding = {
        "apiVersion": kind,
        "kind": "RoleBinding",
        "metadata": names,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "developer"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "developer"}],
    }
    place.cluster.apply([role, binding])
    until_rights_hold(place.cluster)
    with place.made():
        done = place.why("server", "-n", NAMESPACE, user="developer")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("every link holds")


def test_missing_rights_are_not_checked_and_the_exit_code_says_so(place: WhySite) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list"]}]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "viewer"},
        "rules": rules,
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "viewer"}],
    }
    place.cluster.apply([role, binding])
    until_rights_hold(place.cluster)
    with place.made():
        done = place.why("server", "-n", NAMESPACE, "-o", "json", user="viewer")
        table = place.why("server", "-n", NAMESPACE, user="viewer")
        denied = place.why("server", "-n", NAMESPACE, user="stranger")
    states = {step["check"]: (step["state"], step["detail"]) for step in json.loads(done.stdout)}
    assert done.returncode == 1
    assert states["volume"][0] == states["node"][0] == "ok"
    assert states["object"] == ("not checked", "missing right: get gkmcaches.gkm.io/llama in the namespace ml-apps")
    assert done.stderr.startswith("error: not every link could be checked: driver, object, ")
    assert (denied.returncode, denied.stdout, denied.stderr.count("\n")) == (1, "", 1)
    assert "missing right: get pods/server in the namespace ml-apps" in denied.stderr
    people = [line for line in table.stdout.splitlines() if line.startswith("not checked: ")]
    assert people == [*dict.fromkeys(people)]
    assert any(
        line.startswith("not checked: object, digest, signature: missing right: get gkmcaches") for line in people
    )


def test_a_pod_or_namespace_that_does_not_exist_is_one_line(place: WhySite) -> None:
    for arguments, words in (
        (("absent", "-n", NAMESPACE), "there is no pod absent in the namespace ml-apps"),
        (("absent",), "there is no pod absent in the namespace default"),
        (("absent", "-n", "nowhere"), "there is no namespace nowhere"),
    ):
        done = place.why(*arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert words in done.stderr


def test_the_namespace_of_the_context_is_that_of_kubectl(place: WhySite) -> None:
    path = place.cluster.directory / "context"
    path.write_bytes(place.cluster.kubeconfig.read_bytes())
    place.cluster.kubectl("config", "--kubeconfig", str(path), "set-context", "--current", "--namespace", NAMESPACE)
    with place.made():
        assert gkm("why", "pod/server", "--kubeconfig", path).returncode == 0
        listed = gkm("cache", "list", "--kubeconfig", path)
    assert (listed.returncode, [line.split()[:4] for line in listed.stdout.splitlines()[1:]]) == (
        0,
        [[NAMESPACE, "llama", "1/1", "True"]],
    )


def test_the_caches_of_the_cluster_are_listed_with_what_is_wrong(place: WhySite) -> None:
    kubeconfig = ("--kubeconfig", place.cluster.kubeconfig)
    with place.made(lambda made: unverified(made, "SignatureMissing")):
        done = gkm("cache", "list", "-A", *kubeconfig, "-o", "json")
        table = gkm("cache", "list", "-A", *kubeconfig)
    (entry,) = json.loads(done.stdout)
    assert done.returncode == 0
    assert {
        key: entry[key] for key in ("kind", "namespace", "name", "digest", "ok", "verified", "reason", "detail")
    } == {
        "kind": "GKMCache",
        "namespace": NAMESPACE,
        "name": "llama",
        "digest": DIGEST,
        "ok": False,
        "verified": "False",
        "reason": "SignatureMissing",
        "detail": "the cause",
    }
    assert "SignatureMissing" in table.stdout
    empty = gkm("cache", "list", *kubeconfig)
    assert (empty.returncode, empty.stdout) == (0, "no caches in the namespace default; -A lists all\n")


def test_hostile_texts_stay_on_their_lines(place: WhySite) -> None:
    lines: dict[str, dict[str, int]] = {}
    for text in ("\x1b[2J\u202e\r\n\v\u2028" + "x" * 300, "harmless"):

        def change(made: dict[str, Json], text: str = text) -> None:
            on_node(made, state="Failed", reason="NodeError", message=text)

        with place.made(change):
            for output in ("table", "json"):
                done = place.why("server", "-n", NAMESPACE, "-o", output)
                assert done.returncode == 3
                assert all(line.isprintable() for line in done.stdout.split("\n"))
                lines.setdefault(output, {})[text] = done.stdout.count("\n")
            assert place.why("server", "-n", NAMESPACE, "-o", "yaml").stdout.replace("\n", "").isprintable()
    assert all(len(set(counts.values())) == 1 for counts in lines.values()), lines


def test_a_pod_in_the_cluster_is_compared_with_an_image(place: WhySite, image: str) -> None:
    options = ("-n", NAMESPACE, "--kubeconfig", place.cluster.kubeconfig, "--plain-http", "-o", "json")
    with place.made():
        done = gkm("cache", "explain", image, "--pod", "pod/server", *options)
        missing = gkm("cache", "explain", image, "--pod", "other", *options)
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (1, "not known")
    assert {each["container"] for each in result["factors"]} == {"server"}
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "there is no pod other" in missing.stderr

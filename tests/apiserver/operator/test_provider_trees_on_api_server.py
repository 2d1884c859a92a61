"""ProviderTrees on a real API server, with the rights and the policy that ship, and the provider as a process."""

import base64
import json
import os
import random
import string
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gkm.api.provider_trees import MAX_FAULTS, MAX_PACKED, MAX_REFUSED, MAX_TEXT
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import PROVIDER_TREES, Json
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.provider_trees import pack, unpack
from gkm_operator.hypernodes.watcher import TREES
from support.cluster.cluster import Cluster
from support.cluster.objects import Objects, refusal
from support.cluster.policies import until_policies_hold
from support.cluster.rights import until_rights_hold
from support.host.processes import Process
from support.host.waiting import until
from support.kube.our_kinds import CONTROLLERS
from support.kube.whole_objects import whole
from support.operator.accounts import NOT_RUN_HERE
from support.operator.deployment import MAIN, component

KILLS = int(os.environ.get("GKM_KILLS", "6"))
ACME, OTHER = "acme", "other"
OWN, FOREIGN = (f"system:serviceaccount:gkm-system:gkm-provider-{name}" for name in (ACME, OTHER))
RAW = whole(PROVIDER_TREES)
RNG = random.Random(35)
pytestmark = pytest.mark.timeout(300)


def rights_of(name: str) -> list[Json]:
    """What the chart grants to the provider of another name than infiniband, with a class of others."""
    documents = [one for one in component("topology-infiniband") if one["kind"] not in NOT_RUN_HERE]
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    group = "topology.volcano.sh"
    role["rules"].append({"apiGroups": [group], "resources": ["hypernodes"], "verbs": ["list", "watch"]})
    renamed: list[Json] = json.loads(json.dumps(documents).replace("infiniband", name))
    return renamed


@pytest.fixture(scope="module")
def providers(gkm_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the component topology and the accounts of two providers."""
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gkm-system"}})
    gkm_cluster.apply([*component("topology"), *rights_of(ACME), *rights_of(OTHER)])
    until_policies_hold(gkm_cluster)
    until_rights_hold(gkm_cluster)
    yield gkm_cluster
    delete_trees(gkm_cluster)
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        gkm_cluster.objects.delete_named(kind, "gkm-provider-trees")


@pytest.fixture
def tree(providers: Cluster) -> Iterator[Cluster]:
    """The cluster with a tree of the provider acme."""
    connect(str(providers.kubeconfig_for(OWN))).create(RAW, value(ACME, revision=1, state="Serving"))
    yield providers
    delete_trees(providers)


def delete_trees(cluster: Cluster) -> None:
    for found in cluster.objects.every("providertrees"):
        cluster.objects.delete_named("providertree", found["metadata"]["name"])


def value(name: str, **spec: object) -> Json:
    return {"apiVersion": RAW.api_version, "kind": "ProviderTree", "metadata": {"name": name}, "spec": spec}


def of(cluster: Cluster, user: str) -> Objects:
    """What a user, or the administrator, has and changes."""
    return cluster.objects.as_user(user) if user else cluster.objects


Change = Callable[[Objects], None]


def patched(**fields: object) -> Change:
    return lambda objects: objects.merge("providertree", ACME, {"spec": fields})


def told(**fields: object) -> Change:
    return lambda objects: objects.merge("providertree", ACME, {"status": fields}, subresource="status")


def deleted(objects: Objects) -> None:
    objects.ask_to_delete("providertree", ACME)


def test_a_provider_writes_its_own_spec_only(tree: Cluster) -> None:
    """Its rights name its object; the policy holds where RBAC cannot, for what is not there yet."""
    patched(revision=2)(of(tree, OWN))
    assert "forbidden" in refusal(lambda: patched(revision=3)(of(tree, FOREIGN))).lower()
    created = refusal(lambda: of(tree, OWN).create(value("third", revision=1)))
    assert "must write nothing but the spec of the ProviderTree of its own name, and not third" in created
    assert tree.get("providertree", ACME)["spec"]["revision"] == 2


@pytest.mark.parametrize(
    ("user", "change", "why"),
    [
        ("", patched(tree="forged"), f"only {OWN} writes the spec of this ProviderTree"),
        (CONTROLLERS, patched(tree="forged"), f"only {OWN} writes the spec of this ProviderTree"),
        (FOREIGN, patched(tree="forged"), "must write nothing but the spec"),
        (OWN, told(observedRevision=1), "must write nothing but the spec"),
        (OWN, deleted, "must write nothing but the spec"),
        ("", told(observedRevision=1), "only the controllers write the status"),
    ],
)
def test_nobody_writes_in_the_name_of_another_not_even_with_every_right(
    tree: Cluster, user: str, change: Change, why: str
) -> None:
    group = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "every-right-on-trees"}}
    rules = [{"apiGroups": ["gkm.io"], "resources": ["providertrees", "providertrees/status"], "verbs": ["*"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "every-right-on-trees"}
    accounts = [each.rpartition(":")[2] for each in (OWN, FOREIGN, CONTROLLERS)]
    subjects = [{"kind": "ServiceAccount", "name": each, "namespace": "gkm-system"} for each in accounts]
    tree.apply(group | {"kind": "ClusterRole", "rules": rules})
    tree.apply(group | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects})
    try:
        tree.until(lambda: why in refusal(lambda: change(of(tree, user))), "the policy, not the rights")
    finally:
        for kind in ("clusterrolebinding", "clusterrole"):
            tree.objects.delete_named(kind, "every-right-on-trees")
    assert tree.get("providertree", ACME)["spec"].get("tree", "") == ""


def test_an_administrator_may_label_and_delete_a_tree(tree: Cluster) -> None:
    tree.objects.label("providertree", ACME, {"seen": "yes"})
    tree.objects.delete_patiently("providertree", ACME)
    connect(str(tree.kubeconfig_for(OWN))).create(RAW, value(ACME))


def test_the_controllers_write_the_status(tree: Cluster) -> None:
    api = connect(str(tree.kubeconfig_for(CONTROLLERS)))
    api.merge(RAW, ACME, {"status": {"observedRevision": 1}}, subresource="status")
    assert tree.get("providertree", ACME)["status"] == {"observedRevision": 1}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"tree": "A" * (MAX_PACKED + 1)}, "Too long"),
        ({"faults": ["x"] * (MAX_FAULTS + 1)}, "Too many"),
        ({"reason": "x" * (MAX_TEXT + 1)}, "Too long"),
        ({"revision": -1}, "should be greater than or equal to 0"),
        ({"state": "Perfect"}, "Unsupported value"),
        ({"heartbeatTime": "soon"}, "must be of type date-time"),
    ],
)
def test_an_object_beyond_its_bounds_is_refused_by_the_api_server(tree: Cluster, spec: Json, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        connect(str(tree.kubeconfig_for(OWN))).merge(RAW, ACME, {"spec": spec})


def test_an_object_at_all_its_bounds_is_stored_and_read_again(tree: Cluster) -> None:
    """Each text has characters of four bytes; etcd refuses more than 1.5 MiB."""
    wide = "\N{GRINNING FACE}" * MAX_TEXT
    text = "A" * MAX_PACKED
    own, controllers = (connect(str(tree.kubeconfig_for(user))) for user in (OWN, CONTROLLERS))
    own.merge(RAW, ACME, {"spec": {"tree": text, "faults": [wide] * MAX_FAULTS, "reason": wide, "refusal": wide}})
    refused = [{"name": f"{number:063}" + "\N{GRINNING FACE}" * 190, "error": wide} for number in range(MAX_REFUSED)]
    controllers.merge(RAW, ACME, {"status": {"refused": refused}}, subresource="status")
    found = own.get(PROVIDER_TREES, ACME)
    assert (found.spec.tree, len(found.status.refused)) == (text, MAX_REFUSED)


def anything() -> str:
    return "".join(RNG.choices(string.ascii_lowercase + string.digits, k=63))


def test_12500_nodes_with_names_without_a_pattern_fit_into_one_object(tree: Cluster) -> None:
    names = [tuple(Member("Node", anything()) for _ in range(20)) for _ in range(625)]
    groups = [HyperNode(anything(), "leaf", members) for members in names]
    own = connect(str(tree.kubeconfig_for(OWN)))
    own.merge(RAW, ACME, {"spec": {"tree": pack(groups), "revision": 1}})
    (found,) = (entry.value for page in own_list(tree) for entry in page.entries)
    stored = unpack(found.spec.tree).hypernodes
    assert sum(len(each.members) for each in stored) == 12_500
    assert sorted(stored, key=str) == sorted(groups, key=str)


def own_list(cluster: Cluster) -> Iterator[Any]:
    return connect(str(cluster.kubeconfig_for(CONTROLLERS))).list_pages(PROVIDER_TREES)


def test_a_small_object_that_would_be_large_in_memory_is_stored_and_refused_by_its_reader(tree: Cluster) -> None:
    """The API server cannot look inside: who reads it does, within bounds (test_packed_tree)."""
    bomb = base64.b64encode(zlib.compress(b" " * (256 << 20), 9)).decode()
    connect(str(tree.kubeconfig_for(OWN))).merge(RAW, ACME, {"spec": {"tree": bomb, "revision": 2}})
    with pytest.raises(ValueError, match="its JSON has more than 33554432 bytes"):
        unpack(tree.get("providertree", ACME)["spec"]["tree"])


def lines(number: int) -> str:
    """A large tree whose number all its names show: a mixture of two would show."""
    return "".join(f"t{number}-{at} n{number}-{at}\n" for at in range(2_000))


class Versions:
    """Every version of the tree that a watch shows."""

    def __init__(self, cluster: Cluster) -> None:
        self.seen: list[tuple[str, int, frozenset[str]]] = []
        api = connect(str(cluster.kubeconfig_for(CONTROLLERS)))
        self.reflector = Reflector(api, TREES, self._changed)

    def _changed(self, _old: object, new: Any) -> None:  # noqa: ANN401 -- a ProviderTree
        if new is not None and new.spec.tree:
            numbers = frozenset(each.name.partition("-")[0] for each in unpack(new.spec.tree).hypernodes)
            self.seen.append((new.spec.state, new.spec.revision, numbers))


def test_killed_in_the_middle_of_a_write_a_provider_leaves_one_whole_tree(providers: Cluster, tmp_path: Path) -> None:
    file, config = tmp_path / "tree", tmp_path / "config.json"
    file.write_text(lines(0))
    topology = {"providers": [{"name": ACME, "config": {"path": str(file)}}]}
    config.write_text(json.dumps({"topology": topology}))
    module = Path(__file__).parents[2] / "support" / "topology"
    words = ("provider", f"--config={config}", f"--name={ACME}", "--class=tree_provider:file", f"--path={module}")
    account = ("--kubeconfig", str(providers.kubeconfig_for(OWN)), "--health=127.0.0.1:0")
    command = [sys.executable, *MAIN, *words, *account]
    versions = Versions(providers)
    versions.reflector.start()
    try:
        for number in range(KILLS):
            process = Process.start("gkm-provider", command, tmp_path / "log")
            try:
                process.ready(lambda: bool(versions.seen) and versions.seen[-1][0] == "Serving", "it serves", 60)
                file.write_text(lines(number + 1))
                # From before the event to after the write, which follows 2 s after the last one.
                time.sleep(RNG.uniform(0.0, 3.0))
            finally:
                process.kill()
            assert len(versions.seen[-1][2]) == 1
            before = versions.seen[-1]
        # The last tree may be there already: the signal must come when this process has written, and so handles it.
        earlier = len(versions.seen)
        process = Process.start("gkm-provider", command, tmp_path / "log")
        last = "Serving", frozenset([f"t{KILLS}"])

        def has_written() -> bool:
            return last in [(state, names) for state, _, names in versions.seen[earlier:]]

        process.ready(has_written, "its tree", 60)
        process.stop(30)
        assert process.popen.returncode == 0, process.tail()
        until(lambda: versions.seen[-1][0] == "Starting", "its end")
    finally:
        versions.reflector.close()
        delete_trees(providers)
    assert all(len(numbers) == 1 for _, _, numbers in versions.seen), "no version is a mixture"
    revisions = [revision for _, revision, _ in versions.seen]
    assert revisions == sorted(revisions)
    assert versions.seen[-1][1] > before[1]

"""`gkm cache pin`, `promote`, `drop` and `list` on a real API server, with the policies that ship."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Json, Resource
from gkm_operator.captures.objects import Generation, cache_object, captured_cache, merged_announcements
from support.cli.command import gkm
from support.cluster.cluster import Cluster
from support.kube.our_kinds import CONTROLLERS
from support.operator.captures import NOW, REGISTRY, of_family

NAMESPACE = "generations"
READER = "generations-reader"


@dataclass(frozen=True)
class Family:
    """A family whose generations the controllers made; `shared`: of ClusterGKMCaches."""

    cluster: Cluster
    admin: Api
    controllers: Api
    shared: bool

    @property
    def resource(self) -> Resource[Any]:
        return CLUSTERGKMCACHES if self.shared else GKMCACHES

    @property
    def namespace(self) -> str | None:
        return None if self.shared else NAMESPACE

    def make(self, number: int, earlier: tuple[str, ...] = ()) -> str:
        """Create a generation as the controllers do; return its name."""
        capture = of_family(number, namespace=NAMESPACE, age=60.0)
        (announced,), _ = merged_announcements(NAMESPACE, [("node-1", capture)], REGISTRY, NOW)  # type: ignore[list-item]
        made = cache_object(announced, Generation(number, earlier), cluster=self.shared)
        self.controllers.create(self.resource, made)
        return capture.name

    def get(self, name: str) -> Json:
        found: Json = self.admin.get(self.resource.of(dict), name, self.namespace)
        return found

    def run(self, command: str, *words: str, user: str = "") -> subprocess.CompletedProcess[str]:
        kubeconfig = self.cluster.kubeconfig_for(user) if user else self.cluster.kubeconfig
        where = ("--cluster",) if self.shared else ("-n", NAMESPACE)
        return gkm("cache", command, *words, *where, "--kubeconfig", kubeconfig)

    def failure(self, command: str, *words: str, user: str = "") -> str:
        done = self.run(command, *words, user=user)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Iterator[Cluster]:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield gkm_cluster
    gkm_cluster.objects.ask_to_delete("namespace", NAMESPACE)


@pytest.fixture(params=[False, True], ids=["GKMCache", "ClusterGKMCache"])
def family(place: Cluster, request: pytest.FixtureRequest) -> Iterator[Family]:
    made = Family(
        place, connect(str(place.kubeconfig)), connect(str(place.kubeconfig_for(CONTROLLERS))), bool(request.param)
    )
    yield made
    plural, where = made.resource.plural, () if made.shared else ("--namespace", NAMESPACE)
    place.kubectl("delete", plural, "--all", *where)


def test_a_member_is_pinned_and_unpinned_and_the_list_shows_it(family: Family) -> None:
    first, second = family.make(1), family.make(2)
    done = family.run("pin", first)
    assert (done.returncode, done.stdout) == (0, f"{first}, generation 1 of llama, is pinned\n")
    assert family.get(first)["spec"]["pinned"] is True
    other = json.loads(family.run("pin", second, "-o", "json").stdout)
    assert (other["name"], other["result"], other["generation"]) == (second, "pinned", 2)
    assert [note.partition(" ")[0] for note in other["notes"]] == [first]
    wide = {**os.environ, "COLUMNS": "250"}
    listed = gkm("cache", "list", "-A", "--kubeconfig", family.cluster.kubeconfig, env=wide).stdout
    assert "2 (pinned)" in next(line for line in listed.splitlines() if second in line)
    assert family.run("pin", second, "--unpin").returncode == 0
    assert not family.get(second)["spec"].get("pinned")


def test_a_promoted_generation_is_no_longer_the_controllers(family: Family) -> None:
    name = family.make(1)
    before = family.get(name)["spec"]
    assert family.run("promote", name).returncode == 0
    after = family.get(name)
    assert after["spec"] == before
    assert "gkm.io/captured-" not in json.dumps(after["metadata"].get("labels", {}))
    assert "gkm.io/captured-" not in json.dumps(after["metadata"].get("annotations", {}))
    assert captured_cache(family.admin.get(family.resource, name, family.namespace), REGISTRY) is None
    assert "is yours already" in family.failure("promote", name)


def test_what_pods_use_is_dropped_with_force_only(family: Family) -> None:
    first = family.make(1)
    second = family.make(2, earlier=(f"{1:012x}",))
    family.controllers.merge(
        family.resource, first, {"status": {"podsUsing": 3}}, family.namespace, subresource="status"
    )
    assert f"{first} is used by 3 volumes of pods; --force drops it nevertheless" in family.failure("drop", first)
    done = family.run("drop", first, "--force")
    assert (done.returncode, done.stdout) == (0, f"{first}, generation 1 of llama, is dropped\n")
    assert family.admin.find(family.resource, first, family.namespace) is None
    # The newest one is remembered by no later one.
    last = json.loads(family.run("drop", second, "-o", "json").stdout)
    assert "register it again" in last["notes"][0]


def test_a_cache_of_no_family_is_not_dropped(family: Family) -> None:
    metadata = {"name": "own", **({} if family.shared else {"namespace": NAMESPACE})}
    kind = family.resource.kind
    value = {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"image": "registry.test/x:1"},
    }
    family.admin.create(family.resource, value)
    assert "own belongs to no family" in family.failure("drop", "own")
    assert family.get("own")["spec"]["image"] == "registry.test/x:1"


@pytest.mark.parametrize("command", ["pin", "promote", "drop"])
def test_a_name_that_is_none_and_a_right_that_is_missing_are_said(family: Family, command: str) -> None:
    assert "there is no cache missing in " in family.failure(command, "missing")
    name = family.make(1)
    bound = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": READER}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gkm-reader"}
    family.cluster.apply(bound | {"roleRef": role, "subjects": [{"kind": "User", "name": READER}]})
    family.cluster.until(lambda: "missing right" not in family.run(command, name, user=READER).stderr, "the role")
    refusal = family.failure(command, name, user=READER)
    assert "is forbidden" in refusal
    assert "gkm-edit" in refusal
    assert not family.get(name)["spec"].get("pinned")


def test_a_user_writes_neither_family_nor_number_of_a_captured_cache_but_pins_it(family: Family) -> None:
    name = family.make(1)
    for spec in ({"family": "qwen"}, {"generation": 2**31 - 1}, {"family": None}, {"generation": None}):
        with pytest.raises(ApiError, match="family and generation of a captured cache do not change"):
            family.admin.merge(family.resource, name, {"spec": spec}, family.namespace)
    family.admin.merge(family.resource, name, {"spec": {"pinned": True}}, family.namespace)
    with pytest.raises(ApiError, match="2147483647"):
        family.admin.merge(family.resource, name, {"spec": {"generation": 2**31}}, family.namespace)

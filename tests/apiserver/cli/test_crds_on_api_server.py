"""`gkm crds` on a real API server: it installs and upgrades kinds, and leaves those of another product alone."""

import copy
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api import crds
from support.cli.command import gkm
from support.cluster.cluster import Cluster
from support.cluster.objects import RequestFailed
from support.host.waiting import until
from support.operator.upstream import upstream
from support.peers import require

CRDS = Path(__file__).resolve().parents[3] / "crds"
KIND, NAME = "customresourcedefinition", "gkmcaches.gkm.io"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with Cluster.start(tmp_path_factory.mktemp("crds")) as made:
        yield made


@pytest.fixture(autouse=True)
def emptied(cluster: Cluster) -> Iterator[None]:
    yield
    if stored(cluster):
        for name in stored(cluster):
            cluster.objects.ask_to_delete(KIND, name)
        until(lambda: are_gone(cluster), "the kinds to go", 120.0)


def are_gone(cluster: Cluster) -> bool:
    """Return whether no kind is left, and change those that are.

    Where the API server deletes a kind while it sets up storage for it, it tries again after minutes, or at a change.
    """
    left = stored(cluster)
    if left:
        again = {"metadata": {"annotations": {"example.com/try": str(time.monotonic_ns())}}}
        for name in sorted(left):
            with suppress(RequestFailed):  # it went meanwhile
                cluster.objects.merge(KIND, name, again)
    return not left


def stored(cluster: Cluster) -> set[str]:
    return {found["metadata"]["name"] for found in cluster.objects.every(KIND)}


def definition(cluster: Cluster) -> dict[str, Any]:
    return cluster.get(KIND, NAME)


def test_without_a_cluster_the_kinds_are_printed() -> None:
    printed = list(yaml.load_all(gkm("crds").stdout, yaml.CSafeLoader))
    files = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in CRDS.glob("*.yaml")]
    assert sorted(printed, key=str) == sorted(files, key=str)
    listed = json.loads(gkm("crds", "-o", "json").stdout)
    assert (listed["apiVersion"], listed["kind"], listed["items"]) == ("v1", "List", printed)


def test_they_are_installed_and_applied_again(cluster: Cluster) -> None:
    for _ in range(2):
        done = gkm("crds", "--apply", "--kubeconfig", cluster.kubeconfig)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(stored(cluster)) == len(crds.definitions())
    again = gkm("crds", "--apply", "-o", "json", "--kubeconfig", cluster.kubeconfig)
    assert set(json.loads(again.stdout)["applied"]) == stored(cluster)


def test_an_earlier_version_is_upgraded(cluster: Cluster) -> None:
    earlier = copy.deepcopy(crds.definition(next(kind for kind in crds.KINDS if kind.plural == "gkmcaches")))
    properties = earlier["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del properties["imageSigned"]
    cluster.apply([earlier])
    assert gkm("crds", "--apply", "--kubeconfig", cluster.kubeconfig).returncode == 0
    found = definition(cluster)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert "imageSigned" in found["properties"]


def without_a_field() -> dict[str, Any]:
    """Return a definition without our label and with some of our fields: only another product can have it."""
    found = copy.deepcopy(crds.definition(next(each for each in crds.KINDS if each.plural == "gkmcaches")))
    del found["metadata"]["labels"]
    del found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["imageSigned"]
    return found


def of_another_version() -> dict[str, Any]:
    found = copy.deepcopy(crds.definition(next(each for each in crds.KINDS if each.plural == "gkmcaches")))
    found["spec"]["versions"][0]["name"] = "v1"
    return found


def of_a_later_version() -> dict[str, Any]:
    found = copy.deepcopy(crds.definition(next(each for each in crds.KINDS if each.plural == "gkmcaches")))
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    return found


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (upstream, "is another product's: it lacks spec."),
        (without_a_field, "is another product's: it lacks status.imageSigned"),
        (of_another_version, "is another product's: it serves no v1alpha1"),
        (of_a_later_version, "is of a later version of GKM, or another product's: it has spec.later"),
    ],
)
def test_a_kind_of_another_product_or_a_later_version_stays_as_it_is(
    cluster: Cluster, make: Callable[[], dict[str, Any]], words: str
) -> None:
    cluster.apply([make()])
    # The API server writes the status after it.
    cluster.until_kinds_established()
    before = definition(cluster)["metadata"]["resourceVersion"]
    done = gkm("crds", "--apply", "--kubeconfig", cluster.kubeconfig)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"CustomResourceDefinition {NAME} {words}" in done.stderr
    assert definition(cluster)["metadata"]["resourceVersion"] == before
    assert len(stored(cluster)) == 1

"""Every command line of kubectl that our texts print is accepted by kubectl and an API server with our kinds."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster, KubectlFailed
from support.docs.printed_commands import kubectl_lines
from support.kube import our_kinds
from support.peers import require

FOREIGN = "computedomains?|certificate|topologies|hypernodes?"
"""Kinds of NVIDIA, cert-manager, Kueue, KAI and Volcano."""
REFUSED = re.compile(
    rf"NotFound|no objects passed to replace|no resources found|doesn't have a resource type \"({FOREIGN})"
)
"""What kubectl says about an object or a kind that is not in this cluster; the words of a wrong usage are others."""
VALUES = (
    (r"kubectl delete VALUE VALUEVALUE", "kubectl delete gkmcaches a-name -n default"),
    (r"get VALUEs -o", "get runs -o"),
    (r"get VALUE -o", "get nodes -o"),
    (r"get VALUE( -n|$)", r"get gkmcaches\1"),
    (r"topologies\.VALUE VALUEVALUE", "topologies.kueue.x-k8s.io a-name"),
    (r"-p VALUE", "-p {}"),
    (r"-l VALUE=VALUE", "-l a=b"),
    (r"(-n|node|pods?) (VALUE|NAMESPACE)\b", r"\1 default"),
    (r"VALUE|NAME\b", "a-name"),
)


def filled(line: str) -> str:
    for pattern, value in VALUES:
        line = re.sub(pattern, value, line)
    return line


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with Cluster.start(tmp_path_factory.mktemp("printed")) as made:
        our_kinds.install(made)
        yield made


def refusal(cluster: Cluster, line: str, directory: Path) -> str:
    """Return what kubectl says against a command line; "" where it ran, or lacked an object."""
    file = directory / "config.json"
    file.write_text(json.dumps({"auths": {}}))
    made = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made", "namespace": "default"}})
    try:
        cluster.kubectl(*shlex.split(filled(line).replace("FILE", str(file)))[1:], input=made)
    except KubectlFailed as error:
        return "" if REFUSED.search(str(error)) else str(error)
    return ""


@pytest.mark.parametrize(("place", "line"), kubectl_lines())
def test_a_printed_command_line_is_accepted(cluster: Cluster, tmp_path: Path, place: str, line: str) -> None:
    assert refusal(cluster, line, tmp_path) == "", (place, filled(line))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("kubectl get -o yaml", "specify the type of resource"),
        ("kubectl delete pod --force", "no name was specified"),
        ("kubectl get gkmcachs -A", "resource type"),
        ("kubectl get pods --nope", "unknown flag"),
    ],
)
def test_a_line_that_does_not_run_is_found(cluster: Cluster, tmp_path: Path, line: str, why: str) -> None:
    assert why in refusal(cluster, line, tmp_path)


def test_there_are_such_lines() -> None:
    assert len(kubectl_lines()) >= 40

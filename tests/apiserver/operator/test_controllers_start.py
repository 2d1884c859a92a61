"""The controllers on an API server where something is not installed, is another's, or that is away at their start."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES
from support.agent.api_gate import Gate
from support.chart.deploy_files import rendered
from support.cluster.cluster import Cluster
from support.cluster.rights import until_rights_hold
from support.host import pages, ports
from support.host.processes import Process
from support.host.waiting import scaled
from support.kube import our_kinds
from support.operator.deployment import deployed, operator
from support.operator.upstream import upstream
from support.peers import require

CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"
Json = dict[str, Any]


def controllers(kubeconfig: Path, health: str) -> tuple[str, ...]:
    return ("controllers", f"--kubeconfig={kubeconfig}", f"--health={health}")


@dataclass
class Bare:
    """A control plane without anything of ours: the one that tests share has our kinds. `numbers` name directories."""

    cluster: Cluster
    directory: Path
    numbers: "count[int]"

    def ended(self, kubeconfig: Path, *more: str) -> Json:
        """Run the controllers to their end, which is a failure; return the last line of their log."""
        words = (*controllers(kubeconfig, f"127.0.0.1:{ports.free()}"), *more)
        with operator(self.directory / str(next(self.numbers)), *words) as process:
            assert process.popen.wait(scaled(120)) == 1
            told: Json = json.loads(log_text(process).splitlines()[-1])
        assert (told["level"], told["event"], told["command"]) == ("critical", "process failed", "controllers")
        return told


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Bare]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with Cluster.start(tmp_path / "cluster") as cluster:
        cluster.apply(rendered() / "base" / "namespace.yaml")
        cluster.apply(account("gkm-controllers"))
        yield Bare(cluster, tmp_path / "controllers", count())


def account(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "gkm-system"}}


def test_the_controllers_end_with_a_line_that_names_the_missing_kinds(bare: Bare) -> None:
    """One sequence on one control plane: the messages for a person who installs GKM piece by piece."""
    admin = bare.cluster.kubeconfig
    told = bare.ended(admin)
    assert (told["error"], told["why"]) == ("KindsMissing", "the API server has no gkmcaches: apply crds/")

    for definition in (upstream(), upstream("clustergkmcaches", "ClusterGKMCache", "Cluster")):
        bare.cluster.apply(definition)
    told = bare.ended(admin)
    assert told["error"] == "KindsForeign"
    assert "gkmcaches.gkm.io is not ours, it lacks spec.imagePullSecrets" in told["why"]

    for resource in (GKMCACHES, CLUSTERGKMCACHES):
        bare.cluster.objects.delete_patiently("customresourcedefinition", f"{resource.plural}.gkm.io")
    our_kinds.install(bare.cluster)
    told = bare.ended(bare.cluster.kubeconfig_for(CONTROLLERS))
    assert told["error"] == "RightsMissing"
    assert f'User "{CONTROLLERS}" cannot get resource "customresourcedefinitions"' in told["why"]
    assert "apply base/controllers.yaml" in told["why"]

    deployed(bare.cluster)
    config = bare.directory / "mnnvl.yaml"
    config.write_text("network: {autoMNNVLEnabled: true}\n", encoding="utf-8")
    told = bare.ended(admin, f"--config={config}")
    assert told["error"] == "MNNVLMissing"
    assert told["why"].startswith(
        "MNNVL preflight check failed: MNNVL is enabled but ComputeDomain CRD (computedomains."
    )

    bare.cluster.objects.delete_named("rolebinding", "gkm-controllers-lease", "gkm-system")
    until_rights_hold(bare.cluster)
    told = bare.ended(bare.cluster.kubeconfig_for(CONTROLLERS))
    assert 'cannot get resource "leases"' in told["why"]


def test_controllers_report_the_missing_kinds(cluster: Cluster, tmp_path: Path) -> None:
    # An API server path that serves no kinds of ours: any 404 will do, and every cluster has one.
    kubeconfig = json.loads(cluster.kubeconfig.read_text(encoding="utf-8"))
    kubeconfig["clusters"][0]["cluster"]["server"] += "/apis/apps/v1/none"
    elsewhere = tmp_path / "kubeconfig"
    elsewhere.write_text(json.dumps(kubeconfig), encoding="utf-8")
    with operator(tmp_path, *controllers(elsewhere, "127.0.0.1:0")) as process:
        assert process.popen.wait(scaled(120)) == 1
        assert "no gkmcaches: apply crds/" in json.loads(log_text(process).splitlines()[-1])["why"]


def test_a_live_process_waits_for_an_api_server_that_is_away_at_the_start(gkm_cluster: Cluster, tmp_path: Path) -> None:
    token: dict[str, object] = {"token": gkm_cluster.token("gkm-controllers", "gkm-system")}
    health = f"127.0.0.1:{ports.free()}"
    with Gate.before(gkm_cluster.control_plane.port) as gate:
        gate.shut()
        kubeconfig = gkm_cluster.control_plane.kubeconfig("behind-a-gate", token, server=gate.url)
        with operator(tmp_path, *controllers(kubeconfig, health)) as process:
            process.ready(lambda: "API server not available" in log_text(process), "it has asked in vain")
            assert (status(health, "healthz"), status(health, "readyz")) == (200, 503)
            assert 'gkm_ready{program="gkm-operator-controllers"} 0.0' in pages.fetch(health, "metrics")[1]
            gate.open()
            process.ready(lambda: status(health, "readyz") == 200, "everything is listed")
            assert 'gkm_ready{program="gkm-operator-controllers"} 1.0' in pages.fetch(health, "metrics")[1]


def log_text(process: Process) -> str:
    return process.log.read_text(encoding="utf-8")


def status(health: str, page: str) -> int:
    return pages.fetch(health, page)[0]

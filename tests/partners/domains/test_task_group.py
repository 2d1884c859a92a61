"""A group of four tasks with NVLink, as in docs/features/group-templates.md: created, joined, ended, and gone.

GKM with both components runs beside NVIDIA's controller on a real API server. The real scheduler places the pods by
their claims, and kwok runs them.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from gkm.api.mnnvl_metadata import PODS_USING
from support.cluster.cluster import KubectlFailed
from support.domains.dra_cluster import DraCluster
from support.domains.gkm import DOMAINS, TASK_GROUPS, Gkm
from support.grove import kinds
from support.grove.objects import Json

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples" / "group-templates"
NAME, CLAIM, TASKS = "train", "compute-domain-channel", 4
UUID = "0b1f6a52-7d1c-4c56-8a86-5a1e9f0d2c77"
DOMAIN, SETTINGS = f"compute-domain-{UUID}", f"settings-{UUID}"


@dataclass(frozen=True)
class Site:
    """The cluster, in which GKM runs."""

    dra: DraCluster
    gkm: Gkm

    def apply_sample(self, team: str, name: str = "compute-domain", *, tasks: int = TASKS) -> None:
        """Apply a sample word for word, but for its namespace; admission takes its objects in their order."""
        for document in yaml.load_all((SAMPLES / f"{name}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader):
            if "namespace" in document["metadata"]:
                document["metadata"]["namespace"] = team
            if document["kind"] == "TaskGroup":
                document["spec"]["tasks"] = document["spec"]["tasks"][:tasks]
            self.dra.cluster.apply(document)

    def group(self, team: str, name: str = NAME) -> Json:
        return self.dra.cluster.objects.get("taskgroup", name, team)

    def phase(self, team: str, name: str = NAME) -> str:
        return str(self.group(team, name).get("status", {}).get("phase", ""))

    def until_phase(self, team: str, phase: str, name: str = NAME) -> None:
        self.dra.cluster.until(lambda: self.phase(team, name) == phase, f"the group to be {phase!r}")

    def condition(self, team: str, type_: str) -> tuple[str, str]:
        found = self.group(team).get("status", {}).get("conditions", ())
        return next(((one["status"], one["reason"]) for one in found if one["type"] == type_), ("", ""))

    def mark(self, team: str) -> str:
        """Return how many pods use the claim template, as the controllers have marked it."""
        annotations = self.dra.template(DOMAIN, team).get("metadata", {}).get("annotations", {})
        return str(annotations.get(PODS_USING, ""))

    def pods(self, team: str) -> list[Json]:
        return self.dra.cluster.objects.every("pods", team)

    def until_running(self, team: str) -> list[Json]:
        def probe() -> list[Json] | None:
            pods = [pod for pod in self.pods(team) if pod.get("status", {}).get("phase") == "Running"]
            return pods if len(pods) == TASKS else None

        return self.dra.cluster.until(probe, f"{TASKS} pods to run")

    def complete(self, team: str) -> None:
        """End the pods as kubelet does when their containers succeed."""
        for pod in self.pods(team):
            words = ("pod", pod["metadata"]["name"], "--namespace", team, "--subresource=status", "--type=merge")
            self.dra.cluster.kubectl("patch", *words, "--patch", json.dumps({"status": {"phase": "Succeeded"}}))

    def left(self, team: str) -> list[str]:
        """Every object that the group got, or that NVIDIA's controller made for it."""
        found = [
            (kind, one["metadata"]["name"])
            for kind in ("computedomains", "configmaps", "resourceclaimtemplates")
            for one in self.dra.cluster.objects.every(kind, team)
        ]
        return [f"{kind}/{name}" for kind, name in found if UUID in name]


@pytest.fixture(scope="module")
def site(dra: DraCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    dra.cluster.apply(kinds.GROVE)
    with Gkm.installed(dra.cluster, tmp_path_factory.mktemp("gkm"), DOMAINS, TASK_GROUPS) as gkm:
        gkm.controllers()
        gkm.admission()
        yield Site(dra, gkm)


def test_a_group_gets_its_objects_and_its_pods_the_claim(site: Site, team: str) -> None:
    site.apply_sample(team)
    pods = site.until_running(team)
    site.until_phase(team, "Running")
    domain = site.dra.domain(DOMAIN, team)
    settings = site.dra.cluster.objects.get("configmap", SETTINGS, team)
    assert settings["data"] == {"WORLD_SIZE": "4", "FIRST_TASK": "worker-0"}
    for made in (domain, settings):
        assert made["metadata"]["labels"]["osmo.workflow_id"] == "llama-1"
        assert made["metadata"]["labels"]["gkm.io/task-group"] == NAME
    for pod in pods:
        claims = [(one["name"], one["resourceClaimTemplateName"]) for one in pod["spec"]["resourceClaims"]]
        assert claims == [(CLAIM, DOMAIN)]
        assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": CLAIM}]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == TASKS


def test_the_conditions_say_that_nvlink_is_ready(site: Site, team: str) -> None:
    site.apply_sample(team)
    site.until_running(team)
    site.until_phase(team, "Running")
    site.dra.join(site.dra.domain(DOMAIN, team)["metadata"]["uid"], team)
    ready = ("True", "AllNodesReady")
    site.dra.cluster.until(lambda: site.condition(team, "MNNVLReady") == ready, "MNNVLReady of the group")
    assert site.condition(team, "ObjectsCreated") == ("True", "Created")


def ended_by_phase(site: Site, team: str) -> str:
    words = ("patch", "taskgroup", NAME, "--namespace", team, "--type=merge", '--patch={"spec":{"phase":"Canceled"}}')
    site.dra.cluster.kubectl(*words)
    stop_pods(site, team)
    return "Canceled"


def ended_by_pods(site: Site, team: str) -> str:
    site.complete(team)
    return "Succeeded"


def ended_by_deletion(site: Site, team: str) -> str:
    site.dra.cluster.kubectl("delete", "taskgroup", NAME, "--namespace", team, "--wait=false")
    stop_pods(site, team)
    return ""


def stop_pods(site: Site, team: str) -> None:
    """Delete the pods as an engine does; until then they use the domain, and GKM protects its claim template."""
    site.dra.cluster.until(lambda: not site.dra.cluster.exists("configmap", SETTINGS, team), "no ConfigMap")
    assert f"resourceclaimtemplates/{DOMAIN}" in site.left(team)
    site.dra.cluster.kubectl("delete", "job", NAME, "--namespace", team, "--wait=false")


@pytest.mark.parametrize("end", [ended_by_phase, ended_by_pods, ended_by_deletion])
def test_everything_goes_with_the_group(site: Site, team: str, end: Callable[[Site, str], str]) -> None:
    site.apply_sample(team)
    site.until_running(team)
    site.until_phase(team, "Running")
    uid = site.dra.domain(DOMAIN, team)["metadata"]["uid"]
    site.dra.cluster.until(lambda: site.dra.daemon_set(uid), "the DaemonSet of the domain")
    # The policy protects the claim template from the mark on, not from the first pod.
    site.dra.cluster.until(lambda: site.mark(team) not in ("", "0"), "the mark of the claim template")
    assert sorted(site.left(team)) == [
        f"computedomains/{DOMAIN}",
        f"configmaps/{SETTINGS}",
        f"resourceclaimtemplates/{DOMAIN}",
    ]
    phase = end(site, team)
    site.dra.cluster.until(lambda: not site.left(team), "nothing of the group")
    site.dra.cluster.until(lambda: not site.dra.daemon_set(uid), "no DaemonSet of the domain")
    site.until_phase(team, phase)


def test_a_group_that_breaks_the_rule_is_refused_with_its_message(site: Site, team: str) -> None:
    with pytest.raises(KubectlFailed, match="NVLink between nodes needs at least two tasks"):
        site.apply_sample(team, tasks=1)
    assert site.group(team) == {}


def test_the_reverse_proxy_of_the_samples_serves_while_its_group_runs(site: Site, team: str) -> None:
    site.apply_sample(team, "reverse-proxy")
    site.until_phase(team, "Running", "serve")
    reader = site.dra.cluster.objects
    (service,) = [one for one in reader.every("services", team) if one["metadata"]["name"] == "proxy-serve"]

    def proxies() -> list[str]:
        pods = [pod for pod in site.pods(team) if pod.get("status", {}).get("phase") == "Running"]
        selector = service["spec"]["selector"].items()
        return [pod["metadata"]["name"] for pod in pods if selector <= pod["metadata"]["labels"].items()]

    site.dra.cluster.until(lambda: len(proxies()) == 1, "the pod behind the Service")
    site.dra.cluster.kubectl("delete", "taskgroup", "serve", "--namespace", team, "--wait=false")
    site.until_phase(team, "", "serve")
    assert not [pod for pod in site.pods(team) if "deletionTimestamp" not in pod["metadata"]]
    for kind in ("deployments", "replicasets", "services"):
        assert reader.every(kind, team) == []

"""Every process of GKM at work, and a Prometheus that finds them by the PodMonitors of the chart.

The processes run beside the API server. Pods of the chart's templates say where: each has an address of 127.0.0.0/8, on
which the process of its name serves its metrics at the port of its container.
"""

import copy
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.kube.client import connect
from gkm.kube.resources import NODES
from support.agent.machine import Machine
from support.cluster.gkm_objects import cache
from support.csi.driver import Client, driver
from support.csi.namespaces import private_namespace
from support.csi.nodes import NodeFiles, publish_message
from support.fakes.nvml_library import H100
from support.images.archives import image_of_layers, mcv_image
from support.monitoring.expressions import ALERTS
from support.monitoring.pod_monitors import discovered, scrape_configs
from support.monitoring.prometheus import Prometheus, prometheus
from support.operator.accounts import Accounts, accounts
from support.operator.deployment import component, manifests
from support.operator.flavors_path import FLAVORS_PATH
from support.operator.group_templates import config_map, group, pool, template
from support.operator.nodes import put
from support.operator.plans import gpu_node, run
from support.operator.rights import SYSTEM
from support.operator.seen import NODE, TEAM
from support.registry.clients import plain_client
from support.registry.push import Target
from support.sigstore.key_signatures import sign_bundle

Json = dict[str, Any]
PODS = {
    "agent": "gkm-agent",
    "first": "gkm-controllers",
    "second": "gkm-controllers",
    "admission": "gkm-admission",
    "provider": "gkm-provider-infiniband",
}
"""Processes, and the DaemonSet or Deployment of each."""
RACK = "rack-of-the-fleet"


@dataclass
class Fleet:
    """The addresses of the processes."""

    addresses: dict[str, str] = field(default_factory=dict)

    def address(self, process: str) -> str:
        """Return where a process serves its metrics: at the port that its container declares."""
        if process not in self.addresses:
            choose = random.SystemRandom()
            self.addresses[process] = f"127.{choose.randint(1, 250)}.{choose.randint(0, 250)}.{choose.randint(1, 250)}"
        return f"{self.addresses[process]}:{port_of(pod_of(process))}"


def pod_of(process: str) -> Json:
    """Return the pod of a process, as its DaemonSet or Deployment makes it, on our Node."""
    owner = PODS[process]
    documents = [*manifests(), *component("topology-infiniband")]
    (found,) = (each for each in documents if each["kind"] in {"DaemonSet", "Deployment"} and name(each) == owner)
    template_of_pod = copy.deepcopy(found["spec"]["template"])
    spec = template_of_pod["spec"] | {"nodeName": NODE}
    # No such class is in this cluster.
    spec.pop("runtimeClassName", None)
    metadata = {"name": f"{owner}-{process}", "namespace": SYSTEM, "labels": template_of_pod["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def name(value: Json) -> str:
    return str(value["metadata"]["name"])


def port_of(pod: Json) -> int:
    (container,) = pod["spec"]["containers"]
    (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "health")
    return int(port)


@contextmanager
def monitored(directory: Path) -> Iterator[tuple[Accounts, Prometheus, "Mounted"]]:
    """Start everything, let each process work, and yield the Prometheus that has read all of it twice."""
    with ExitStack() as stack:
        # The socket of the CSI driver has a path of 107 bytes at most.
        short = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-")))
        place, fleet = stack.enter_context(accounts(short)), Fleet()
        place.address = fleet.address
        _configure(place.machine)
        place.register_node()
        for identity in ("first", "second"):
            place.controllers(identity)
        place.admission()
        place.agent()
        place.provider()
        for process, address in fleet.addresses.items():
            _run_pod(place, pod_of(process), address)
        server = stack.enter_context(_prometheus(place, directory))
        place.cluster.until(lambda: len(up(server)) == len(PODS), "Prometheus to find every process")
        mounted = _work(place, stack)
        # What changes between two scrapes has a rate.
        before = len(server.query("up[10m]")[0]["values"])
        place.cluster.until(lambda: len(server.query("up[10m]")[0]["values"]) > before + 2, "two more scrapes")
        yield place, server, mounted


def up(server: Prometheus) -> list[Json]:
    return [target for target in server.targets() if target["health"] == "up"]


def _prometheus(place: Accounts, directory: Path) -> Any:  # noqa: ANN401 -- a context manager
    targets = discovered(place.cluster.objects.every("pods", SYSTEM))
    monitors = [each for each in component("pod-monitors") if each["kind"] == "PodMonitor"]
    configs = [config for each in monitors for config in scrape_configs(each, targets)]
    return prometheus(directory / "prometheus", configs, ALERTS)


def _configure(machine: Machine) -> None:
    """Switch on task groups and captures as well, and let a call of the GPU driver fail that no cache depends on."""
    path = machine.root / "config.yaml"
    config = yaml.load(path.read_text(), yaml.CSafeLoader)
    capture = {"registry": f"{machine.registry.host}/captured", "signing": {"keyFile": str(path.with_name("key"))}}
    path.write_text(yaml.safe_dump(config | {"taskGroups": {"enabled": True}, "capture": capture}))
    machine.gpus({**H100, "errors": {"nvmlDeviceGetMemoryInfo": "NVML_ERROR_UNKNOWN"}})


def _run_pod(place: Accounts, pod: Json, address: str) -> None:
    """Make a pod, and report it as running as a kubelet would."""
    place.cluster.apply(pod)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    words = ("patch", "pod", name(pod), "--namespace", SYSTEM, "--subresource=status", "--type=merge")
    place.cluster.kubectl(*words, f"--patch={yaml.safe_dump({'status': status})}")


def _work(place: Accounts, stack: ExitStack) -> "Mounted":
    """Let every process do what it is for, and fail at some of it."""
    until, cluster, seen = place.cluster.until, place.cluster, place.seen
    wanted = {"llama": place.image, **{tag: _pushed(place.machine, tag) for tag in ("rocm", "damaged")}}
    for each, image in wanted.items():
        cluster.apply(cache(each, TEAM, image))
    put(connect(str(cluster.kubeconfig)), NODES, gpu_node(RACK, "domain", rack="a"))
    cluster.kubectl("label", "node", NODE, "rack=a")
    for each, state in (("llama", "Ready"), ("rocm", "Incompatible"), ("damaged", "Failed")):
        until(lambda each=each, state=state: seen.on_node(each, TEAM).get("state") == state, f"{each} to be {state}")  # type: ignore[misc]
    mounted = Mounted(place.machine, stack)
    for number in range(20):
        mounted.publish(f"csi-{number}", "llama")
    for missing, why in (("rocm", "is Incompatible"), ("unknown", "is not known")):
        mounted.misses(f"csi-{missing}", missing, why)
    cluster.apply([template("settings", config_map()), pool("pool", "settings")])
    made = group("g", of="pool")
    made["metadata"] = {"name": "g", "namespace": TEAM}
    cluster.apply(made)
    flavors = ("get", "serviceaccount", "gkm-flavors", "--namespace", SYSTEM, "--output", FLAVORS_PATH)
    until(lambda: "h100" in cluster.kubectl(*flavors).split(","), "its flavor to be known")
    cluster.apply(run("llama", 8, TEAM))
    until(partial(cluster.exists, "placementplan", "llama-1", TEAM), "a plan")
    until(partial(cluster.exists, "topologies.kueue.x-k8s.io", "racks"), "the Topology of Kueue")
    return mounted


def _pushed(machine: Machine, tag: str) -> str:
    """Push a signed image that fits no GPU of the machine, or one whose content is no cache."""
    reference = f"{machine.registry.host}/team/{tag}:1"
    image = mcv_image() if tag == "rocm" else image_of_layers(b"no archive")
    client = plain_client(machine.registry.host)
    digest = push.image(client, Reference.parse(reference), image)
    sign_bundle(Target(machine.registry.host, f"team/{tag}"), digest, machine.key)
    return reference


class Mounted:
    """The CSI driver of the machine, and kubelet's requests to it."""

    def __init__(self, machine: Machine, stack: ExitStack) -> None:
        self._files = NodeFiles(machine.root)
        (self._files.kubelet / "plugins_registry").mkdir(parents=True)
        running = stack.enter_context(driver(self._files, stack.enter_context(private_namespace())))
        self._client = stack.enter_context(Client(running.socket))

    def publish(self, volume: str, cache_name: str) -> None:
        """Mount a cache for a pod."""
        self._client.publish(volume, self._files.target(volume), {"cacheName": cache_name}, namespace=TEAM)

    def misses(self, volume: str, cache_name: str, why: str) -> None:
        """Fail to mount a cache, for this reason."""
        message = publish_message(volume, self._files.target(volume), {"cacheName": cache_name}, namespace=TEAM)
        _, text = self._client.refused("NodePublishVolume", message)
        assert f"{cache_name} {why}" in text, text

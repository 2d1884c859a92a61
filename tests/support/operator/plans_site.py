"""The controllers as processes, with the account and roles of deploy/base, on a real kube-apiserver, and a fleet."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gkm.kube.client import connect
from gkm.kube.resources import NODES, Json
from support.cluster.cluster import Cluster
from support.cluster.objects import RequestFailed
from support.cluster.rights import until_rights_hold
from support.host import listening, pages
from support.host.processes import Process
from support.operator.deployment import HURRIED, operator
from support.operator.nodes import put
from support.operator.plans import RAW_PLANS, RAW_RUNS, everything, gpu_node, run

NAMESPACE = "planned"
FLAVOR = "test-gpu"
"""One that no node of other tests has."""


class Site:
    """A fleet of its own in the cluster that tests share, and replicas that compete for a lease of their own."""

    def __init__(self, cluster: Cluster, directory: Path, stack: ExitStack) -> None:
        self.cluster = cluster
        self.api = connect(str(cluster.kubeconfig))
        self.names: list[str] = []
        self.health: dict[str, str] = {}
        self._directory = directory
        self._stack = stack

    def rack(self, domain: str, count: int) -> None:
        for number in range(count):
            node = gpu_node(f"plans-{domain}-n{number}", domain, gpu__flavor=FLAVOR)
            node["spec"] = {"taints": []}
            self.names.append(node["metadata"]["name"])
            put(self.api, NODES, node)

    def start(self, name: str, *, main: tuple[str, ...] = HURRIED, arguments: tuple[str, ...] = ()) -> Process:
        directory = self._directory / name
        directory.mkdir()
        account = "system:serviceaccount:gkm-system:gkm-controllers"
        command = (
            "controllers",
            "--health=127.0.0.1:0",
            f"--kubeconfig={self.cluster.kubeconfig_for(account)}",
            f"--identity={name}",
            f"--lease={self._directory.name}",
            "--log-level=debug",
            *arguments,
        )
        process = self._stack.enter_context(operator(directory, *command, main=main))
        pages.wait_until_ready(process)
        self.health[name] = listening.address(process)
        return process

    def ask(self, name: str, gpus: int, **spec: Any) -> None:  # noqa: ANN401 -- JSON
        self.api.create(RAW_RUNS, run(name, gpus, NAMESPACE, flavor=FLAVOR, **spec))

    def condition(self, name: str) -> tuple[str, str]:
        """The reason of Planned, and the plan that the status names."""
        status = self.api.get(RAW_RUNS, name, NAMESPACE).get("status", {})
        conditions = status.get("conditions", [])
        reasons = [condition["reason"] for condition in conditions if condition["type"] == "Planned"]
        return (reasons or [""])[0], status.get("planRef", {}).get("name", "")

    def until(self, name: str, reason: str, plan: str = "") -> Json:
        def so() -> bool:
            found = self.condition(name)
            return found[0] == reason and plan in ("", found[1])

        self.cluster.until(so, f"{name} to be {reason} {plan}")
        return self.api.get(RAW_RUNS, name, NAMESPACE)["status"]  # type: ignore[no-any-return]

    def plans(self) -> list[Json]:
        """The plans of the Runs that there are; those of others are on their way out."""
        uids = {one["metadata"]["uid"] for one in everything(self.api, RAW_RUNS)}
        found = everything(self.api, RAW_PLANS)
        return [plan for plan in found if plan["metadata"]["ownerReferences"][0]["uid"] in uids]

    def live(self, *names: str) -> list[str]:
        """What `kubectl get` shows of plans as LIVE, the second column behind the name."""
        shown = self.cluster.kubectl("get", "gkmp", *names, "-n", NAMESPACE).splitlines()
        assert shown[0].split()[:3] == ["NAME", "RUN", "LIVE"]
        return [line.split()[2] for line in shown[1:]]

    def totals(self) -> dict[str, int]:
        return dict.fromkeys(self.names, 8)

    def events(self, name: str) -> list[str]:
        found = self.cluster.objects.every("events", NAMESPACE, fieldSelector=f"involvedObject.name={name}")
        return sorted(event["reason"] for event in found)


@contextmanager
def plans_site(gkm_cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    """Yield a site; remove what it made."""
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    accept_every_flavor(gkm_cluster)
    directory = tmp_path / f"plans-{tmp_path.name[-20:].replace('_', '-')}"
    directory.mkdir()
    role = gkm_cluster.get("role", "gkm-controllers-lease", "gkm-system")
    role["rules"][0]["resourceNames"] = [directory.name]
    meta = {"metadata": {"name": directory.name, "namespace": "gkm-system"}}
    gkm_cluster.apply({key: role[key] for key in ("apiVersion", "kind", "rules")} | meta)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": directory.name}
    subject = {"kind": "ServiceAccount", "name": "gkm-controllers", "namespace": "gkm-system"}
    binding = {"apiVersion": role["apiVersion"], "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
    gkm_cluster.apply(binding | meta)
    until_rights_hold(gkm_cluster)
    with ExitStack() as stack:
        made = Site(gkm_cluster, directory, stack)
        try:
            yield made
        finally:
            for kind in ("jobs", "runs", "placementplans", "pods"):  # a Job would make its pods again
                gkm_cluster.objects.delete_every(kind, NAMESPACE)
            for name in made.names:
                gkm_cluster.objects.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    # After the controllers have ended: they may write it until then.
    accept_every_flavor(gkm_cluster)


def accept_every_flavor(cluster: Cluster) -> None:
    """Delete the flavors that the controllers of another test wrote, and wait until the API server has seen that.

    The policy gkm-runs-flavor refuses a Run with a flavor that is not among them.
    """
    flavors = {"name": "gkm-flavors", "namespace": "gkm-system"}
    cluster.objects.delete({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": flavors})
    request = run("flavor-check", 8, NAMESPACE, flavor=FLAVOR)

    def accepted() -> bool:
        try:
            cluster.objects.create(request, dry_run=True)
        except RequestFailed:
            return False
        return True

    cluster.until(accepted, f"a Run of flavor {FLAVOR} to be accepted")

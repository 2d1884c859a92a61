"""A real Kubernetes below one directory: `with Cluster.start(directory) as cluster:`; `node=True` adds a real node.

Everything it started is ended when the block ends, also after a failure, and also when this process is killed.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml
from support.cluster.control_plane import ControlPlane, Options
from support.cluster.objects import Objects, RequestFailed
from support.host.waiting import scaled, until
from support.node import config as node_config
from support.node.container_images import Files, docker_archive
from support.node.node import MACHINE_RUNTIME, Node, Runtime
from support.node.node import check as check_node
from support.peers import build as peers

T = TypeVar("T")
ADMINS = ("system:masters",)
SERVICE_ACCOUNT = "system:serviceaccount:"
_MANIFESTS = (".json", ".yaml", ".yml")
"""The files of a directory that kubectl reads."""


class KubectlFailed(RuntimeError):
    """kubectl refused; `stderr` is what it said."""

    def __init__(self, arguments: Sequence[str], stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(arguments)}: {stderr.strip()}")
        self.stderr = stderr


@dataclass(frozen=True)
class Cluster:
    """One running cluster."""

    directory: Path
    control_plane: ControlPlane
    node: Node | None = None

    @classmethod
    @contextmanager
    def start(
        cls,
        directory: Path,
        *,
        node: bool = False,
        scheduler: bool = False,
        large: bool = False,
        runtime: Runtime = MACHINE_RUNTIME,
    ) -> Iterator["Cluster"]:
        """Start a cluster below `directory`, which may exist and be empty.

        `node` adds a real node (root, Linux, a path of at most 40 characters) and a scheduler; one at a time on a
        machine, so a second one waits. `scheduler` adds only the scheduler, for nodes of others' making. `large` is
        for gigabytes of objects, `runtime` the container runtime of the node.

        Raises:
            Missing: something is not on this machine; the message says what.
            ProcessFailed: a component ended or was never ready; the message holds the end of its log.
        """
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            options = Options(scheduler=scheduler or node, large=large)
            if node:
                check_node(directory / "node")
                options = node_config.CONTROL_PLANE
            control_plane = ControlPlane(directory / "control-plane", options)
            stack.callback(control_plane.close)
            control_plane.start()
            running = stack.enter_context(Node.start(directory / "node", control_plane, runtime)) if node else None
            cluster = cls(directory, control_plane, running)
            cluster.until(lambda: cluster.exists("serviceaccount", "default", "default"), "a service account")
            if node:
                cluster.until(cluster._node_is_ready, f"node {cluster.node_name} to be Ready")
            yield cluster

    @property
    def url(self) -> str:
        """Where the API server answers: https on a loopback port."""
        return self.control_plane.url

    @property
    def node_name(self) -> str:
        return self._node.name

    @property
    def kubelet_root(self) -> Path:
        """kubelet's --root-dir: plugins_registry/, pods/ and plugins/ are in it. A shared mount."""
        return self._node.places.kubelet

    def image(self, name: str, files: Files, *, command: Sequence[str] = ()) -> str:
        """Make an image of one layer and give it to the node; return its name for a pod's `image:`."""
        self._node.import_image(docker_archive(name, files, command=command))
        return name

    def load_image(self, archive: Path) -> None:
        """Give the node a docker-archive that somebody else made (buildah push … docker-archive:…)."""
        self._node.import_image(archive)

    def restart_kubelet(self) -> None:
        """Kill kubelet and start it again; pods run on meanwhile."""
        self._node.restart_kubelet()

    def reboot(self, lost: Sequence[Path]) -> None:
        """Reboot the node: pods, mounts and the directories `lost` are gone then, disks and the API server stay."""
        self._node.reboot(lost)

    def tag_image(self, image: str, name: str) -> None:
        """Give an image that the node has another name."""
        self._node.tag_image(image, name)

    def logs(self, pod: str, namespace: str = "default") -> str:
        """Return what a pod's containers printed, by way of kubelet."""
        return self.kubectl("logs", pod, "--namespace", namespace, "--all-containers")

    @property
    def _node(self) -> Node:
        if self.node is None:
            raise ValueError("this cluster has no node; start it with node=True")
        return self.node

    def _node_is_ready(self) -> bool:
        found = self.objects.get("node", self.node_name)
        conditions = found.get("status", {}).get("conditions", [])
        ready = any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
        return ready and not found["spec"].get("taints")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig (system:masters, client certificate)."""
        return self.kubeconfig_for("admin", ADMINS)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = (), *, node: str | None = None) -> Path:
        """Return a kubeconfig for any user.

        For `system:serviceaccount:<namespace>:<name>` it holds a token of that ServiceAccount (which must exist),
        bound to the Node `node` if given; for anybody else a client certificate with `groups`.
        """
        name = "_".join([user.replace(":", "_"), *groups, *([node] if node else [])]).replace(":", "_")
        path = self.control_plane.directory / "kubeconfigs" / f"{name}.json"
        if user.startswith(SERVICE_ACCOUNT):
            namespace, account = user.removeprefix(SERVICE_ACCOUNT).split(":")
            return self.control_plane.kubeconfig(name, {"token": self.token(account, namespace, node=node)})
        return path if path.exists() else self.control_plane.client_kubeconfig(name, user, tuple(groups))

    def token(self, service_account: str, namespace: str, *, node: str | None = None) -> str:
        """Return a fresh token of a ServiceAccount; `node` binds it to a Node, as kubelet's tokens are."""
        return self.objects.token(service_account, namespace, ("Node", node) if node else None)

    def kubectl(self, *arguments: str, input: str | None = None, kubeconfig: Path | None = None) -> str:  # noqa: A002 -- subprocess calls it so
        """Run kubectl as the administrator, or as whom `kubeconfig` is for, and return its output.

        Raises:
            KubectlFailed: it ended with an error.
        """
        command = [
            str(peers.binary("kubectl")),
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self._kubectl_cache}",
            *arguments,
        ]
        # It ends before a collection pays off.
        environment = {**os.environ, "GOGC": "off"}
        done = subprocess.run(
            command,
            input=input or "",
            capture_output=True,
            text=True,
            env=environment,
            timeout=scaled(120),
            check=False,
        )
        if done.returncode:
            raise KubectlFailed(arguments, done.stderr or done.stdout)
        return done.stdout

    def forget_kinds(self) -> None:
        """Let kubectl ask for the versions of kinds again, which it does every ten minutes, or for an unknown kind."""
        shutil.rmtree(self._kubectl_cache, ignore_errors=True)

    @property
    def _kubectl_cache(self) -> Path:
        return self.directory / "kubectl-cache"

    def apply(self, what: Path | str | Mapping[str, Any] | list[dict[str, Any]]) -> None:
        """Apply a file, a directory of files, YAML text, one object or several.

        Raises:
            KubectlFailed: it was refused; kubectl says why.
        """
        wanted = list(_objects_in(what))
        try:
            for one in wanted:
                self.objects.apply(one)
        except RequestFailed:
            # kubectl has the words that users read; and it applies the others.
            everything = {"apiVersion": "v1", "kind": "List", "items": wanted}
            self.kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", input=json.dumps(everything))

    @cached_property
    def objects(self) -> Objects:
        """What the API server has, for the administrator."""
        return Objects(self.url, self.control_plane.admin_context())

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return one object as the API server has it.

        Raises:
            RequestFailed: it is not there.
        """
        if found := self.objects.get(kind, name, namespace):
            return found
        raise RequestFailed(f"there is no {kind} {name} in {namespace or 'the cluster'}")

    def exists(self, kind: str, name: str, namespace: str | None = None) -> bool:
        """Tell whether the object is there."""
        return bool(self.objects.get(kind, name, namespace))

    def until_kinds_established(self) -> None:
        """Wait until the API server serves the kind of each CustomResourceDefinition.

        `kubectl wait` would end with an error where a definition has no conditions yet.
        """

        def established() -> bool:
            found = self.objects.every("customresourcedefinitions")
            return all(_is_established(one.get("status", {})) for one in found)

        self.until(established, "the kinds to be established")

    def until(self, probe: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
        """Wait for a condition; when it never comes, the message holds the last lines of every log.

        Raises:
            TimeoutError: it did not come within `seconds`.
        """
        try:
            return until(probe, what, seconds)
        except TimeoutError as late:
            processes = [*self.control_plane.processes, *(self.node.processes if self.node else [])]
            tails = "\n".join(f"{process.name}:\n{process.tail()}" for process in processes)
            raise TimeoutError(f"{late}\n{tails}") from late


def _objects_in(what: Path | str | Mapping[str, Any] | list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
    if isinstance(what, Path):
        files = sorted(file for file in what.rglob("*") if file.suffix in _MANIFESTS) if what.is_dir() else [what]
        for file in files:
            yield from _objects_in(file.read_text(encoding="utf-8"))
    elif isinstance(what, Mapping):
        yield from what["items"] if what["kind"] == "List" else [what]
    else:
        for one in yaml.load_all(what, yaml.CSafeLoader) if isinstance(what, str) else what:
            yield from _objects_in(one) if one else []


def _is_established(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or []
    return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)

"""A real node: containerd, runc, CNI and kubelet, started and taken away again. Needs root and Linux."""

import ctypes
import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from support.cluster.control_plane import ControlPlane, answers
from support.host import ports
from support.host.processes import Process
from support.host.waiting import scaled, until
from support.node import config as node_config
from support.node import container_images as images
from support.node.config import GATEWAY, SERVICE_ADDRESS, Places
from support.node.sweep import Before, end_pods
from support.peers import build as peers
from support.peers.missing import Missing

LOCK = Path("/run/lock/gkm-testbed-node")
LOCK_SECONDS = 240.0
LONGEST_DIRECTORY = 48
"""Unix socket names have 107 bytes, and kubelet's and containerd's sockets lie deep below the directory."""
KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
MS_BIND, MS_REC, MS_SHARED = 4096, 16384, 1 << 20


@dataclass(frozen=True)
class Runtime:
    """The container runtime of a node: that of the machine, or its own programs."""

    containerd: Path = Path("containerd")
    ctr: Path = Path("ctr")
    runc: Path | None = None

    @classmethod
    def mapping_ids(cls) -> "Runtime":
        """Return one that maps the ids of mounts: containerd 2, and a runc that does not ignore the mapping.

        Raises:
            Missing: it must be built and there is no Go.
        """
        peers.binary("containerd-shim-runc-v2")  # containerd finds it beside itself
        return cls(peers.binary("containerd2"), peers.binary("ctr2"), peers.binary("runc-mapping"))

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.containerd.parent}:{os.environ['PATH']}"} if self.runc else {}


MACHINE_RUNTIME = Runtime()


@dataclass
class Node:
    """A running node."""

    places: Places
    runtime: Runtime = MACHINE_RUNTIME
    name: str = "testbed-node"
    processes: list[Process] = field(default_factory=list)
    _run_again: dict[str, Callable[[], None]] = field(default_factory=dict)

    def restart_kubelet(self) -> None:
        """Kill kubelet, and nothing that it started, and start it again as it was."""
        self._kill("kubelet")
        self._run_again["kubelet"]()

    def reboot(self, lost: Sequence[Path]) -> None:
        """End everything on the node, take away what a reboot does, and start containerd and kubelet again.

        `lost` are directories that lie in memory elsewhere, below /run, and here on a disk as containerd's state does.
        The boot id of the machine stays.
        """
        self._kill("kubelet")
        self._kill("containerd")
        end_pods(self.places)
        for directory in (*lost, self.places.containerd / "state"):
            shutil.rmtree(directory)
        _share(self.places.directory)
        for name in ("containerd", "kubelet"):
            self._run_again[name]()

    def _kill(self, name: str) -> None:
        for process in [found for found in self.processes if found.name == name]:
            process.kill()
            self.processes.remove(process)

    def import_image(self, archive: bytes | Path) -> None:
        """Give containerd a docker-archive; pods use it with imagePullPolicy Never (or IfNotPresent)."""
        path = archive
        if isinstance(archive, bytes):
            path = self.places.directory / f"image-{secrets.token_hex(4)}.tar"
            path.write_bytes(archive)
        before = self._ctr("images", "list", "--quiet").split()
        self._ctr("images", "import", str(path))
        if isinstance(archive, bytes) and isinstance(path, Path):
            path.unlink()
        new = set(self._ctr("images", "list", "--quiet").split()) - set(before)
        # kubelet sees an image when the CRI plugin has noticed it, and says so by a label.
        until(lambda: new <= self._noticed(), f"containerd to notice {sorted(new)}")

    def tag_image(self, image: str, name: str) -> None:
        """Give an image that the node has another name."""
        self._ctr("images", "tag", image, name)
        until(lambda: name in self._noticed(), f"containerd to notice {name}")

    def _noticed(self) -> set[str]:
        return set(self._ctr("images", "list", "--quiet", 'labels."io.cri-containerd.image"==managed').split())

    def _ctr(self, *arguments: str) -> str:
        command = [str(self.runtime.ctr), "--address", str(self.places.socket), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(120), check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    @classmethod
    @contextmanager
    def start(
        cls, directory: Path, control_plane: ControlPlane, runtime: Runtime = MACHINE_RUNTIME
    ) -> Iterator["Node"]:
        """Run a node of `control_plane` below `directory`; yield when containerd and kubelet answer."""
        check(directory)
        directory.mkdir(parents=True)
        places = Places(directory, f"gkm{secrets.token_hex(4)}")
        with ExitStack() as stack:
            lock = stack.enter_context(_machine_lock())
            if _listens(KUBELET_SOCKET):
                raise Missing(f"a node needs a machine without a kubelet, and one serves {KUBELET_SOCKET}")
            Before.look(places.bridge).write(directory)
            stack.enter_context(_swept(directory, lock))
            _share(directory)
            _make_bridge(places.bridge)
            node = cls(places, runtime)
            node._start_containerd(stack)
            node._start_forwarder(stack, control_plane)
            node._start_kubelet(stack, control_plane)
            yield node

    def _start_containerd(self, stack: ExitStack) -> None:
        places = self.places
        for path in (places.containerd, places.directory / "cni", places.directory / "logs"):
            path.mkdir()
        config = places.directory / "containerd.toml"
        config.write_text(node_config.containerd(places, self.runtime.runc))
        (places.directory / "cni" / "10-testbed.conflist").write_text(node_config.cni(places))

        def run() -> None:
            process = self._run(stack, "containerd", [self.runtime.containerd, "--config", config])
            process.ready(self._serves_kubelet, "its socket answered", 30)

        self._run_again["containerd"] = run
        run()
        self.import_image(images.pause())
        self.import_image(images.busybox())

    def _serves_kubelet(self) -> bool:
        """Ask as kubelet does, which ends at an error: after a reboot, containerd answers before it has recovered."""
        with grpc.insecure_channel(f"unix:{self.places.socket}") as channel:
            version = channel.unary_unary("/runtime.v1.RuntimeService/Version", bytes, bytes)
            try:
                return bool(version(b"", timeout=scaled(5)))
            except grpc.RpcError:
                return False

    def _start_forwarder(self, stack: ExitStack, control_plane: ControlPlane) -> None:
        """Make the Service `kubernetes` answer, so that pods find the API server as they do elsewhere."""
        port = str(control_plane.port)
        command = [sys.executable, "-m", "support.node.forward", SERVICE_ADDRESS, "443", port]
        process = self._run(stack, "forward", command)
        process.ready(lambda: _listens((SERVICE_ADDRESS, 443)), "it listened", 15)

    def _start_kubelet(self, stack: ExitStack, control_plane: ControlPlane) -> None:
        places, pki = self.places, control_plane.pki
        control_plane.authority.server([self.name, GATEWAY]).write(pki, "kubelet")
        user = f"system:node:{self.name}"
        kubeconfig = control_plane.client_kubeconfig("kubelet", user, ("system:nodes",))
        health = ports.free()
        config = places.directory / "kubelet.json"
        config.write_text(node_config.kubelet(places, pki, ports.free(), health))
        places.kubelet.mkdir()
        arguments: list[str | Path] = [
            peers.binary("kubelet"),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={places.kubelet}",
            f"--cert-dir={places.directory / 'kubelet-pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={GATEWAY}",
        ]

        def run() -> None:
            process = self._run(stack, "kubelet", arguments)
            process.ready(answers(f"http://127.0.0.1:{health}/healthz"), "/healthz answered")

        self._run_again["kubelet"] = run
        run()

    def _run(self, stack: ExitStack, name: str, arguments: Sequence[str | Path]) -> Process:
        environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), **self.runtime.environment}
        log = self.places.directory / "logs" / f"{name}.log"
        process = Process.start(name, arguments, log, environment)
        self.processes.append(process)
        stack.callback(process.stop)
        return process


def check(directory: Path) -> None:
    """Say in one sentence what is missing for a node here.

    Raises:
        Missing: this machine cannot run one.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Missing("a node needs Linux and root")
    tools = [tool for tool in ("containerd", "ctr", "runc", "ip", "busybox") if not shutil.which(tool)]
    if not (node_config.CNI_PLUGINS / "bridge").exists():
        tools.append("CNI plugins")
    if tools:
        raise Missing(f"a node needs {', '.join(tools)}: run scripts/debian-packages as root")
    if len(str(directory)) > LONGEST_DIRECTORY:
        raise ValueError(f"{directory} is longer than {LONGEST_DIRECTORY} characters, too long for a node's sockets")


@contextmanager
def _machine_lock() -> Iterator[int]:
    """Hold the machine's one place for a node: kubelet's device plugin socket has a fixed path.

    Raises:
        TimeoutError: another node of ours kept it for too long.
    """
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a") as file:

        def held() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        until(held, f"another testbed node on this machine to end (it holds {LOCK})", LOCK_SECONDS)
        yield file.fileno()


@contextmanager
def _swept(directory: Path, lock: int) -> Iterator[None]:
    """Have a janitor sweep the machine when we are done, or dead."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with (directory / "janitor.log").open("wb") as log:
        janitor = subprocess.Popen(
            [sys.executable, "-m", "support.node.janitor", str(directory)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            env=environment,
            start_new_session=True,
        )
    try:
        yield
    finally:
        janitor.communicate(timeout=scaled(60))
        if janitor.returncode:
            raise RuntimeError(f"the node was not swept away: {(directory / 'janitor.log').read_text()}")


def _share(directory: Path) -> None:
    """Make the directory a shared mount, as systemd makes /; Bidirectional propagation into pods needs it."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = os.fsencode(directory)
    for flags in (MS_BIND, MS_SHARED | MS_REC):
        if libc.mount(path, path, None, flags, None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(directory))


_BRIDGE_ADDRESS = "02:00:0a:d5:4d:01"
"""Locally administered."""


def _make_bridge(name: str) -> None:
    """Make the gateway of pods.

    Its hardware address is fixed: a bridge takes the lowest of its ports otherwise, and when a new pod changes it, the
    others send to the address of before for up to half a minute.
    """
    for words in (
        ["link", "add", name, "address", _BRIDGE_ADDRESS, "type", "bridge"],
        ["address", "add", f"{GATEWAY}/24", "dev", name],
        ["address", "add", f"{SERVICE_ADDRESS}/32", "dev", name],
        ["link", "set", name, "up"],
    ):
        subprocess.run(["ip", *words], check=True, capture_output=True)


def _listens(address: str | tuple[str, int]) -> bool:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        probe.settimeout(1)
        return probe.connect_ex(address) == 0

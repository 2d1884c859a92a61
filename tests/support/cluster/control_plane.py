"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler as one unit below one directory.

Every one listens on a loopback port of its own, so several control planes live side by side on one machine.
"""

import base64
import json
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from support.cluster.certificates import Authority, private_pem, public_pem
from support.host import ports
from support.host.processes import Process
from support.host.waiting import scaled
from support.peers import build as peers

ISSUER = "https://kubernetes.default.svc.cluster.local"
_RARE_COLLECTIONS = {"GOGC": "400"}
"""Go's garbage collector took a tenth of the CPU time of a control plane; 200 MiB more memory spare that."""

_LARGE_STORE = ("--quota-backend-bytes=6442450944", "--snapshot-count=100", "--snapshot-catchup-entries=50")
"""etcd holds all that it has not snapshotted in memory: by default 10,000 transactions."""
_NO_WATCH_OF_ALL = ("--controllers=*,-garbage-collector-controller,-resourcequota-controller",)


@dataclass(frozen=True)
class Options:
    """What differs between a control plane alone and one with a node."""

    scheduler: bool = False
    service_cidr: str = "10.96.0.0/24"
    service_address: str = "10.96.0.1"
    advertised: str = "192.0.2.1"
    """The address in the endpoints of the Service `kubernetes`; loopback is not allowed there, and nobody uses it."""
    large: bool = False
    """For gigabytes of objects: etcd may store 6 GiB, and only etcd's file holds them. The API server has no cache, and
    the two controllers do not run that watch every kind."""


@dataclass
class ControlPlane:
    """A running control plane; `close` ends it."""

    directory: Path
    options: Options
    authority: Authority = field(default_factory=Authority.create)
    port: int = field(default_factory=ports.free)
    processes: list[Process] = field(default_factory=list)
    etcd_url: str = ""
    _cleanup: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    def start(self) -> None:
        """Start everything and wait until the API server answers; what was started is ended when this fails."""
        try:
            self._write_keys()
            self.etcd_url = self._start_etcd()
            self._start_apiserver(self.etcd_url)
            self._start_controller_manager()
            if self.options.scheduler:
                self._start_scheduler()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process, the last one first."""
        self._cleanup.close()

    def admin_context(self) -> ssl.SSLContext:
        """Return what an administrator connects to the API server with."""
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        return context

    def process(self, name: str) -> Process:
        """Return the process that runs now under this name."""
        return next(process for process in reversed(self.processes) if process.name == name)

    def restart_apiserver(self) -> None:
        """Kill the API server as a crash would, start it again on its port, and wait until it answers."""
        self.process("kube-apiserver").kill()
        self._start_apiserver(self.etcd_url)

    @contextmanager
    def stalled(self, name: str) -> Iterator[None]:
        """Stop a process for as long as the block lasts, as an overrun disk or machine would."""
        process = self.process(name)
        process.popen.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.popen.send_signal(signal.SIGCONT)

    def compact(self) -> int:
        """Let etcd forget all history up to now; return the revision that is left (etcd's gRPC gateway)."""
        revision = int(self._etcd("kv/range", {"key": _b64(b"/"), "limit": 1})["header"]["revision"])
        self._etcd("kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def stored(self, key: str) -> bytes:
        """Return a value of etcd."""
        found = self._etcd("kv/range", {"key": _b64(key.encode())})["kvs"]
        return base64.b64decode(found[0]["value"])

    def store(self, values: Mapping[str, bytes]) -> None:
        """Write values into etcd in one transaction, behind the API server's back: 1.5 MiB and 128 values at most."""
        puts = [{"requestPut": {"key": _b64(key.encode()), "value": _b64(value)}} for key, value in values.items()]
        self._etcd("kv/txn", {"success": puts})

    def _etcd(self, call: str, body: dict[str, object]) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.etcd_url}/v3/{call}", json.dumps(body).encode(), timeout=scaled(30)) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def kubeconfig(self, name: str, user: dict[str, object], *, server: str | None = None) -> Path:
        """Write and return a kubeconfig for somebody; `user` is the `user:` mapping of the file."""
        cluster = {"server": server or self.url, "certificate-authority-data": self.authority.base64}
        path = self.directory / "kubeconfigs" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o600)
        # JSON is YAML; every client reads it.
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": name}}],
            "current-context": "testbed",
        }
        path.write_text(json.dumps(content, indent=1))
        return path

    def client_kubeconfig(self, name: str, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Return a kubeconfig with a client certificate for any user and groups."""
        issued = self.authority.client(user, groups)
        return self.kubeconfig(
            name, {"client-certificate-data": _b64(issued.certificate), "client-key-data": _b64(issued.key)}
        )

    def _run(self, name: str, command: str, *arguments: str) -> Process:
        logs = self.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{name}.log"
        process = Process.start(name, [peers.binary(command), *arguments], log, _RARE_COLLECTIONS)
        self.processes.append(process)
        # Nothing of it is kept, and etcd takes 10 s to end in order.
        self._cleanup.callback(process.kill)
        return process

    def _write_keys(self) -> None:
        self.pki.mkdir(parents=True, exist_ok=True)
        (self.pki / "ca.crt").write_bytes(self.authority.pem)
        key = ec.generate_private_key(ec.SECP256R1())
        (self.pki / "service-account.pub").write_bytes(public_pem(key.public_key()))
        (self.pki / "service-account.key").touch(mode=0o600)
        (self.pki / "service-account.key").write_bytes(private_pem(key))
        names = [
            "127.0.0.1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            self.options.service_address,
        ]
        self.authority.server(names).write(self.pki, "apiserver")
        self.authority.client("kube-apiserver", ("system:masters",)).write(self.pki, "apiserver-client")

    def _start_etcd(self) -> str:
        port, peer_port = ports.free(), ports.free()
        url = f"http://127.0.0.1:{port}"
        process = self._run(
            "etcd",
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
            *(_LARGE_STORE if self.options.large else ()),
        )
        process.ready(answers(f"{url}/health"), f"{url}/health answered")
        return url

    def _start_apiserver(self, etcd: str) -> None:
        pki = self.pki
        process = self._run(
            "kube-apiserver",
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--advertise-address={self.options.advertised}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--cert-dir={pki}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={pki / 'service-account.pub'}",
            f"--service-account-signing-key-file={pki / 'service-account.key'}",
            f"--service-cluster-ip-range={self.options.service_cidr}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'apiserver-client.crt'}",
            f"--kubelet-client-key={pki / 'apiserver-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            # There is no kube-proxy: it calls the pods behind a webhook's Service itself.
            "--enable-aggregator-routing=true",
            "--profiling=false",
            f"--watch-cache={'false' if self.options.large else 'true'}",
        )
        self.authority.client("admin", ("system:masters",)).write(pki, "admin")
        process.ready(answers(f"{self.url}/readyz", self.admin_context()), "/readyz answered")

    def _start_controller_manager(self) -> None:
        port = ports.free()
        process = self._run(
            "kube-controller-manager",
            "kube-controller-manager",
            *self._component_arguments("kube-controller-manager", port),
            # As every distribution does: with false, a deleted namespace sticks behind our admission policies.
            "--use-service-account-credentials=true",
            # Tests make Nodes that no kubelet keeps alive.
            "--node-monitor-grace-period=1h",
            # It makes a ServiceAccount for each of its controllers first; the default rate makes that 5 s.
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            f"--service-account-private-key-file={self.pki / 'service-account.key'}",
            f"--root-ca-file={self.pki / 'ca.crt'}",
            *(_NO_WATCH_OF_ALL if self.options.large else ()),
        )
        process.ready(answers(f"https://127.0.0.1:{port}/healthz", _unverified()), "/healthz answered")

    def _start_scheduler(self) -> None:
        port = ports.free()
        process = self._run("kube-scheduler", "kube-scheduler", *self._component_arguments("kube-scheduler", port))
        process.ready(answers(f"https://127.0.0.1:{port}/healthz", _unverified()), "/healthz answered")

    def _component_arguments(self, name: str, port: int) -> list[str]:
        kubeconfig = self.client_kubeconfig(name, f"system:{name}")
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authentication-skip-lookup=true",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--leader-elect=false",
            "--profiling=false",
        ]


def answers(url: str, context: ssl.SSLContext | None = None) -> Callable[[], bool]:
    """Return a probe: does `url` answer 200?"""
    # No proxy from the environment may stand between us and a loopback address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

    def probe() -> bool:
        try:
            with opener.open(url, timeout=scaled(2)) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return probe


def _unverified() -> ssl.SSLContext:
    # These two components make their own certificates; only "does it listen" is asked.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()

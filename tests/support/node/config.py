"""The configuration texts of a node: containerd, CNI, kubelet. Values in, texts out; nothing is started here."""

import json
from dataclasses import dataclass
from pathlib import Path

from support.cluster.control_plane import Options
from support.node.container_images import PAUSE

POD_CIDR = "10.213.77.0/24"
GATEWAY = "10.213.77.1"
"""The node's own address, on the bridge that only this machine sees: kubelet refuses a loopback address."""
SERVICE_CIDR = "10.213.78.0/24"
SERVICE_ADDRESS = "10.213.78.1"
CONTROL_PLANE = Options(scheduler=True, service_cidr=SERVICE_CIDR, service_address=SERVICE_ADDRESS, advertised=GATEWAY)
"""What the control plane of a cluster with this node runs with."""
CNI_PLUGINS = Path("/usr/lib/cni")


@dataclass(frozen=True)
class Places:
    """Where a node keeps its things, all below one directory."""

    directory: Path
    bridge: str

    @property
    def containerd(self) -> Path:
        return self.directory / "containerd"

    @property
    def socket(self) -> Path:
        return self.containerd / "containerd.sock"

    @property
    def tasks(self) -> Path:
        """One directory for each running container."""
        return self.containerd / "state" / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def kubelet(self) -> Path:
        return self.directory / "kubelet"

    @property
    def pod_logs(self) -> Path:
        return self.directory / "pod-logs"

    @property
    def network(self) -> str:
        """The CNI network's name; CNI keeps results under it outside our directory."""
        return f"testbed-{self.bridge}"


def containerd(places: Places, runc: Path | None = None) -> str:
    """Return containerd's config.toml; version 2 is read by 1.6, 1.7 and (converted) 2.x.

    `runc` is None for that of the machine.
    """
    binary = f'BinaryName = "{runc}"' if runc else ""
    base = places.containerd
    return f"""
version = 2
root = "{base / "root"}"
state = "{base / "state"}"
[grpc]
  address = "{places.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{base / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{places.directory / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{base / "runc"}"
        SystemdCgroup = false
        {binary}
"""


def cni(places: Places) -> str:
    """Return a conflist: our bridge, no masquerading, so no firewall rule is ever made."""
    ipam = {
        "type": "host-local",
        "dataDir": str(places.directory / "ipam"),
        "ranges": [[{"subnet": POD_CIDR, "gateway": GATEWAY}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": places.bridge, "isGateway": True, "ipMasq": False, "ipam": ipam}
    return json.dumps({"cniVersion": "0.4.0", "name": places.network, "plugins": [bridge]})


def kubelet(places: Places, pki: Path, port: int, health_port: int) -> str:
    """Return a KubeletConfiguration that also runs on a machine with cgroup v1, swap and a nearly full disk."""
    value = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": GATEWAY,
        "port": port,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health_port,
        "tlsCertFile": str(pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet.key"),
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(pki / "ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{places.socket}",
        "podLogsDir": str(places.pod_logs),
        "volumePluginDir": str(places.directory / "volume-plugins"),
        "resolvConf": "",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "oomScoreAdj": 0,
        # As many as POD_CIDR has addresses for, and some to spare; kubelet's own limit is 110.
        "maxPods": 220,
        "makeIPTablesUtilChains": False,
        "evictionHard": dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%"),
        "imageGCHighThresholdPercent": 100,
        # Quick to say Ready, quick to notice: a test waits for every one of these.
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "2s",
    }
    return json.dumps(value)

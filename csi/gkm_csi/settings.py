"""What the process is told: flags, each with a twin in the environment, and defaults that fit a usual node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate.command_line import Parser
from gkm.hoststate.layout import Layout

from gkm_csi.identity import NAME

_MAX_NODE_ID = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are on this node."""

    node: str
    layout: Layout
    kubelet: Path
    endpoint: Path
    endpoint_for_kubelet: str
    registration: Path
    driver_version_file: Path
    max_volumes: int
    log_level: str
    probe: bool


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings; a flag wins over its twin in the environment.

    Raises:
        SystemExit: a setting is missing or wrong; the sentence went to standard error.
    """
    parser = Parser("gkm-csi", description="Mounts GPU kernel caches into pods (CSI driver csi.gkm.io).")
    parser.add_version()

    def flag(name: str, twin: str, default: str, text: str) -> None:
        parser.add_argument(name, default=environment.get(twin, default), help=f"{text} [{twin}]")

    flag("--node", "GKM_NODE", "", "name of the node, as Kubernetes knows it; required")
    flag("--state", "GKM_STATE", str(Layout().state), "directory that the agent fills")
    flag("--run", "GKM_RUN", str(Layout().run), "directory of records; gone after a reboot")
    flag("--kubelet", "GKM_KUBELET", "/var/lib/kubelet", "kubelet's root directory, the same path in here as outside")
    flag("--endpoint", "CSI_ENDPOINT", "", f"CSI socket (default: plugins/{NAME}/csi.sock in kubelet's directory)")
    flag("--kubelet-endpoint", "GKM_CSI_KUBELET_ENDPOINT", "", "CSI socket as kubelet sees it (default: the same path)")
    flag("--registration", "GKM_CSI_REGISTRATION", "", "registration socket (default: in kubelet's plugins_registry)")
    flag(
        "--driver-version-file", "GKM_DRIVER_VERSION_FILE", "/sys/module/nvidia/version", "version of the loaded driver"
    )
    flag("--max-volumes", "GKM_CSI_MAX_VOLUMES", "1024", "volumes that this node may have")
    flag("--log-level", "GKM_LOG_LEVEL", "info", "debug, info, warning or error")
    parser.add_argument("--probe", action="store_true", help="ask the driver that runs here whether it answers; end")
    given = parser.parse_args(arguments)

    if not given.node or len(given.node.encode()) > _MAX_NODE_ID:
        parser.error("say which node this is: --node or GKM_NODE, at most 256 bytes")
    if not given.max_volumes.isdecimal():
        parser.error("--max-volumes must be a number; 0 leaves it to kubelet")
    if given.log_level not in ("debug", "info", "warning", "error"):
        parser.error("--log-level must be debug, info, warning or error")
    kubelet = _absolute(parser, given.kubelet)
    endpoint = given.endpoint.removeprefix("unix://").removeprefix("unix:") or f"{kubelet}/plugins/{NAME}/csi.sock"
    registration = given.registration or f"{kubelet}/plugins_registry/{NAME}-reg.sock"
    return Settings(
        node=given.node,
        layout=Layout(_absolute(parser, given.state), _absolute(parser, given.run)),
        kubelet=kubelet,
        endpoint=_absolute(parser, endpoint),
        endpoint_for_kubelet=given.kubelet_endpoint or endpoint,
        registration=_absolute(parser, registration),
        driver_version_file=Path(given.driver_version_file),
        max_volumes=int(given.max_volumes),
        log_level=given.log_level,
        probe=given.probe,
    )


def _absolute(parser: Parser, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        parser.error(f"{text}: must be an absolute path without '..'")
    return path

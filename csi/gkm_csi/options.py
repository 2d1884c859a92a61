"""What the process is told: flags, each with a twin in the environment, and defaults that fit a usual node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate.command_line import Parser
from gkm.hoststate.layout import Layout

from gkm_csi.identity import DRIVER_NAME

_MAX_NODE_ID = 256


@dataclass(frozen=True, slots=True)
class Options:
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


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
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
    flag(
        "--endpoint", "CSI_ENDPOINT", "", f"CSI socket (default: plugins/{DRIVER_NAME}/csi.sock in kubelet's directory)"
    )
    flag("--kubelet-endpoint", "GKM_CSI_KUBELET_ENDPOINT", "", "CSI socket as kubelet sees it (default: the same path)")
    flag("--registration", "GKM_CSI_REGISTRATION", "", "registration socket (default: in kubelet's plugins_registry)")
    flag(
        "--driver-version-file", "GKM_DRIVER_VERSION_FILE", "/sys/module/nvidia/version", "version of the loaded driver"
    )
    flag("--max-volumes", "GKM_CSI_MAX_VOLUMES", "1024", "volumes that this node may have")
    flag("--log-level", "GKM_LOG_LEVEL", "info", "debug, info, warning or error")
    parser.add_argument("--probe", action="store_true", help="ask the driver that runs here whether it answers; end")
    parsed = parser.parse_args(arguments)

    if not parsed.node or len(parsed.node.encode()) > _MAX_NODE_ID:
        parser.error("say which node this is: --node or GKM_NODE, at most 256 bytes")
    if not parsed.max_volumes.isdecimal():
        parser.error("--max-volumes must be a number; 0 leaves it to kubelet")
    if parsed.log_level not in ("debug", "info", "warning", "error"):
        parser.error("--log-level must be debug, info, warning or error")
    kubelet = _absolute(parser, parsed.kubelet)
    endpoint = (
        parsed.endpoint.removeprefix("unix://").removeprefix("unix:") or f"{kubelet}/plugins/{DRIVER_NAME}/csi.sock"
    )
    registration = parsed.registration or f"{kubelet}/plugins_registry/{DRIVER_NAME}-reg.sock"
    return Options(
        node=parsed.node,
        layout=Layout(_absolute(parser, parsed.state), _absolute(parser, parsed.run)),
        kubelet=kubelet,
        endpoint=_absolute(parser, endpoint),
        endpoint_for_kubelet=parsed.kubelet_endpoint or endpoint,
        registration=_absolute(parser, registration),
        driver_version_file=Path(parsed.driver_version_file),
        max_volumes=int(parsed.max_volumes),
        log_level=parsed.log_level,
        probe=parsed.probe,
    )


def _absolute(parser: Parser, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        parser.error(f"{text}: must be an absolute path without '..'")
    return path

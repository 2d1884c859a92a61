"""The command line of gkm-csi; every flag has an environment variable, and a default for a usual node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
    parser = Parser(
        "gkm-csi", environment=environment, description="Mounts GPU kernel caches into pods (CSI driver csi.gkm.io)."
    )
    parser.add_version()
    flag = partial(parser.add_flag, default="")
    flag("--node", "name of the node, as Kubernetes knows it; required")
    flag("--state", "directory that the agent fills", default=str(Layout().state))
    flag("--run", "directory of records; gone after a reboot", default=str(Layout().run))
    flag("--kubelet", "kubelet's root directory; the same path inside and outside", default="/var/lib/kubelet")
    flag("--endpoint", f"CSI socket; else plugins/{DRIVER_NAME}/csi.sock below --kubelet", variable="CSI_ENDPOINT")
    flag("--kubelet-endpoint", "CSI socket as kubelet sees it; else --endpoint", variable="GKM_CSI_KUBELET_ENDPOINT")
    flag("--registration", "registration socket; else in kubelet's plugins_registry", variable="GKM_CSI_REGISTRATION")
    flag("--driver-version-file", "version of the loaded GPU driver", default="/sys/module/nvidia/version")
    flag("--max-volumes", "volumes that this node may have", variable="GKM_CSI_MAX_VOLUMES", default="1024")
    parser.add_log_level()
    parser.add_argument("--probe", action="store_true", help="check that the driver on this machine answers, and exit")
    parsed = parser.parse_args(arguments)

    if not parsed.node or len(parsed.node.encode()) > _MAX_NODE_ID:
        parser.error("say which node this is: --node or GKM_NODE, at most 256 bytes")
    if not parsed.max_volumes.isdecimal():
        parser.error("--max-volumes must be a number; 0 leaves it to kubelet")
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

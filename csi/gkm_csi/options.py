"""The options of the process: flags, each with an environment variable, and defaults for a common node."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from gkm.hoststate.command_line import Parser
from gkm.hoststate.layout import Layout

from gkm_csi.server.services import DRIVER_NAME
from gkm_csi.volumes.attributes import CAPTURE_MODES, REQUEST

_MAX_NODE_ID = 256
_PERCENT: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?", re.ASCII)
_MAX_PERCENT: Final = 90
"""As in the agent's configuration (gkm.api.capture_settings), which this process does not import."""


@dataclass(frozen=True, slots=True)
class Options:
    """Paths and limits on this node."""

    node: str
    layout: Layout
    kubelet: Path
    endpoint: Path
    endpoint_for_kubelet: str
    registration: Path
    driver_version_file: Path
    max_volumes: int
    capture_mode: str
    capture_min_free_percent: float
    log_level: str
    probe: bool


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Return the options; a flag overrides its environment variable.

    Raises:
        SystemExit: an option is missing or invalid; the message went to standard error.
    """
    parser = Parser(
        "gkm-csi", environment=environment, description="Mounts GPU kernel caches into pods (CSI driver csi.gkm.io)."
    )
    parser.add_version()
    flag = partial(parser.add_flag, default="")
    flag("--node", "name of the node, as Kubernetes knows it; required")
    flag("--state", "directory that the agent fills", default=str(Layout().state))
    flag("--run", "directory of records; empty after a reboot", default=str(Layout().run))
    flag(
        "--kubelet",
        "kubelet's root directory, the same path in the container as on the node",
        default="/var/lib/kubelet",
    )
    flag("--endpoint", f"CSI socket; else plugins/{DRIVER_NAME}/csi.sock below --kubelet", variable="CSI_ENDPOINT")
    flag("--kubelet-endpoint", "CSI socket as kubelet sees it; else --endpoint", variable="GKM_CSI_KUBELET_ENDPOINT")
    flag("--registration", "registration socket; else in kubelet's plugins_registry", variable="GKM_CSI_REGISTRATION")
    flag("--driver-version-file", "version of the loaded GPU driver", default="/sys/module/nvidia/version")
    flag("--max-volumes", "maximum number of volumes on this node", variable="GKM_CSI_MAX_VOLUMES", default="1024")
    flag(
        "--capture-mode",
        "private volumes whose new files are captured: auto, request (by attribute) or off",
        variable="GKM_CAPTURE_MODE",
        default=REQUEST,
    )
    flag(
        "--capture-min-free-percent",
        "part of the disk that captures leave free, in percent",
        variable="GKM_CAPTURE_MIN_FREE_PERCENT",
        default="20",
    )
    parser.add_log_level()
    parser.add_argument("--probe", action="store_true", help="probe the driver that runs on this node, and exit")
    parsed = parser.parse_args(arguments)

    if not parsed.node or len(parsed.node.encode()) > _MAX_NODE_ID:
        parser.error("set the name of the node: --node or GKM_NODE, at most 256 bytes")
    if not parsed.max_volumes.isdecimal():
        parser.error("--max-volumes must be a number; 0 leaves it to kubelet")
    if parsed.capture_mode not in CAPTURE_MODES:
        parser.error(f"--capture-mode must be one of {', '.join(CAPTURE_MODES)}")
    if not _PERCENT.fullmatch(parsed.capture_min_free_percent) or float(parsed.capture_min_free_percent) > _MAX_PERCENT:
        parser.error(f"--capture-min-free-percent must be a number from 0 to {_MAX_PERCENT}")
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
        capture_mode=parsed.capture_mode,
        capture_min_free_percent=float(parsed.capture_min_free_percent),
        log_level=parsed.log_level,
        probe=parsed.probe,
    )


def _absolute(parser: Parser, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        parser.error(f"{text}: must be an absolute path without '..'")
    return path

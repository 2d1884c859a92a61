"""The command line of gkm-agent; every flag has an environment variable."""

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import names
from gkm.hoststate.command_line import Parser
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import InvalidName
from gkm.probes import addresses

LONGEST_GPU_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options.

    `static` is None in a cluster. `kubeconfig` None means the pod's service account, else ~/.kube/config. `health` None
    means no server.
    """

    layout: Layout
    node: str
    static: Path | None
    status: Path
    once: bool
    remove_state: bool
    kubelet: Path
    config: Path | None
    kubeconfig: Path | None
    gpu_seconds: float
    log_level: str
    health: tuple[str, int] | None = None


def parse(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> Options:
    """Return the parsed options; print a usage error in one line and exit with 2, as argparse does."""
    parser = _parser(environment)
    found = parser.parse_args(arguments)
    static: Path | None = found.static
    if not found.node and static is None and not found.remove_state:
        parser.error("--node (or GKM_NODE) is required in Kubernetes: pass spec.nodeName to the pod")
    try:
        node = names.node_name(found.node or socket.gethostname().lower())
    except InvalidName as error:
        parser.error(f"--node: {error}")
    return Options(
        layout=Layout(found.state, found.run),
        node=node,
        static=static,
        status=found.status or (static or Path()).resolve().parent / "nodes",
        once=found.once,
        remove_state=found.remove_state,
        kubelet=found.kubelet,
        config=found.config,
        kubeconfig=found.kubeconfig,
        gpu_seconds=found.gpu_seconds,
        log_level=found.log_level,
        health=found.health,
    )


def _parser(environment: Mapping[str, str]) -> Parser:
    parser = Parser(
        "gkm-agent",
        environment=environment,
        description="Pulls the caches of this node, and publishes their state.",
        epilog="A flag wins over its environment variable, in brackets.",
    )
    parser.add_version()

    defaults = Layout()
    parser.add_flag("--static", "directory of manifests, instead of Kubernetes", type=Path, metavar="DIR")
    parser.add_flag("--status", "with --static: directory of node objects (../nodes)", type=Path, metavar="DIR")
    parser.add_argument(
        "--once",
        action="store_true",
        default=environment.get("GKM_ONCE") == "true",
        help="exit when all work is done [GKM_ONCE=true]",
    )
    parser.add_argument(
        "--remove-state",
        action="store_true",
        help="remove everything that GKM has on this node, unless volumes are mounted, and exit",
    )
    parser.add_flag(
        "--kubelet",
        "kubelet's root directory, which has the sockets of the CSI driver; only for --remove-state",
        default=Path("/var/lib/kubelet"),
        type=Path,
        metavar="DIR",
    )
    parser.add_flag("--config", "configuration (YAML)", type=Path, metavar="FILE")
    # The Kubernetes client reads $KUBECONFIG, which may name several files.
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="default: the service account of the pod, else ~/.kube/config [KUBECONFIG, one file or several]",
    )
    parser.add_flag("--state", "store and pointers", default=defaults.state, type=Path, metavar="DIR")
    parser.add_flag("--run", "records of mounts", default=defaults.run, type=Path, metavar="DIR")
    parser.add_flag("--node", "name of this node", default="", metavar="NAME")
    parser.add_flag("--gpu-seconds", "interval of GPU readings", default=60.0, type=_seconds, metavar="N")
    parser.add_flag(
        "--health",
        "serve /healthz, /readyz and /metrics by plain HTTP; 127.0.0.1:8081, or :8081 for every address",
        type=addresses.parse,
        metavar="HOST:PORT",
    )
    parser.add_log_level()
    return parser


def _seconds(text: str) -> float:
    wrong = argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to {LONGEST_GPU_SECONDS:.0f}")
    try:
        seconds = float(text)
    except ValueError:
        raise wrong from None
    # This form of the comparison also refuses NaN.
    if not 1 <= seconds <= LONGEST_GPU_SECONDS:
        raise wrong
    return seconds

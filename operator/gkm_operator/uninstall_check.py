"""The command `gkm-operator uninstall-check`: check whether pods need GKM.

The chart runs it before it removes anything. It makes no changes. `gkm uninstall --check` is the same for a person.
"""

import argparse
from threading import Event

from gkm.api.config import Config
from gkm.hoststate.command_line import print_line
from gkm.kube.client import connect
from gkm.kube.volume_users import explanation, gated_pods, pods_with_volumes

EXIT_IN_USE = 3


def run(arguments: argparse.Namespace, _: Config, __: Event) -> int:
    """Print the pods that use volumes of GKM or wait behind its gate; return 0 if there are none, else EXIT_IN_USE."""
    api = connect(arguments.kubeconfig, arguments.context)
    users, gated = sorted(pods_with_volumes(api)), sorted(gated_pods(api))
    found = bool(users or gated)
    otherwise = f", or keep GKM: {arguments.otherwise}" if found and arguments.otherwise else ""
    print_line(f"gkm-operator: {explanation(users, gated)}{otherwise}", error=found)
    return EXIT_IN_USE if found else 0

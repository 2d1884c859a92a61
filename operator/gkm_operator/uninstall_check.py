"""The command `gkm-operator uninstall-check`: check whether pods use volumes of GKM.

The chart runs it before it removes anything. It makes no changes. `gkm uninstall --check` is the same for a person.
"""

import argparse
from threading import Event

from gkm.api.config import Config
from gkm.hoststate.command_line import print_line
from gkm.kube.client import connect
from gkm.kube.volume_users import explanation, pods_with_volumes

EXIT_IN_USE = 3


def run(arguments: argparse.Namespace, _: Config, __: Event) -> int:
    """Print the pods that use volumes of GKM; return 0 if there are none, else EXIT_IN_USE."""
    found = sorted(pods_with_volumes(connect(arguments.kubeconfig, arguments.context)))
    otherwise = f", or keep GKM: {arguments.otherwise}" if found and arguments.otherwise else ""
    print_line(f"gkm-operator: {explanation(found)}{otherwise}", error=bool(found))
    return EXIT_IN_USE if found else 0

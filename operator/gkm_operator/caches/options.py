"""What `gkm-operator controllers` takes; light, so that the other command may name it without loading it."""

import argparse
import socket

from gkm_operator import flags


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what this command takes."""
    flags.add(parser, "--health", default=":8081", type=flags.address, help="host:port of /healthz and /readyz")
    flags.add(parser, "--lease", default="gkm-controllers", help="Lease of the leader, in GKM's namespace")
    flags.add(
        parser,
        "--identity",
        default=socket.gethostname(),
        help="who this replica is; two that run at once must differ, as the names of pods do",
    )

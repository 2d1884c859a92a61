"""What `gkm-operator controllers` takes; light, so that the other command may name it without loading it."""

import argparse

from gkm_operator import flags


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what this command takes."""
    flags.add(parser, "--health", default=":8081", type=flags.address, help="host:port of /healthz and /readyz")

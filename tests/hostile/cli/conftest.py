"""The fixtures of the command line's hostile suite."""

from support.cli.fixtures import registry_server

__all__ = ["registry_server"]

"""The fixtures of the command line's tests."""

from support.cli.fixtures import image, key, pushed_once, registry_server

__all__ = ["image", "key", "pushed_once", "registry_server"]

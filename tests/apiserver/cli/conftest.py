"""Fixtures of the tests in this folder."""

from support.cli.fixtures import image, pushed_once, registry_server

__all__ = ["image", "pushed_once", "registry_server"]

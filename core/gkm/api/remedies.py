"""Hints that depend on the program that prints them: an administrator edits a configuration, a user runs a command.

The value of a remedy is the hint for processes in a cluster; the command line has its own text (gkm_cli.hints).
"""

from enum import StrEnum


class Remedy(StrEnum):
    """The next step after an error; the error's `about` names the registry host."""

    LOG_IN = "check that the repository exists and that its credentials are configured"
    CHECK_LOGIN = "check the credentials of this registry"
    TRUST_OR_PLAIN_HTTP = "name its certificate authority (caFile), or plainHTTP, in registries.hosts"
    ADD_AUTH_HOST = "if it is right, add it to registries.hosts.<host>.authHosts"
    NAME_HOST = "if it is right, name it in registries.hosts"
    ALLOW_REGISTRY = "ask an administrator to add it to registries.allow"
    RAISE_MAX_IMAGE = "raise store.maxImageBytes if it is meant"
    FREE_SPACE = "free space; it is tried again"

"""What a person at a terminal can do about an error: flags and commands, not keys of a cluster's configuration."""

from gkm.api.errors import GKMError
from gkm.api.remedies import Remedy

_HINTS = {
    Remedy.LOG_IN: "check that the repository exists, and log in: docker login {about}",
    Remedy.CHECK_LOGIN: "log in as somebody who may: docker login {about}",
    Remedy.TRUST_OR_PLAIN_HTTP: "trust its certificate authority with --ca-file FILE, or speak http with --plain-http",
    Remedy.ADD_AUTH_HOST: "if it is right, add it to registries.hosts.{about}.authHosts in a file for --config",
    Remedy.NAME_HOST: "if it is right, name it under registries.hosts in a file for --config",
    Remedy.ALLOW_REGISTRY: "add it to registries.allow in the file of --config, or leave --config out",
    Remedy.RAISE_MAX_IMAGE: "if it is meant, raise store.maxImageBytes in a file for --config",
    Remedy.FREE_SPACE: "free space, and run the command again",
}


def sentence(error: GKMError) -> str:
    """Return an error with its detail and the hint of this program: a person who runs a command may know the cause."""
    message = f"{error.message}: {error.detail}" if error.detail else error.message
    hint = error.detail_hint if error.detail else error.hint
    if isinstance(hint, Remedy):
        hint = _HINTS[hint].format(about=error.about)
    return f"{message}; {hint}" if hint else message

"""`gkm logout`: remove the login of a registry from where `gkm login` and docker store it."""

from gkm_cli import login_file
from gkm_cli.login import RegistryArgument, registry_host
from gkm_cli.output import line


def logout(registry: RegistryArgument) -> None:
    """Remove the login of a registry from where docker stores it."""
    host = registry_host(registry)
    if removed := login_file.remove(host):
        line(f"removed the login for {host} from {' and '.join(removed)}")
    else:
        line(f"there was no login for {host}")
    # Other programs, such as podman, store logins that gkm uses and does not change.
    for path in login_file.remaining(host):
        line(f"{path} has another login for {host}: remove it with the program that stored it")

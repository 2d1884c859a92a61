"""The options with which commands reach registries, and what they make of them."""

from pathlib import Path
from typing import Annotated

import typer
from gkm.api import config
from gkm.api.config import Config, Policy, Registries, RegistryHost, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registry import Registry

ConfigOption = Annotated[Path | None, typer.Option("--config", help="A GKM configuration file.")]
PlainHTTPOption = Annotated[bool, typer.Option("--plain-http", help="Speak http, not https, to this registry.")]
CAFileOption = Annotated[Path | None, typer.Option("--ca-file", help="Trust this certificate authority.")]
KeyOption = Annotated[list[str] | None, typer.Option("--key", help="A public key that must have signed; repeatable.")]


def read_config(path: Path | None) -> Config:
    """Return the configuration in a file, or the default one.

    Raises:
        ConfigInvalid: it cannot be used.
        OSError: it cannot be read.
    """
    return config.parse(path.read_bytes()) if path else Config()


def registry_for(ref: Reference, configured: Config, *, plain_http: bool, ca_file: Path | None) -> Registry:
    """Return a client; naming the registry on the command line is leave enough to use it."""
    hosts = dict(configured.registries.hosts)
    if plain_http or ca_file or ref.registry not in hosts:
        known = hosts.get(ref.registry, RegistryHost())
        hosts[ref.registry] = RegistryHost(
            plain_http=plain_http or known.plain_http,
            ca_file=str(ca_file) if ca_file else known.ca_file,
            auth_hosts=known.auth_hosts,
        )
    return Registry(Registries(allow=configured.registries.allow, hosts=hosts))


def verification_for(keys: list[str] | None, configured: Config) -> Verification:
    """Return what must be signed: by the keys named here, or else by the configured policies.

    Raises:
        GKMError: nothing says what must be signed.
    """
    if keys:
        return Verification(policies=[Policy(keys=keys)])
    if not configured.verification.policies and configured.verification.mode == "enforce":
        raise GKMError(
            Reason.SIGNATURE_MISSING,
            "nothing says whose signature is wanted",
            "name a public key with --key, or policies with --config",
        )
    return configured.verification

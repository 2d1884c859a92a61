"""The options for registries that commands share, and the registry client that they configure."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from gkm.api import config
from gkm.api.config import Config, Registries, RegistryHost
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry

from gkm_cli import loopback
from gkm_cli.credential_helpers import credentials_from_environment

RefArgument = Annotated[str, typer.Argument(metavar="REF", help="registry/repository:tag or @sha256:…")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="A GKM configuration file.")]
PlainHTTPOption = Annotated[bool, typer.Option("--plain-http", help="Use http instead of https for this registry.")]
CAFileOption = Annotated[Path | None, typer.Option("--ca-file", help="Trust the certificate authorities in this file.")]


@dataclass(frozen=True, kw_only=True)
class RegistryAccess:
    """How a command connects to registries; `plain_http` and `ca_file` apply to the registry that it names."""

    plain_http: PlainHTTPOption = False
    ca_file: CAFileOption = None
    config_file: ConfigOption = None

    @cached_property
    def config(self) -> Config:
        """Return the configuration; the first use reads the file.

        Raises:
            ConfigInvalid: the file cannot be read or used.
        """
        return config.load(self.config_file)

    def registry(self, ref: Reference, *, mirrored: bool = True) -> Registry:
        """Return a client that may use the registry of `ref`: the user named it on the command line.

        Without `mirrored` it uses no mirrors: a command that writes must read the registry itself, not an older copy.
        """
        hosts = dict(self.config.registries.hosts)
        plain_http = self.plain_http
        if ref.registry not in hosts and not self.ca_file:
            plain_http = plain_http or loopback.speaks_plain_http(ref.registry)
        if plain_http or self.ca_file or ref.registry not in hosts:
            known = hosts.get(ref.registry, RegistryHost())
            hosts[ref.registry] = msgspec.structs.replace(
                known,
                plain_http=plain_http or known.plain_http,
                ca_file=str(self.ca_file) if self.ca_file else known.ca_file,
            )
        allowed = Registries(allow=self.config.registries.allow, hosts=hosts)
        registry = Registry(allowed, credentials_from_environment())
        return registry if mirrored else registry.without_mirrors()

    def pinned(self, reference: str) -> tuple[Registry, Reference]:
        """Resolve a reference once; return a client and the reference of exactly that digest."""
        ref = Reference.parse(reference)
        registry = self.registry(ref)
        return registry, ref.pinned(registry.resolve(ref))

    def described(self, reference: str) -> tuple[Registry, CacheImage]:
        """Return a client and the description of an image in its labels."""
        registry, pinned = self.pinned(reference)
        return registry, cache.describe(registry, pinned)

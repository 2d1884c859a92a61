"""The options for registries that commands share, and the registry client that they configure.

Registries on this machine usually speak plain http; crane, cosign and oras need no flag for them either.
"""

import atexit
import os
import socket
import ssl
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from gkm.api import config
from gkm.api.config import Config, Registries, RegistryHost
from gkm.api.errors import GKMError
from gkm.images import cache, local_reference
from gkm.images.archives.layout_store import LayoutStore
from gkm.images.archives.local_source import ArchiveSource
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource, ImageStore
from gkm.images.local_reference import ARCHIVE, LocalReference
from gkm.images.reference import Reference
from gkm.images.registries.auth import Credentials
from gkm.images.registries.credentials import split_server
from gkm.images.registries.registry import Registry

from gkm_cli import disks
from gkm_cli.calls import CallOptions
from gkm_cli.credential_helpers import credentials_from_environment
from gkm_cli.output import UsageError

REF_HELP = "registry/repository:tag or @sha256:…, oci:PATH:TAG, docker-archive:FILE"
RefArgument = Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="A GKM configuration file.")]
PlainHTTPOption = Annotated[bool, typer.Option("--plain-http", help="Use http instead of https for this registry.")]
CAFileOption = Annotated[Path | None, typer.Option("--ca-file", help="Trust the certificate authorities in this file.")]
REPOSITORY_VARIABLE = "COSIGN_REPOSITORY"
"""cosign's variable with the repository that has the signatures of all images."""
_EXAMPLE = "write registry.example/team/signatures, without a tag"
_SECONDS = 2.0
"""Time for the handshake, which does not leave this machine."""


@dataclass(frozen=True, kw_only=True)
class RegistryAccess(CallOptions):
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

    def registry(self, ref: Reference, *, mirrored: bool = True, credentials: Credentials | None = None) -> Registry:
        """Return a client that may use the registry of `ref`: the user named it on the command line.

        Without `mirrored` it uses no mirrors: a command that writes must read the registry itself, not an older copy.
        Without `credentials` it uses the user's.
        """
        hosts = dict(self.config.registries.hosts)
        plain_http = self.plain_http
        if ref.registry not in hosts and not self.ca_file:
            plain_http = plain_http or speaks_plain_http(ref.registry)
        if plain_http or self.ca_file or ref.registry not in hosts:
            known = hosts.get(ref.registry, RegistryHost())
            hosts[ref.registry] = msgspec.structs.replace(
                known,
                plain_http=plain_http or known.plain_http,
                ca_file=str(self.ca_file) if self.ca_file else known.ca_file,
            )
        if repository := signature_repository():
            other = Reference.parse(repository).registry
            hosts.setdefault(other, RegistryHost(plain_http=speaks_plain_http(other)))
        allowed = Registries(allow=self.config.registries.allow, hosts=hosts)
        registry = Registry(allowed, credentials or credentials_from_environment())
        return registry if mirrored else registry.without_mirrors()

    def source(self, ref: Reference) -> ImageSource:
        """Return the source to read an image from: its registry with mirrors, a layout or a docker-archive.

        Raises:
            GKMError: as ArchiveSource.
        """
        if isinstance(ref, LocalReference) and ref.registry == ARCHIVE:
            return self._archive(ref)
        return LayoutStore(ref.path) if isinstance(ref, LocalReference) else self.registry(ref)

    def store(self, ref: Reference) -> ImageStore:
        """Return the store to read and write an image in: its registry without mirrors, or a layout.

        Raises:
            UsageError: a docker-archive is only read.
        """
        if not isinstance(ref, LocalReference):
            return self.registry(ref, mirrored=False)
        if ref.registry == ARCHIVE:
            raise UsageError(f"{ref}: GKM only reads images of a docker-archive", "use oci:PATH")
        return LayoutStore(ref.path)

    def pinned(self, reference: str) -> tuple[ImageSource, Reference]:
        """Resolve a reference once; return the source of its image and the reference of exactly that digest."""
        ref = local_reference.parse(reference)
        source = self.source(ref)
        return source, ref.pinned(source.resolve(ref))

    def described(self, reference: str) -> tuple[ImageSource, CacheImage]:
        """Return the source of an image, and its description from its labels."""
        source, pinned = self.pinned(reference)
        return source, cache.describe(source, pinned)

    @cached_property
    def scratch(self) -> ExitStack:
        """Return the files that exist until the program ends, or a caller closes them: it may become another one."""
        files = ExitStack()
        atexit.register(files.close)
        return files

    def _archive(self, ref: LocalReference) -> ArchiveSource:
        """Return an archive; GKM compresses its layers into files."""
        work = Path(self.scratch.enter_context(tempfile.TemporaryDirectory(prefix="gkm-archive-")))
        with disks.filling(work, lambda: ref.path.stat().st_size):
            return ArchiveSource(ref.path, work, ref.tag)


def signature_repository() -> str:
    """Return the repository for signatures that the environment names, "" for each image's own.

    Raises:
        UsageError: it is no repository.
    """
    named = os.environ.get(REPOSITORY_VARIABLE, "")
    if not named:
        return ""
    try:
        return Reference.parse(f"{named}:signatures").name
    except GKMError as error:
        raise UsageError(f"{REPOSITORY_VARIABLE} is no repository: {error.message}", _EXAMPLE) from error


def speaks_plain_http(registry: str) -> bool:
    """Return whether a registry (host or host:port) is on this machine and does not speak TLS."""
    address, port, _ = split_server(registry)
    host = address.strip("[]")
    return _is_loopback(host) and not _speaks_tls(host, int(port or 443))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # This only detects TLS and sends no data; the registry client checks the certificate.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except (OSError, OverflowError):
        return False
    return True

"""`gkm-operator --check-config`: everything in a configuration that can be known to be wrong before a rollout.

Reads the file as processes get it, or the ConfigMap that holds it. Beyond what every process refuses at its start
(gkm.api.config) it opens the files that are named, and looks at globs that no image can match. Files that are named by
an absolute path and are not on this machine may be in the pods: they are listed, and not counted as mistakes.
"""

import re
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from gkm.api import config, documents
from gkm.api.config import Config, ConfigInvalid
from gkm.api.errors import GKMError
from gkm.api.policies import is_pem
from gkm.images.reference import Reference
from gkm.images.signatures.trust_material import TrustMaterial

KEY = "config.yaml"
"""Of the ConfigMap: what deploy/base mounts."""
_WILD = re.compile(r"[*?\[\]]")
_REPOSITORY_GLOB = re.compile(r"[a-z0-9._/*?\[\]!-]*")
_NAMESPACE_GLOB = re.compile(r"[a-z0-9*?\[\]!-]+")


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong, a sentence each, and the files that were named and are not on this machine."""

    problems: Sequence[str]
    absent: Sequence[str]


def check(path: Path | None) -> Checked:
    """Return what is wrong with the configuration in a file; of none, nothing.

    Raises:
        ConfigInvalid: it cannot be read as a configuration at all.
    """
    where = f"configuration {path}"
    loaded = config.parse(_unpacked(config.read_file(path, where), where), where) if path else Config()
    files = _Files()
    problems = [*_policies(loaded, files), *_registries(loaded, files)]
    return Checked([f"{where}: {problem}" for problem in problems], tuple(files.absent))


def _unpacked(text: bytes, where: str) -> str | bytes:
    """Return the configuration in a ConfigMap; a text that is none is returned as it is."""
    try:
        document = documents.decode(text, dict[str, object], aliases=True)
    except (msgspec.ValidationError, documents.InvalidYAML):
        return text  # who parses it as a configuration says why
    if document.get("kind") != "ConfigMap":
        return text
    data = document.get("data")
    found = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(found, str):
        raise ConfigInvalid(f"{where}: the ConfigMap has no text `{KEY}` - at `$.data`")
    return found


class _Files:
    """Reads what a configuration names by path."""

    def __init__(self) -> None:
        self._material = TrustMaterial()
        self.absent: dict[str, None] = {}

    def key(self, key: str, at: str) -> Iterator[str]:
        """Yield what is wrong with a public key: PEM text, or a path."""
        if is_pem(key) or self._is_here(key):
            try:
                self._material.key(key)
            except GKMError as error:
                yield f"{error.message} - at `{at}`; {error.hint}"

    def root(self, path: str, at: str) -> Iterator[str]:
        """Yield what is wrong with a trusted root."""
        if self._is_here(path):
            try:
                self._material.root(path)
            except GKMError as error:
                yield f"{error.message} - at `{at}`; {error.hint}"

    def authorities(self, path: str, at: str) -> Iterator[str]:
        """Yield what is wrong with a file of certificate authorities."""
        if self._is_here(path):
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                yield f"{path[:200]!r} holds no certificate authorities in PEM: {why} - at `{at}`"

    def _is_here(self, path: str) -> bool:
        try:
            absent = path.startswith("/") and not Path(path).exists()
        except (OSError, ValueError):
            return True  # reading it says why
        if absent:
            self.absent[path] = None
        return not absent


def _policies(loaded: Config, files: _Files) -> Iterator[str]:
    for number, policy in enumerate(loaded.verification.policies):
        at = f"$.verification.policies[{number}]"
        for place, key in enumerate(policy.keys):
            yield from files.key(key, f"{at}.keys[{place}]")
        if policy.trusted_root:
            yield from files.root(policy.trusted_root, f"{at}.trustedRoot")
        yield from _image_globs(policy.images, f"{at}.images")
        for place, glob in enumerate(policy.namespaces):
            if not _NAMESPACE_GLOB.fullmatch(glob):
                yield f"no namespace can match {glob[:80]!r} - at `{at}.namespaces[{place}]`"


def _registries(loaded: Config, files: _Files) -> Iterator[str]:
    yield from _image_globs(loaded.registries.allow, "$.registries.allow")
    for host, how in loaded.registries.hosts.items():
        at = f"$.registries.hosts[{host[:80]!r}]"
        for name in (host, *how.mirrors, *how.auth_hosts):
            if why := _not_a_host(name):
                yield f"{why} - at `{at}`"
        if how.ca_file:
            yield from files.authorities(how.ca_file, f"{at}.caFile")


def _image_globs(globs: Iterable[str], at: str) -> Iterator[str]:
    for place, glob in enumerate(globs):
        if why := _matches_nothing(glob):
            yield f"no image can match {glob[:80]!r}: {why} - at `{at}[{place}]`"


def _matches_nothing(glob: str) -> str:
    """Return why no image can match a glob; nothing where one can. What is compared: Reference.fits."""
    if "://" in glob:
        return "images are named without a scheme"
    host, slash, repository = glob.partition("/")
    if not _WILD.search(host.strip("[]")) and (why := _not_a_host(host)):
        return why
    if host != host.lower() or any(not (one.isascii() and one.isprintable()) or one == " " for one in host):
        return "hosts are compared in lower case, and hold no spaces"
    if slash and not _REPOSITORY_GLOB.fullmatch(repository):
        if ":" in repository or "@" in repository:
            return "repositories are compared without tag and digest"
        return "repositories are of a-z, 0-9, '.', '_', '-' and '/'"
    return ""


def _not_a_host(name: str) -> str:
    """Return why images have no such host; nothing where they can."""
    try:
        found = Reference.parse(f"{name}/x").registry
    except GKMError:
        found = ""
    if name and found == name:
        return ""
    called = f": images call it {found!r}" if found and "." in name else ""
    return f"{name[:80]!r} is no host of a registry{called}"

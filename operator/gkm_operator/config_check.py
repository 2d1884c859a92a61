"""`gkm-operator --check-config`: find the errors of a configuration before its rollout.

Reads the file as processes read it, or the ConfigMap that contains it. Beyond the checks that every process makes at
its start (gkm.api.config), it opens the named files and finds globs that match no image. Absolute paths that do not
exist on this machine may exist in the pods: they are listed, and not reported as errors.
"""

import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from gkm.api import config, documents
from gkm.api.config import Config, ConfigInvalid
from gkm.api.errors import GKMError
from gkm.api.policies import is_pem
from gkm.images.reference import Reference
from gkm.images.signatures import trust_material
from gkm.topology.labels import known_keys

KEY = "config.yaml"
"""The key in the ConfigMap that deploy/base mounts."""
_WILD = re.compile(r"[*?\[\]]")
_REPOSITORY_GLOB = re.compile(r"[a-z0-9._/*?\[\]!-]*")
_NAMESPACE_GLOB = re.compile(r"[a-z0-9*?\[\]!-]+")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The problems of a configuration as sentences, and the files that it names and this machine does not have."""

    problems: Sequence[str]
    absent: Sequence[str]


def check(path: Path | None) -> CheckReport:
    """Check the configuration in a file and return its problems; None checks the default configuration.

    Raises:
        ConfigInvalid: the file is no valid configuration.
    """
    where = f"configuration {path}"
    loaded = config.parse(_unwrapped(config.read_file(path, where), where), where) if path else Config()
    files = _Files()
    problems = [*_policies(loaded, files), *_registries(loaded, files), *_topology(loaded)]
    return CheckReport([f"{where}: {problem}" for problem in problems], tuple(files.absent))


def _unwrapped(text: bytes, where: str) -> str | bytes:
    """Return the configuration in a ConfigMap; return any other text unchanged."""
    try:
        document = documents.decode(text, dict[str, object], aliases=True)
    except (msgspec.ValidationError, documents.InvalidYAML):
        return text  # parsing it as a configuration reports the error
    if document.get("kind") != "ConfigMap":
        return text
    data = document.get("data")
    found = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(found, str):
        raise ConfigInvalid(f"{where}: the ConfigMap has no text `{KEY}` - at `$.data`")
    return found


class _Files:
    """Reads the files that a configuration names."""

    def __init__(self) -> None:
        self.absent: dict[str, None] = {}

    def trusted(self, value: str, read: Callable[[str], object], at: str) -> Iterator[str]:
        """Yield the problems of a public key (PEM text, or a path) or of a trusted root, which `read` reads."""
        if is_pem(value) or self._exists(value):
            try:
                read(value)
            except GKMError as error:
                yield f"{error.message} - at `{at}`; {error.hint}"

    def authorities(self, path: str, at: str) -> Iterator[str]:
        """Yield the problems of a file of certificate authorities."""
        if self._exists(path):
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                yield f"{path[:200]!r} holds no certificate authorities in PEM: {reason} - at `{at}`"

    def _exists(self, path: str) -> bool:
        try:
            absent = path.startswith("/") and not Path(path).exists()
        except (OSError, ValueError):
            return True  # reading it reports the error
        if absent:
            self.absent[path] = None
        return not absent


def _policies(loaded: Config, files: _Files) -> Iterator[str]:
    for number, policy in enumerate(loaded.verification.policies):
        at = f"$.verification.policies[{number}]"
        for index, key in enumerate(policy.keys):
            yield from files.trusted(key, trust_material.key, f"{at}.keys[{index}]")
        if policy.trusted_root:
            yield from files.trusted(policy.trusted_root, trust_material.root, f"{at}.trustedRoot")
        yield from _image_globs(policy.images, f"{at}.images")
        for index, glob in enumerate(policy.namespaces):
            if not _NAMESPACE_GLOB.fullmatch(glob):
                yield f"no namespace can match {glob[:80]!r} - at `{at}.namespaces[{index}]`"


def _registries(loaded: Config, files: _Files) -> Iterator[str]:
    yield from _image_globs(loaded.registries.allow, "$.registries.allow")
    for host, host_config in loaded.registries.hosts.items():
        at = f"$.registries.hosts[{host[:80]!r}]"
        for name in (host, *host_config.mirrors, *host_config.auth_hosts):
            if reason := _not_a_host(name):
                yield f"{reason} - at `{at}`"
        if host_config.ca_file:
            yield from files.authorities(host_config.ca_file, f"{at}.caFile")


def _topology(loaded: Config) -> Iterator[str]:
    topology, names = loaded.topology, {provider.name for provider in loaded.topology.providers}
    if (topology.hyper_nodes.enabled or topology.node_labels) and not topology.providers:
        yield "no provider is named, so every node stays its own domain - at `$.topology.providers`"
    chosen = loaded.fabric.ibnetdiscover
    if "infiniband" in names and not (chosen.nodes or chosen.node_selector):
        yield (
            "the provider infiniband waits for ever: fabric.ibnetdiscover names and selects no node - at "
            "`$.topology.providers`"
        )
    for index, level in enumerate(topology.levels):
        if names == {"labels"} and not level.keys and level.name not in known_keys(topology):
            yield f"no provider knows level {level.name!r}: it needs keys - at `$.topology.levels[{index}]`"


def _image_globs(globs: Iterable[str], at: str) -> Iterator[str]:
    for index, glob in enumerate(globs):
        if reason := _matches_nothing(glob):
            yield f"no image can match {glob[:80]!r}: {reason} - at `{at}[{index}]`"


def _matches_nothing(glob: str) -> str:
    """Return the reason why no image matches a glob; "" when one can. It compares as Reference.fits does."""
    if "://" in glob:
        return "images are named without a scheme"
    host, slash, repository = glob.partition("/")
    if not _WILD.search(host.strip("[]")) and (reason := _not_a_host(host)):
        return reason
    if host != host.lower() or any(not (one.isascii() and one.isprintable()) or one == " " for one in host):
        return "hosts are compared in lower case, and hold no spaces"
    if slash and not _REPOSITORY_GLOB.fullmatch(repository):
        if ":" in repository or "@" in repository:
            return "repositories are compared without tag and digest"
        return "repositories are of a-z, 0-9, '.', '_', '-' and '/'"
    return ""


def _not_a_host(name: str) -> str:
    """Return the reason why no image has this host; "" when one can."""
    try:
        found = Reference.parse(f"{name}/x").registry
    except GKMError:
        found = ""
    if name and found == name:
        return ""
    hint = f": write {found!r}" if found and "." in name else ""
    return f"{name[:80]!r} is not a registry host{hint}"

"""`gkm-operator --check-config`: find the errors of a configuration before its rollout.

Reads the file as processes read it, or the ConfigMap that contains it. Beyond the checks that every process makes at
its start (gkm.api.config), it opens the named files and finds globs that match no image. Pods have the keys of the
ConfigMap as files below MOUNT, and no others there. Other absolute paths that do not exist on this machine may exist in
the pods: they are listed, and not reported as errors.
"""

import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec
from gkm.api import config, documents
from gkm.api.config import Config, ConfigInvalid
from gkm.api.errors import GKMError, Reason
from gkm.api.installation import MOUNT
from gkm.api.policies import is_pem
from gkm.images.reference import Reference
from gkm.images.signatures import keys, trust_material
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
    text, held = _unwrapped(config.read_file(path, where), where) if path else ("", None)
    loaded = config.parse(text, where) if path else Config()
    files = _Files(held)
    problems = [*_policies(loaded, files), *_registries(loaded, files), *_captures(loaded, files), *_topology(loaded)]
    return CheckReport([f"{where}: {problem}" for problem in problems], tuple(files.absent))


def _unwrapped(text: bytes, where: str) -> tuple[str | bytes, Mapping[str, object] | None]:
    """Return the configuration in a ConfigMap with the ConfigMap's texts; return any other text unchanged with None."""
    try:
        document = documents.decode(text, dict[str, object], aliases=True)
    except (msgspec.ValidationError, documents.InvalidYAML):
        return text, None  # parsing it as a configuration reports the error
    if document.get("kind") != "ConfigMap":
        return text, None
    data = document.get("data")
    found = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(found, str):
        raise ConfigInvalid(f"{where}: the ConfigMap has no text `{KEY}` - at `$.data`")
    return found, data


class _Files:
    """Reads the files that a configuration names: those of the ConfigMap, `held`, and those of this machine."""

    def __init__(self, held: Mapping[str, object] | None) -> None:
        self.absent: dict[str, None] = {}
        self._held = held

    def check(self, value: str, read: Callable[[str], object], at: str) -> Iterator[str]:
        """Yield the problems of a file, or of a public key as PEM text, that `read` reads."""
        name = value.removeprefix(MOUNT)
        if self._held is not None and name != value and "/" not in name:
            if isinstance(text := self._held.get(name), str):
                with NamedTemporaryFile(prefix="gkm-") as copy:
                    copy.write(text.encode("utf-8", "replace"))
                    copy.flush()
                    yield from _problems(copy.name, read, value, at)
            else:
                yield f"the ConfigMap has no text {name[:80]!r} - at `{at}`; add the file: configFiles of the chart"
        elif is_pem(value) or self._exists(value):
            yield from _problems(value, read, value, at)

    def _exists(self, path: str) -> bool:
        try:
            absent = path.startswith("/") and not Path(path).exists()
        except (OSError, ValueError):
            return True  # reading it reports the error
        if absent:
            self.absent[path] = None
        return not absent


def _problems(path: str, read: Callable[[str], object], value: str, at: str) -> Iterator[str]:
    """Yield why a file cannot be used; messages name it as the configuration does, by `value`."""
    try:
        read(path)
    except GKMError as error:
        yield f"{error.message.replace(path, value)} - at `{at}`; {error.hint}"


def _read_authorities(path: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GKMError(
            Reason.REGISTRY_UNAVAILABLE,
            f"{path[:200]!r} holds no certificate authorities in PEM: {reason}",
            "name such a file",
        ) from error


def _read_private_key(path: str) -> None:
    """Read a private key without its password, which only the agent has."""
    if b"PRIVATE KEY-----" not in keys.read_file(path, "private key", keys.MAX_KEY_BYTES):
        raise GKMError(
            Reason.SIGNATURE_INVALID, f"{path[:200]!r} is no PEM private key", "`gkm keygen` writes one to cosign.key"
        )


def _policies(loaded: Config, files: _Files) -> Iterator[str]:
    for number, policy in enumerate(loaded.verification.policies):
        at = f"$.verification.policies[{number}]"
        for index, key in enumerate(policy.keys):
            yield from files.check(key, trust_material.key, f"{at}.keys[{index}]")
        if policy.trusted_root:
            yield from files.check(policy.trusted_root, trust_material.root, f"{at}.trustedRoot")
        for index, identity in enumerate(policy.identities):
            if identity.ca_file:
                yield from files.check(identity.ca_file, trust_material.authorities, f"{at}.identities[{index}].caFile")
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
            yield from files.check(host_config.ca_file, _read_authorities, f"{at}.caFile")


def _captures(loaded: Config, files: _Files) -> Iterator[str]:
    signing = loaded.capture.signing
    if signing.key_file:
        yield from files.check(signing.key_file, _read_private_key, "$.capture.signing.keyFile")
    if signing.trusted_root:
        yield from files.check(signing.trusted_root, trust_material.root, "$.capture.signing.trustedRoot")


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

"""All checks of `gkm doctor`, in their order: causes before their effects (docs/reference/doctor.md).

The last one, `images/signatures`, tells whether the images of GKM's own pods are signed as the policies require. It
reads the data for the policies from registries, as `gkm cache verify` does, with the user's logins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gkm.api.config import Config, ConfigInvalid, Policy, Registries, Verification
from gkm.api.errors import GKMError, Reason
from gkm.api.installation import ADMISSION, AGENT, CONFIG_MAP, CONTROLLERS, CSI, MOUNT, NAMESPACE
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verdict, Verifier, covers
from msgspec.structs import replace

from gkm_cli.credential_helpers import credentials_from_environment
from gkm_cli.doctor.domains import cluster, compute_domains
from gkm_cli.doctor.findings import CORRECT_CONFIGURATION, Finding, Severity, named, nothing, text_at
from gkm_cli.doctor.installation import (
    caches,
    captures,
    configuration,
    controllers,
    daemons,
    kinds,
    nodes,
    waiting,
    webhook,
)
from gkm_cli.doctor.installation.objects import InstalledPod
from gkm_cli.doctor.installation.observation import observe
from gkm_cli.doctor.runner import Check, ClusterReader, reading_check

SIGNATURES = "images/signatures"
PROGRAMS = frozenset({AGENT, CSI, CONTROLLERS, ADMISSION})
_CONFIG = named("ConfigMap", NAMESPACE, CONFIG_MAP)
_REFUSED = "install images that a signer of the policy signed, or correct the policy; gkm cache verify has the details"


@reading_check(SIGNATURES, "every image of GKM that a policy names is signed as it requires")
def signatures(reader: ClusterReader) -> Iterator[Finding]:
    """Yield the faults of the signatures of GKM's own images."""
    observed = observe(reader, ("config_map", "pods"))
    if observed.config_map is None:
        yield nothing("there is no configuration")
        return
    if isinstance(observed.config, ConfigInvalid):
        yield _unknown(_CONFIG, str(observed.config), CORRECT_CONFIGURATION)
        return
    config, names = observed.config, running(pod for pod in observed.pods if pod.program in PROGRAMS)
    with TemporaryDirectory(prefix="gkm-doctor-") as directory:
        files = _written(config, lambda name: text_at(observed.config_map, "data", name), Path(directory))
        yield from decide(names, config.verification, lambda ref, wanted: _verdict(config, files, ref, wanted))
    if not _has_policy(names, config.verification):
        yield nothing("no policy is about the images of GKM that run")


def running(pods: Iterable[InstalledPod]) -> list[str]:
    """Return the images of running pods, by digest if the node states it; images without a registry are left out.

    An image without a registry was loaded into the node, so no registry can say who signed it. For an image that has a
    registry's name and was loaded, the node states no name, and the digest of a configuration, which no registry has.
    """
    found = set()
    for pod in pods:
        ids = {each.name: each.image_id.rpartition("@") for each in pod.status.container_statuses or ()}
        for container in pod.spec.containers:
            name, (_, separator, digest) = container.image.partition("@")[0], ids.get(container.name, ("", "", ""))
            if _has_registry(name):
                found.add(f"{name}@{digest}" if separator and digest.startswith("sha256:") else container.image)
    return sorted(found)


def decide(
    references: Iterable[str], wanted: Verification, verify: Callable[[Reference, Verification], Verdict]
) -> Iterator[Finding]:
    """Yield the faults of images' signatures; `verify` gets each image with the policies that cover it."""
    for name in references if wanted.mode != "off" else ():
        image = f"image {name}"
        try:
            ref = Reference.parse(name)
            policies = [policy for policy in wanted.policies if _is_about(policy, ref)]
            if policies and not ref.digest:
                why = "its node states no digest of the registry: it has not started, or was loaded into the node"
                yield _unknown(image, why, "run the command again when its pods run; loaded images cannot be verified")
            elif policies:
                yield from _judged(image, verify(ref, replace(wanted, policies=policies)))
        except GKMError as error:
            yield _unknown(image, error.message, error.hint or _REFUSED)


def _has_policy(references: Iterable[str], wanted: Verification) -> bool:
    """Return whether a policy is about one of the images; True for a name that cannot be parsed, which is a finding."""
    if wanted.mode == "off":
        return False
    try:
        refs = [Reference.parse(name) for name in references]
    except GKMError:
        return True
    return any(_is_about(policy, ref) for policy in wanted.policies for ref in refs)


def _judged(image: str, verdict: Verdict) -> Iterator[Finding]:
    if verdict.verified is None:
        yield _unknown(image, verdict.message, "run the command again when the registry answers")
    elif not verdict.verified:
        # The mode `warn` allows it.
        severity = Severity.WARNING if verdict.allowed else Severity.PROBLEM
        yield Finding(severity, image, "it is not signed as a policy requires", verdict.message, _REFUSED)


def _is_about(policy: Policy, ref: Reference) -> bool:
    named = [pattern for pattern in policy.images if "/" in pattern and pattern.rpartition("/")[2].strip("*?")]
    return covers(replace(policy, images=named), ref, NAMESPACE)


def _has_registry(name: str) -> bool:
    first, separator, _ = name.partition("/")
    return bool(separator) and (first == "localhost" or "." in first or ":" in first)


def _written(config: Config, text: Callable[[str], str], directory: Path) -> Mapping[str, str]:
    """Write the files that the configuration names and the ConfigMap has; return the new path by the one in pods."""
    found = {}
    paths = (*config.verification.files(), *(host.ca_file for host in config.registries.hosts.values()))
    for number, path in enumerate(dict.fromkeys(paths)):
        if path.startswith(MOUNT) and (content := text(path.removeprefix(MOUNT))):
            copy = directory / str(number)
            copy.write_text(content, encoding="utf-8")
            found[path] = str(copy)
    return found


def _verdict(config: Config, files: Mapping[str, str], ref: Reference, wanted: Verification) -> Verdict:
    registries = config.registries
    used = [registries.host(source).ca_file for source in registries.sources(ref.registry)]
    if absent := [path for path in (*wanted.files(), *used) if path and path not in files]:
        hint = f"verify it on a machine that has the file: gkm cache verify {ref} --config FILE"
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{_CONFIG} names {absent[0]} and does not hold it: doctor cannot verify the image, pods may have the file",
            hint,
        )
    policies = [
        replace(
            policy, keys=[files.get(key, key) for key in policy.keys], trusted_root=files.get(policy.trusted_root, "")
        )
        for policy in wanted.policies
    ]
    hosts = {name: replace(host, ca_file=files.get(host.ca_file, "")) for name, host in registries.hosts.items()}
    # `allow` restricts what users may name in caches.
    registry = Registry(Registries(hosts=hosts), credentials_from_environment())
    return Verifier(replace(wanted, policies=policies)).verify(registry, ref, NAMESPACE)


def _unknown(image: str, why: str, hint: str) -> Finding:
    return Finding(Severity.NOT_CHECKED, image, "the state of its signature is unknown", why, hint)


CHECKS: tuple[Check[Any], ...] = (
    *(kinds.missing, kinds.foreign, kinds.outdated),
    *(configuration.invalid, configuration.trust, configuration.keys_readable, configuration.rights),
    configuration.account_bindings,
    *(webhook.missing, webhook.endpoints, webhook.bundle, webhook.certificate),
    *(daemons.driver_missing, daemons.driver_settings, daemons.csi_missing, daemons.csi_not_ready),
    *(daemons.not_registered, daemons.agent_missing, daemons.agent_not_ready, daemons.agent_absent),
    *(daemons.runtime_class, daemons.priority_class),
    *(controllers.missing, controllers.leader, controllers.versions),
    *(nodes.label, nodes.kubelet, nodes.clock, nodes.disk_full, nodes.driver, nodes.stale_reports),
    *(caches.no_policy, caches.signature, caches.credentials, caches.refused, caches.failed, caches.stuck),
    caches.without_node,
    waiting.pods,
    webhook.unseen,
    kinds.inactive,
    *(captures.destination, captures.refused),
    *(compute_domains.node_labels, compute_domains.terminating, compute_domains.orphans, compute_domains.findings),
    *(compute_domains.templates, compute_domains.template_names, compute_domains.claims),
    compute_domains.waiting_pods,
    *(cluster.version, cluster.imex, cluster.switch),
    signatures,
)

"""Check what ComputeDomains need in a cluster: the kind, the API of claims, and one operator that creates them."""

from collections.abc import Iterator

from gkm.api.computedomains import API_VERSION, DEFINITION, GROUP
from gkm.api.config import ConfigInvalid, parse
from gkm.api.imex import CHANNEL, DAEMON, DAEMON_CLASS, IMEXMode, mode
from gkm.api.installation import CONFIG_KEY, CONFIG_MAP, NAMESPACE
from gkm.api.network_settings import Network
from gkm.api.resource_claims import API_VERSION as CLAIMS_VERSION
from gkm.kube.resources import CLUSTERROLES, CONFIGMAPS, DEFINITIONS, DEVICE_CLASSES, RESOURCE_SLICES

from gkm_cli.clusters.reads import NotServed, Unreadable
from gkm_cli.doctor.domains.listed import COLLECTIONS
from gkm_cli.doctor.findings import CORRECT_CONFIGURATION, Finding, Severity, at, items_at, named, nothing
from gkm_cli.doctor.runner import ClusterReader, Collection, reading_check

_MODES = {
    IMEXMode.DRIVER_MANAGED: "NVIDIA's driver runs the IMEX daemons (driverManaged)",
    IMEXMode.HOST_MANAGED: (
        "the hosts run the IMEX daemons (hostManaged): the cluster has no daemon to look at, and MNNVLReady counts the "
        "pods that run"
    ),
    IMEXMode.UNKNOWN: "no node publishes an IMEX channel, so who runs the IMEX daemons is not known",
}
_VERSION = API_VERSION.partition("/")[2]
_OBJECT = named("CustomResourceDefinition", "", DEFINITION)
_UPGRADE = "install NVIDIA's DRA driver v0.4.0 or later, and apply the CRDs of its chart, which Helm does not upgrade"


@reading_check("domains/version", "the kind ComputeDomain has what GKM needs, or is not in use")
def version(reader: ClusterReader) -> Iterator[Finding]:
    """Check that the kind ComputeDomain and the API of claims are installed; without the kind, whether GKM needs it."""
    definition = reader.get(DEFINITIONS, DEFINITION)
    if definition is None:
        if _network(reader).auto_mnnvl_enabled:
            why = "network.autoMNNVLEnabled is on in gkm-config, and GKM's controllers do not start without it"
            yield _problem("it is not installed", why)
        else:
            yield nothing("ComputeDomains are not installed, and no feature needs them")
        return
    yield from definition_findings(definition)
    try:
        reader.list(COLLECTIONS["templates"])
    except NotServed:
        why = "GKM and NVIDIA's driver use claims of this version"
        hint = "upgrade Kubernetes to 1.34 or later, or enable this version in the API server"
        yield Finding(Severity.PROBLEM, f"API {CLAIMS_VERSION}", "the API server does not serve it", why, hint)


def definition_findings(definition: object) -> Iterator[Finding]:
    """Yield what GKM needs and the CustomResourceDefinition of ComputeDomain lacks."""
    found = next((one for one in items_at(definition, "spec", "versions") if at(one, "name") == _VERSION), None)
    spec = at(found, "schema", "openAPIV3Schema", "properties", "spec")
    template = at(spec, "properties", "channel", "properties", "resourceClaimTemplate", "properties", "name")
    minimum = at(spec, "properties", "numNodes", "minimum")
    if at(found, "served") is not True:
        yield _problem(f"the API server does not serve {_VERSION}", "GKM and Grove use no other version")
    elif template is None:
        field = "spec.channel.resourceClaimTemplate.name"
        yield _problem(f"it has no {field}", "GKM and Grove write this field, and the API server would drop it")
    if isinstance(minimum, int | float) and minimum > 0:
        yield _problem(f"numNodes must be at least {minimum}", "GKM and Grove write 0, because pods come and go")
    if "numNodes" in items_at(spec, "required"):
        why = "releases v25.x of NVIDIA's driver require it; later ones have the default 0"
        detail = "numNodes is required: a ComputeDomain without it is refused"
        yield Finding(Severity.WARNING, _OBJECT, detail, why, _UPGRADE)
    if len(stored := items_at(definition, "status", "storedVersions")) > 1:
        yield Finding(
            Severity.WARNING,
            _OBJECT,
            f"objects may be stored in several versions: {', '.join(map(str, stored))}",
            "an upgrade that drops one of them makes these objects unreadable",
            "kubectl get computedomains -A -o json | kubectl replace -f - writes each of them again; then remove the "
            "old version from status.storedVersions",
        )


@reading_check("domains/imex", "ComputeDomains are not installed")
def imex(reader: ClusterReader) -> Iterator[Finding]:
    """Say who runs the IMEX daemons; warn while NVIDIA's driver changes from one mode to the other."""
    if reader.get(DEFINITIONS, DEFINITION) is None:
        yield nothing("ComputeDomains are not installed")
        return
    has_class = reader.get(DEVICE_CLASSES, DAEMON_CLASS) is not None
    try:
        types = {each for one in reader.list(Collection(RESOURCE_SLICES)) for each in one.types}
    except NotServed:
        yield nothing("the API server serves no ResourceSlices (domains/version)")
        return
    found = mode(has_daemon_class=has_class, types=types)
    if CHANNEL in types and has_class != (DAEMON in types):
        yield _half_changed(has_class=has_class)
    elif found is IMEXMode.UNKNOWN:
        yield nothing(_MODES[found])
    else:
        yield Finding(Severity.OK, "", _MODES[found])


def _half_changed(*, has_class: bool) -> Finding:
    there, absent = "the DeviceClass of daemons exists", "the DeviceClass of daemons does not exist"
    detail = f"{there}, and no node publishes a daemon" if has_class else f"{absent}, and nodes publish daemons"
    return Finding(
        Severity.WARNING,
        named("DeviceClass", "", DAEMON_CLASS),
        detail,
        "NVIDIA's driver changes imex.mode, or its plugins run in another mode than its chart: pods with channels wait",
        "let its rollout end; if it lasts, install its chart again with one imex.mode, while no ComputeDomain is used",
    )


@reading_check("domains/switch", "at most one of GKM and Grove makes ComputeDomains")
def switch(reader: ClusterReader) -> Iterator[Finding]:
    """Check that GKM and the Grove operator do not both create ComputeDomains for PodCliqueSets."""
    network = _network(reader)
    if not network.auto_mnnvl_enabled:
        yield nothing("network.autoMNNVLEnabled is off, so GKM makes no ComputeDomain for a PodCliqueSet")
        return
    role = reader.get(CLUSTERROLES, network.grove_cluster_role)
    if role is not None and role.allows("create", GROUP, "computedomains"):
        yield Finding(
            Severity.PROBLEM,
            named("ClusterRole", "", network.grove_cluster_role),
            "GKM's network.autoMNNVLEnabled is on, and this role lets Grove create ComputeDomains, too",
            "Grove's own feature wins: GKM makes no ComputeDomain for a PodCliqueSet",
            "switch one of them off: config.network.autoMNNVLEnabled of Grove, or network.autoMNNVLEnabled of GKM",
        )


def _problem(detail: str, why: str) -> Finding:
    return Finding(Severity.PROBLEM, _OBJECT, detail, why, _UPGRADE)


def _network(reader: ClusterReader) -> Network:
    """Return the section `network` of the configuration; its defaults if GKM is not installed.

    Raises:
        Unreadable: the configuration cannot be read or used.
    """
    text = at(reader.get(CONFIGMAPS, CONFIG_MAP, NAMESPACE), "data", CONFIG_KEY)
    try:
        return parse(text if isinstance(text, str) else "").network
    except ConfigInvalid as error:
        where = f"ConfigMap {NAMESPACE}/{CONFIG_MAP}: {error}"
        raise Unreadable(where, CORRECT_CONFIGURATION) from error

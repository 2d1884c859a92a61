"""`gkm cache explain`: say before a pod starts whether it will look where a cache has its entries."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from gkm.api import documents
from gkm.api.errors import Reason
from gkm.api.installation import DRIVER
from gkm.gpus import preflight
from gkm.gpus.preflight import Preflight
from gkm.images.assembly.versions import stated_versions
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource
from gkm.kube.resources import Resource
from gkm.runtimes import BY_NAME, Runtime
from gkm.runtimes.keys import Entries, same_value
from gkm.runtimes.placement import directory_of
from msgspec import Struct

from gkm_cli.cache import extraction
from gkm_cli.cache.machines import GPUOption, GPUsOption, machines
from gkm_cli.clusters.options import ClusterOptions, NamespaceOption
from gkm_cli.inputs import files
from gkm_cli.inputs.pods import ContainerFacts, PodSpecFacts, VariableFacts
from gkm_cli.output import CommandFailed, NegativeResult, Output, OutputOption, UsageError, line, show, table
from gkm_cli.registries import RefArgument, RegistryAccess

MAX_POD_BYTES = 1 << 20
_MAX_KEY_FILES = 64
_AFTER_START = "start the pod: gkm why POD names the factor, if one differs"
_CORRECT = "give the pod the value that the cache has, or build the cache with the pod's value"
_UNREADABLE: Final = {Reason.GPU_LOST, Reason.NO_GPU}
_REFERENCE: Final = re.compile(r"\$\([^)]*\)")
_TAG: Final = re.compile(r"[^@]*/vllm-openai:v?([0-9]+\.[0-9]+\.[0-9]+)(?:[@+-].*)?", re.ASCII)
"""The image of vLLM's project, whose tag is the release."""


class Comparison(StrEnum):
    """Whether a factor of the cache key is equal for the pod, different or unknown.

    No pod states all factors: a runtime keys on its configuration, its code and the shapes that it meets, too. So a
    difference proves a miss, and a hit cannot be proven.
    """

    EQUAL = "equal"
    OTHER = "other"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class FactorResult:
    """The result for one factor of the cache key of one container and runtime.

    `cache` and `pod` are values, `why` is the reason of a factor that is not known.
    """

    container: str
    factor: str
    result: Comparison
    cache: str = ""
    pod: str = ""
    why: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """The factors of the keys in a cache: versions from its labels, and variables from its key files."""

    runtime: Runtime
    versions: Mapping[str, str] = field(default_factory=dict)
    environments: Sequence[Mapping[str, object]] = ()
    gpus: Sequence[Preflight] | None = None
    """Whether the GPUs that the user named can use the cache; None if the user named no GPUs."""
    directory: str = ""
    """Directory of the cache below the volume's mount path; "" if the image has a single cache."""


def compare(cache: CacheFacts, pod: PodSpecFacts) -> list[FactorResult]:
    """Return the factors of each container that may use the cache, in the order in which a difference is reported."""
    volumes = {volume.name for volume in pod.volumes or () if volume.csi and volume.csi.driver == DRIVER}
    containers = pod.containers or ()
    mounting = [each for each in containers if volumes & {mount.name for mount in each.volume_mounts or ()}]
    found = (result for each in mounting or containers for result in _container(cache, pod, each, volumes))
    return [replace(result, runtime=cache.runtime.name) for result in found]


def first(results: Sequence[FactorResult]) -> FactorResult | None:
    """Return the result of the first factor that differs, otherwise of the first unknown one; None if all are equal."""
    by_result = {each.result: each for each in reversed(results)}
    return by_result.get(Comparison.OTHER) or by_result.get(Comparison.NOT_KNOWN)


def _container(
    cache: CacheFacts, pod: PodSpecFacts, container: ContainerFacts, volumes: set[str]
) -> Iterator[FactorResult]:
    name = container.name
    yield _gpu(name, cache.gpus)
    yield from _version(name, cache, container)
    yield _path(cache, pod, container, volumes)
    yield from _environment(name, cache, container)
    yield _not_known(name, "rest of the key", cache.runtime.entries.unstated)


def _gpu(name: str, verdicts: Sequence[Preflight] | None) -> FactorResult:
    if not verdicts:
        return _not_known(name, "GPU", "give the GPUs of the nodes by --gpus FILE")
    fitting = [each.fits for each in verdicts]
    if all(fitting):
        return FactorResult(name, "GPU", Comparison.EQUAL)
    refused = [each for each in verdicts if not each.fits]
    if any(fitting):
        return _not_known(name, "GPU", f"some machines can use the cache, others cannot: {refused[0].message}")
    if any(each.reason in _UNREADABLE for each in refused):
        return _not_known(name, "GPU", refused[0].message)
    return FactorResult(name, "GPU", Comparison.OTHER, "kernels for another GPU", refused[0].message)


def _version(name: str, cache: CacheFacts, container: ContainerFacts) -> Iterator[FactorResult]:
    program = cache.runtime.name
    stated, tag = cache.versions.get(program, ""), _TAG.fullmatch(container.image)
    given = tag[1] if tag and program == "vllm" else ""
    factor = f"version of {cache.runtime.title}"
    if not given or not stated:
        missing = f"the image does not state it (gkm cache build --dependency-version {program}=…)"
        yield _not_known(name, factor, "the container image does not state it" if stated else missing)
    else:
        result = Comparison.EQUAL if stated == given else Comparison.OTHER
        yield FactorResult(name, factor, result, stated, given)


def _path(cache: CacheFacts, pod: PodSpecFacts, container: ContainerFacts, volumes: set[str]) -> FactorResult:
    runtime, name, factor = cache.runtime, container.name, "mount path"
    mounts = [mount for mount in container.volume_mounts or () if mount.name in volumes]
    if not mounts:
        return _not_known(name, factor, f"the container mounts no volume of {DRIVER} yet")
    stated = {each.name: _mount_path(each.csi.volume_attributes if each.csi else None) for each in pod.volumes or ()}
    for mount in mounts:
        if stated[mount.name] and mount.mount_path.rstrip("/") != stated[mount.name].rstrip("/"):
            return FactorResult(name, factor, Comparison.OTHER, f"mountPath {stated[mount.name]}", mount.mount_path)
    variable = next((each for each in _variables(container).values() if each.name in runtime.variables), None)
    value = _literal(variable) if variable else None
    if value is None:
        return _not_known(name, factor, f"the pod does not state {runtime.variables[0]}; the container image may")
    places = ["/".join(filter(None, (mount.mount_path.rstrip("/"), cache.directory))) for mount in mounts]
    if not any(f"{value.rstrip('/')}/".startswith(f"{place}/") for place in places):
        return FactorResult(name, factor, Comparison.OTHER, places[0], f"{runtime.variables[0]}={value}")
    if not any(stated[mount.name] for mount in mounts):
        return _not_known(name, factor, "without the attribute mountPath, paths stay as in the build")
    return FactorResult(name, factor, Comparison.EQUAL, value, value)


def _mount_path(attributes: Mapping[str, str] | None) -> str:
    return (attributes or {}).get("mountPath", "")


def _environment(name: str, cache: CacheFacts, container: ContainerFacts) -> Iterator[FactorResult]:
    """Yield each variable of the pod that is part of the key and not equal, and what the pod does not say."""
    if not cache.environments:
        yield _not_known(name, "environment", f"the cache of {cache.runtime.title} states no variables")
        return
    variables = _variables(container)
    for variable in variables.values():
        known = [each for each in cache.environments if variable.name in each]
        if known or variable.name in cache.runtime.entries.key_variables:
            yield _variable(name, variable, [each[variable.name] for each in known] or [None])
    names = {key for each in cache.environments for key in each} - variables.keys()
    if container.env_from or names:
        why = f"{len(names)} variables of the key have the values of the container image" if names else "envFrom"
        yield _not_known(name, "environment", why)


def _variable(name: str, variable: VariableFacts, stated: Sequence[object]) -> FactorResult:
    """Return the result of a variable; `stated` are its values in the models of the cache, of which one is to hit."""
    value = _literal(variable)
    if value is None:
        return _not_known(name, variable.name, "Kubernetes fills its value in")
    same = [same_value(each, value) for each in stated]
    if None in same and True not in same:
        return _not_known(name, variable.name, "the runtime may read both values alike")
    result = Comparison.EQUAL if True in same else Comparison.OTHER
    shown = stated[same.index(True)] if True in same else stated[0]
    return FactorResult(name, variable.name, result, "none" if shown is None else str(shown), value)


def _variables(container: ContainerFacts) -> dict[str, VariableFacts]:
    """Return the variables by name; if two have one name, the last one is used."""
    return {each.name: each for each in container.env or ()}


def _literal(variable: VariableFacts) -> str | None:
    """Return the value, None if Kubernetes fills it from elsewhere."""
    return None if variable.value_from or _REFERENCE.search(variable.value) else variable.value


def _not_known(name: str, factor: str, why: str) -> FactorResult:
    return FactorResult(name, factor, Comparison.NOT_KNOWN, why=why)


class PodObject(Struct, frozen=True):
    """The pod to compare with the cache, reduced to the fields of its spec."""

    spec: PodSpecFacts = PodSpecFacts()


class _WorkloadSpec(Struct, frozen=True):
    template: PodObject


class _Workload(Struct, frozen=True):
    spec: _WorkloadSpec


PODS = Resource("v1", "Pod", "pods", namespaced=True, type=PodObject)
PodOption = Annotated[
    str,
    typer.Option(
        "--pod", metavar="POD|FILE", help="The name of a pod, or a file with a pod or a workload that makes pods."
    ),
]


def explain(
    reference: RefArgument,
    *,
    pod: PodOption,
    gpu: GPUOption = "",
    gpus: GPUsOption = None,
    access: RegistryAccess,
    cluster: ClusterOptions,
    namespace: NamespaceOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare the key of a pod with an image's, factor by factor; exit 3 if one differs, 1 if it is not known.

    Raises:
        NegativeResult: a factor differs.
        CommandFailed: no factor is known to differ, which does not mean that the cache hits.
    """
    spec = _pod(pod, cluster, namespace)
    nodes = machines(gpu, gpus) if gpu or gpus else []
    registry, image = access.described(reference)
    environments = _environments(registry, image, access.config.store.max_image_bytes)
    names, versions = [each.value for each in image.formats], stated_versions(image.labels)
    gpus_fit = [preflight.check(image.targets, node.gpus) for node in nodes]
    results = [
        result
        for name in names
        for result in compare(
            CacheFacts(BY_NAME[name], versions, environments.get(name, ()), gpus_fit, directory_of(name, names)), spec
        )
    ]
    found = first(results)
    show(_result(results, found), output, lambda: _print(results, found))
    if found is not None and found.result is Comparison.OTHER:
        raise NegativeResult
    raise CommandFailed(f"not known whether the pod can use the kernels of the cache; {_AFTER_START}")


def _pod(name: str, cluster: ClusterOptions, namespace: str) -> PodSpecFacts:
    path = Path(name)
    if path == files.STDIN or path.suffix in {".yaml", ".yml", ".json"}:
        return _parsed(files.read_all(path, MAX_POD_BYTES), name)
    # Its imports would slow down the command for a file.
    from gkm_cli.clusters.connection import connected  # noqa: PLC0415
    from gkm_cli.clusters.reads import get  # noqa: PLC0415

    connection = connected(cluster, namespace)
    found = get(connection.api, PODS, name.removeprefix("pod/"), namespace or connection.namespace)
    if found is None:
        raise CommandFailed(f"there is no pod {name}; name its namespace with -n, or give a file that ends in .yaml")
    return found.spec


def _parsed(text: bytes, name: str) -> PodSpecFacts:
    try:
        value = documents.decode(text, dict[str, Any])
        if value.get("kind") == "Pod":
            return msgspec.convert(value, PodObject).spec
        return msgspec.convert(value, _Workload).spec.template.spec
    except (documents.InvalidYAML, msgspec.ValidationError) as error:
        hint = "give one Pod, or one object with spec.template, as kubectl get deployment NAME -o yaml prints it"
        raise UsageError(f"{name} holds no pod: {error}", hint) from error


def _environments(registry: ImageSource, image: CacheImage, max_bytes: int) -> dict[str, list[Mapping[str, object]]]:
    """Fetch the content into a temporary directory; return the variables of the first key files of each runtime."""
    stating = {each.value: BY_NAME[each.value].entries for each in image.formats}
    if not any(entries.environment for entries in stating.values()):
        return {}
    with tempfile.TemporaryDirectory(prefix="gkm-explain-") as directory:
        content = Path(directory) / "content"
        extraction.extract(registry, image, content, max_bytes, None)
        return {name: _read(entries, content) for name, entries in stating.items()}


def _read(entries: Entries, content: Path) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = []
    for path in sorted(content.rglob("*.json")):
        if entries.environment and entries.key_file.fullmatch(path.relative_to(content).as_posix()):
            with path.open("rb") as file:
                text = file.read(entries.max_bytes + 1)
            if len(text) <= entries.max_bytes and entries.read(text) is not None:
                found.append(entries.environment(text))
        if len(found) == _MAX_KEY_FILES:
            break
    return found


def _result(results: list[FactorResult], found: FactorResult | None) -> dict[str, Any]:
    is_other = found is not None and found.result is Comparison.OTHER
    return {
        "verdict": "misses" if is_other else "not known",
        "factor": found.factor if found else "",
        "next": _CORRECT if is_other else _AFTER_START,
        "factors": [msgspec.to_builtins(each) for each in results],
    }


def _print(results: list[FactorResult], found: FactorResult | None) -> None:
    rows = [
        (each.container, each.runtime, each.factor, each.result.value, each.cache, each.pod, each.why)
        for each in results
    ]
    table(("container", "runtime", "factor", "result", "cache", "pod", "why"), rows)
    line("")
    if found is not None and found.result is Comparison.OTHER:
        line(f"it misses because of {found.factor} (the cache has {found.cache}, the pod has {found.pod})")
        line(f"  next: {_CORRECT}")
    elif found is not None:
        line(f"not known because of {found.factor}: {found.why}")

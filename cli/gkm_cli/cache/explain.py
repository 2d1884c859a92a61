"""`gkm cache explain`: say before a pod starts whether it will look where a cache has its entries."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from gkm.api import documents
from gkm.gpus import preflight
from gkm.images.assembly.versions import stated_versions
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource
from gkm.kube.resources import Resource
from gkm.runtimes import BY_NAME
from gkm.runtimes.keys import Entries
from gkm.runtimes.placement import directory_of
from msgspec import Struct

from gkm_cli.cache import extraction
from gkm_cli.cache.hit_prediction import CacheFacts, Comparison, FactorResult, compare, first
from gkm_cli.cache.machines import GPUOption, GPUsOption, machines
from gkm_cli.clusters.options import ClusterOptions, NamespaceOption
from gkm_cli.inputs import files
from gkm_cli.inputs.pods import PodSpecFacts
from gkm_cli.output import CommandFailed, NegativeResult, Output, OutputOption, UsageError, line, show, table
from gkm_cli.registries import RefArgument, RegistryAccess

MAX_POD_BYTES = 1 << 20
_MAX_KEY_FILES = 64
_AFTER_START = "start the pod: gkm why POD names the factor, if one differs"
_CORRECT = "give the pod the value that the cache has, or build the cache with the pod's value"


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

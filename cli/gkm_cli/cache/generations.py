"""`gkm cache pin`, `promote` and `drop`: which generation of a family nodes take, who owns it, and its end."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from gkm.api.caches import Cache, is_held_back, kind_of
from gkm.api.captured_metadata import CONTENT, EARLIER, HARDWARE, PREFIX
from gkm.api.grammar import count_of
from gkm.images.captured.content import short
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource

from gkm_cli.clusters import writes
from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions, NamespaceOption
from gkm_cli.clusters.reads import get, listed
from gkm_cli.output import CommandFailed, Output, OutputOption, UsageError, line, show

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the cache; see gkm cache list.")]
SharedOption = Annotated[bool, typer.Option("--cluster", help="It is a ClusterGKMCache.")]
_MANAGED_BY = "app.kubernetes.io/managed-by"


def pin(
    name: NameArgument,
    cluster: ClusterOptions,
    *,
    namespace: NamespaceOption = "",
    shared: SharedOption = False,
    unpin: Annotated[bool, typer.Option("--unpin", help="Let nodes take the newest generation again.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let nodes take this member of its family, even if there are newer ones; --unpin takes it back."""
    member = _Member.read(cluster, name, namespace, shared=shared)
    writes.change(member.api, member.resource, member.cache.metadata, {"spec": {"pinned": not unpin}})
    others = [] if unpin else also_pinned(member.cache, member.family())
    notes = [f"{each} is pinned too: of several, nodes take the one with the largest generation" for each in others]
    member.report("unpinned" if unpin else "pinned", notes, output)


def promote(
    name: NameArgument,
    cluster: ClusterOptions,
    *,
    namespace: NamespaceOption = "",
    shared: SharedOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a captured cache over from the controllers: it is yours then, and retention leaves it alone."""
    member = _Member.read(cluster, name, namespace, shared=shared)
    if not (marks := marks_of(member.cache)):
        raise CommandFailed(f"{name} is no cache that the controllers made of a capture; it is yours already")
    writes.change(member.api, member.resource, member.cache.metadata, {"metadata": marks})
    note = "its image is still among the captures' images, which a policy of the registry may remove"
    member.report("promoted", [note], output)


def drop(
    name: NameArgument,
    cluster: ClusterOptions,
    *,
    namespace: NamespaceOption = "",
    shared: SharedOption = False,
    force: Annotated[bool, typer.Option("--force", help="Also if pods use it, or it is pinned or held back.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a generation of a family; refused while pods use it, or it is pinned or held back. Its image stays."""
    member = _Member.read(cluster, name, namespace, shared=shared)
    if not member.cache.spec.family:
        where = f" -n {member.cache.metadata.namespace}" if member.cache.metadata.namespace else ""
        delete = f"kubectl delete {member.resource.plural} {name}{where}"
        raise CommandFailed(f"{name} belongs to no family; {delete} deletes it, if you mean it")
    family = member.family()
    if (use := use_of(member.cache, family)) and not force:
        raise CommandFailed(f"{name} {use}; --force drops it nevertheless")
    writes.delete(member.api, member.resource, member.cache.metadata)
    member.report("dropped", [_COMES_BACK] if may_come_back(member.cache, family) else [], output)


_COMES_BACK = (
    "no later generation remembers it, so the controllers register it again while a node announces it: to have nodes "
    "take an earlier one, pin that"
)


class _Member:
    """The cache that a command changes, and the API of its cluster."""

    def __init__(self, api: Api, cache: Cache, *, shared: bool) -> None:
        self.api = api
        self.cache = cache
        self._shared = shared

    @classmethod
    def read(cls, cluster: ClusterOptions, name: str, namespace: str, *, shared: bool) -> "_Member":
        if shared and namespace:
            raise UsageError("a ClusterGKMCache has no namespace", "leave out --namespace, or --cluster")
        connection = connected(cluster, namespace)
        where = None if shared else namespace or connection.namespace
        found = get(connection.api, _resource(shared=shared), name, where)
        if found is None:
            place, how = ("the cluster", "-A") if shared else (f"the namespace {where}", f"-n {where}")
            raise CommandFailed(f"there is no cache {name} in {place}; gkm cache list {how} lists all")
        return cls(connection.api, found, shared=shared)

    @property
    def resource(self) -> Resource[Any]:
        return _resource(shared=self._shared)

    def family(self) -> list[Cache]:
        """Return the readable members of the cache's family."""
        found, _ = listed(self.api, self.resource, ListSelector(namespace=self.cache.metadata.namespace))
        return [each for each in found if family_of(each) == family_of(self.cache)]

    def report(self, result: str, notes: Sequence[str], output: Output) -> None:
        metadata, spec = self.cache.metadata, self.cache.spec
        entry = {
            "kind": kind_of(self.cache),
            "namespace": metadata.namespace,
            "name": metadata.name,
            "family": family_of(self.cache),
            "generation": spec.generation or 0,
            "result": result,
            "notes": notes,
        }
        number = f", generation {spec.generation or 0} of {spec.family}," if spec.family else ""
        show(entry, output, lambda: _print((f"{metadata.name}{number} is {result}", *notes)))


def _print(texts: Iterable[str]) -> None:
    for text in texts:
        line(text)


def _resource(*, shared: bool) -> Resource[Any]:
    return CLUSTERGKMCACHES if shared else GKMCACHES


def family_of(cache: Cache) -> str:
    """Return the name of the cache's family: the family that it names, or its own name."""
    return cache.spec.family or cache.metadata.name


def marks_of(cache: Cache) -> dict[str, dict[str, None]]:
    """Return the metadata patch that removes the marks of the controllers from a captured cache.

    {} if it has no mark.
    """
    metadata = cache.metadata
    found = {
        part: {key: None for key in texts if key.startswith(PREFIX)}
        for part, texts in (("labels", metadata.labels), ("annotations", metadata.annotations))
    }
    if not any(found.values()):
        return {}
    if metadata.labels.get(_MANAGED_BY) == "gkm":
        found["labels"][_MANAGED_BY] = None
    return found


def also_pinned(cache: Cache, family: Iterable[Cache]) -> list[str]:
    """Return the other pinned members of a family for the same hardware, as far as that is known."""
    hardware = cache.metadata.annotations.get(HARDWARE)
    return sorted(
        each.metadata.name
        for each in family
        if each.spec.pinned
        and each.metadata.name != cache.metadata.name
        and each.metadata.annotations.get(HARDWARE) in (hardware, None)
    )


def use_of(cache: Cache, family: Iterable[Cache]) -> str:
    """Return why deleting a cache object would affect pods, as the end of a sentence; "" if it would not."""
    if cache.status.pods_using:
        return f"is used by {count_of(cache.status.pods_using, 'volume')} of pods"
    if is_held_back(cache) and may_come_back(cache, family):
        return "is held back, and the controllers would register it again for new pods"
    return "is pinned" if cache.spec.pinned else ""


def may_come_back(cache: Cache, family: Iterable[Cache]) -> bool:
    """Return whether the controllers could make a deleted generation again from its capture."""
    annotations = cache.metadata.annotations
    digest = short(annotations.get(CONTENT, ""))
    others = (each.metadata.annotations for each in family if each.metadata.name != cache.metadata.name)
    remembered = (each.get(EARLIER, "").split() for each in others if each.get(HARDWARE) == annotations.get(HARDWARE))
    return bool(digest) and not any(digest in each for each in remembered)

"""The links that the containers of a pod decide: the paths of the cache, and its hits. Pure.

A container may get a variable from its image, which the cluster does not show: without one in the pod, the link is not
checked. Hits are not reported one by one (docs/decisions/0021-hits-and-misses.md).
"""

from collections.abc import Iterator, Sequence
from posixpath import normpath

from gkm.api.grammar import count_of
from gkm.api.nodes import KernelMisses
from gkm.runtimes import BY_NAME, VARIABLES
from gkm.runtimes.keys import MissReason
from gkm.runtimes.placement import beside, environment, names_in

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.inputs.pods import ContainerFacts, VariableFacts, VolumeMountFacts
from gkm_cli.why.facts import ContainerEnd, Facts
from gkm_cli.why.outcomes import Broken, Holds, Outcome, kubectl

_SAME_DIRECTORY = {MissReason.NO_SUCH_KERNEL, MissReason.UNKNOWN}
"""A runtime with one key for a directory may have chosen the mounted one."""


def decide_mount_path(facts: Facts) -> Outcome:
    """Decide whether each container looks for the cache at the path where it is mounted."""
    mounts = list(facts.pod.mounts(facts.volume.name))
    faults = [fault for container, mount in mounts for fault in _faults(facts, container, mount)]
    faults += _missed_without_path(facts)
    if faults:
        hints = dict.fromkeys(one.hint for one in faults)
        return Broken("; ".join(dict.fromkeys(one.detail for one in faults)), "; ".join(hints))
    if doubts := [*_doubts(facts)]:
        raise doubts[0]
    set_here = sorted({one.name for container, _ in mounts for one in _known(facts, container)})
    return Holds(f"{facts.attributes['mountPath']}; {', '.join(set_here)}")


def _faults(facts: Facts, container: ContainerFacts, mount: VolumeMountFacts) -> Iterator[Broken]:
    """Yield each line about one place of the volume that is wrong, independent of the others."""
    stated = facts.attributes.get("mountPath", "")
    if mount.sub_path or mount.sub_path_expr:
        yield Broken(
            f"the container {container.name} mounts a subPath of the volume, and paths belong to the whole volume",
            "remove subPath from its volumeMounts",
        )
    if stated and normpath(mount.mount_path) != normpath(stated):
        yield Broken(
            f"the attribute mountPath is {stated}, and the container {container.name} mounts at {mount.mount_path}",
            "write the same path in both",
        )
    for variable in _known(facts, container):
        yield from _elsewhere(facts, container, variable, mount.mount_path)
    yield from _foreign_only(facts, container, mount.mount_path)


def _missed_without_path(facts: Facts) -> Iterator[Broken]:
    if facts.missed and not facts.attributes.get("mountPath"):
        yield Broken(
            f"{facts.missed[0]} missed a kernel, and without the attribute mountPath kernels hit only where "
            "the cache was built",
            f"add mountPath: {_first_path(facts)} to volumeAttributes",
        )


def _elsewhere(facts: Facts, container: ContainerFacts, variable: VariableFacts, path: str) -> Iterator[Broken]:
    """Yield the fault of a variable that names another directory than its runtime's."""
    names = _runtimes(facts)
    wanted = environment(names, path).get(variable.name, path)
    found = f"{variable.name} of the container {container.name} is {variable.value}"
    if not names and (
        _within(variable.value, path) or any(_within(each.value, path) for each in _known(facts, container))
    ):
        return
    if not _within(variable.value, path):
        yield Broken(f"{found}, which is not in {path}", f"set it to {wanted}")
    elif names and normpath(variable.value) != normpath(wanted):
        yield Broken(f"{found}, and its cache is at {wanted}", f"set it to {wanted}")


def _foreign_only(facts: Facts, container: ContainerFacts, path: str) -> Iterator[Broken]:
    """Yield the variables of other runtimes that name the volume, where no variable of the cache's runtimes is set."""
    names, own = _runtimes(facts), set(_variables(facts))
    companions = beside(names, path)
    given = [one.name for one in container.env or () if one.name in VARIABLES and one.name not in companions]
    here = [one.name for one in container.env or () if one.name in given and _within(one.value, path)]
    if names and here and not own & set(given) and not container.env_from:
        for name in names:
            first = BY_NAME[name].variables[0]
            found = f"the container {container.name} sets {', '.join(here)} only"
            yield Broken(
                f"the cache is of {BY_NAME[name].title}, and {found}",
                f"set {first} to {environment(names, path)[first]}",
            )


def _doubts(facts: Facts) -> Iterator[Unreadable]:
    """Yield what the cluster does not show, and the command that shows it."""
    containers = [container for container, _ in facts.pod.mounts(facts.volume.name)]
    known = {one.name: one.value for container in containers for one in _known(facts, container)}
    if not known:
        yield _unset(facts, containers[0])
    path = _first_path(facts)
    if not _runtimes(facts) and not all(_within(value, path) for value in known.values()):
        yield Unreadable(f"{facts.named} does not state its runtime, and variables name several paths", _shown(facts))
    if not facts.attributes.get("mountPath"):
        doubt = f"no attribute mountPath: kernels hit only if the cache was built at {path}"
        yield Unreadable(doubt, f"add mountPath: {path} to volumeAttributes")


def _unset(facts: Facts, container: ContainerFacts) -> Unreadable:
    names, meta = _variables(facts), facts.pod.metadata
    wanted = names if _runtimes(facts) else ()
    words = ("exec", meta.name, "-n", meta.namespace, "-c", container.name, "--", "printenv", *wanted)
    named = " or ".join(wanted) or "any variable of a runtime"
    return Unreadable(
        f"the pod does not state the value of {named}, so its image or another object does",
        f"{kubectl(*words)} shows it",
    )


def _shown(facts: Facts) -> str:
    name = facts.cache_name
    where = ("-n", name.namespace) if name and name.namespace else ()
    words = ("get", f"{name.kind.lower()}s", name.name, *where, "-o", "jsonpath={.status.runtime}") if name else ()
    return f"{kubectl(*words)} shows it once the controllers have read the image"


def _known(facts: Facts, container: ContainerFacts) -> list[VariableFacts]:
    """Return the variables of the runtimes of the cache whose value the pod states."""
    wanted = _variables(facts)
    return [one for one in container.env or () if one.name in wanted and one.value and "$(" not in one.value]


def _variables(facts: Facts) -> Sequence[str]:
    """Return the variables of the runtimes of the cache: others of the pod may have their caches elsewhere."""
    return tuple(environment(_runtimes(facts), "")) or VARIABLES


def _runtimes(facts: Facts) -> tuple[str, ...]:
    """Return the runtimes of the cache, as far as they are known."""
    return names_in(facts.cache.found.status.runtime) if facts.cache.found else ()


def _first_path(facts: Facts) -> str:
    return min(mount.mount_path for _, mount in facts.pod.mounts(facts.volume.name))


def _within(path: str, root: str) -> bool:
    return f"{normpath(path)}/".startswith(f"{normpath(root)}/")


def decide_hits(facts: Facts) -> Outcome:
    """Decide whether the pod's program finds its kernels in the cache."""
    if facts.missed:
        return Broken(
            f"{facts.missed[0]} ended, because a kernel is not in the cache and the volume is read-only",
            'set readOnly: "false" in volumeAttributes, or build an image with all kernels (gkm cache build)',
        )
    if facts.filled:
        return Broken(
            f"{facts.filled[0]} ended, because the private layer of the volume is full",
            "raise sizeLimit in volumeAttributes (1Gi without it), and the memory limit of the container",
        )
    misses = _misses(facts)
    if misses and (broken := _other_directory(misses)):
        return broken
    if facts.unexplained:
        raise _ended(facts, facts.unexplained[0])
    if facts.is_private:
        return Holds(f"no failure; {_described(misses) if misses else _layer(facts)}")
    if facts.is_private is None:
        compiled = "a missing kernel is compiled where the volume is just in time, and else would end the program"
        return Holds(f"no failure; {compiled} (not checked: {facts.mode_doubt.why})")
    return Holds("no failure; a missing kernel would end the program, because the volume is read-only")


def _ended(facts: Facts, end: ContainerEnd) -> Unreadable:
    meta, previous = facts.pod.metadata, ("--previous",) if end.is_previous else ()
    message = f": {end.message.strip()[-200:]}" if end.message.strip() else ", without a message"
    logs = kubectl("logs", meta.name, "-n", meta.namespace, "-c", end.container, *previous)
    return Unreadable(f"{end.container} ended with exit code {end.exit_code}{message}", f"read why: {logs}")


def _misses(facts: Facts) -> KernelMisses | None:
    """Return what the program compiled, as the agent of the node reports; None without a report."""
    uses = facts.on_node.pods if facts.on_node else ()
    volumes = [use for use in uses if use.misses and use.misses.kernels]
    return next((use.misses for use in volumes if use.volume_id == facts.volume_id), None)


def _other_directory(misses: KernelMisses) -> Broken | None:
    """Say which factor made a runtime choose another directory than the mounted one, where its entries all miss."""
    for name, found in misses.runtimes.items():
        runtime = BY_NAME.get(name)
        shared = runtime is not None and runtime.entries.is_shared
        if runtime and shared and found.mounted and not found.reasons.keys() <= _SAME_DIRECTORY:
            count = count_of(found.compiled, "graph")
            factor = found.difference or ", ".join(sorted(found.reasons))
            return Broken(
                f"{runtime.title} has chosen another directory than the mounted one, and compiled {count}: {factor}",
                'give the pod the value that the cache has; or build the cache from this pod: capture: "true"',
            )
    return None


def _described(misses: KernelMisses) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(misses.reasons.items()))
    differences = [f"; {name}: {each.difference}" for name, each in misses.runtimes.items() if each.difference]
    compiled = f"{count_of(misses.kernels, 'kernel')} that the cache lacks ({reasons}{''.join(differences)})"
    if misses.at_least:
        return f"the program has compiled at least {compiled}"
    at_most = 100 * misses.mounted_kernels // (misses.mounted_kernels + misses.kernels)
    return f"the program has compiled {compiled}; the cache has {misses.mounted_kernels}, so at most {at_most} % hit"


def _layer(facts: Facts) -> str:
    """Describe the private layer: an optional reading, for which most users lack the right."""
    used = facts.layer_bytes
    if used.found is None:
        why = f" ({used.unreadable.why})" if used.unreadable else ""
        return f"a missing kernel is compiled into the private layer, whose size is not known{why}"
    if used.found == 0:
        return "the program has compiled no kernel into the volume: each kernel hit, or it has not looked there"
    return f'the program has written {used.found} bytes that the cache lacks: capture: "true" stores them'

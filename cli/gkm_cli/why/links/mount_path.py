"""The mount path: attribute, volumeMounts and the variable of the framework name one path.

Triton records absolute paths; the driver rewrites them for the attribute `mountPath` (docs/design/relocation.md).
"""

from gkm.runtimes import VARIABLES

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome


def decide(facts: Facts) -> Outcome:
    """Decide about the paths."""
    stated = facts.attributes.get("mountPath", "")
    mounts = list(facts.pod.mounts(facts.volume.name))
    paths = sorted({mount.mount_path for _, mount in mounts})
    path = paths[0] if paths else ""
    if not stated and facts.missed:
        return Broken(
            f"{facts.missed[0]} missed a kernel, and without the attribute mountPath kernels hit only where "
            "the cache was built",
            f"add mountPath: {path} to volumeAttributes",
        )
    if not stated:
        return Holds(f"no attribute mountPath: kernels hit only if the cache was built at {path}; else add it")
    for container, mount in mounts:
        if mount.sub_path or mount.sub_path_expr:
            return Broken(
                f"the container {container.name} mounts a subPath of the volume, and paths are those of the whole",
                "remove subPath from its volumeMounts",
            )
        if mount.mount_path.rstrip("/") != stated:
            return Broken(
                f"the attribute mountPath is {stated}, and the container {container.name} mounts at {mount.mount_path}",
                "write the same path in both",
            )
        for variable in container.env or ():
            if variable.name in VARIABLES and variable.value and not _within(variable.value, stated):
                return Broken(
                    f"{variable.name} of the container {container.name} is {variable.value}, which is not in {stated}",
                    f"set it to {stated}",
                )
    named = sorted({one.name for container, _ in mounts for one in container.env or () if one.name in VARIABLES})
    variables = ", ".join(named) if named else f"no {' or '.join(VARIABLES)} in the pod: the image must set one"
    return Holds(f"{stated}; {variables}")


def _within(path: str, root: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{root.rstrip('/')}/")

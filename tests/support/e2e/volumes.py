"""What tests of volumes on a real node share: pods of any shape, caches that say their name, a look at the node."""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gkm.hoststate import records
from gkm.hoststate.layout import Layout
from gkm.hoststate.records import VolumeRecord
from gkm.images.local_image import LocalImage
from gkm.mounts import mountinfo
from gkm.mounts.mountinfo import MarkedMount, marked_mounts
from support.cluster import gkm_objects as objects
from support.cluster.gkm_objects import MOUNT, Object
from support.e2e.fleet import CACHE, Fleet
from support.images.archives import cache_image

PRIVATE = {"readOnly": "false"}
ROOT: Object = {}
NOT_ROOT: Object = {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}
NAMED = "cache-name"
"""The file in a cache of `named_image` that says which one it is."""
Tree = dict[str, tuple[object, ...]]


def mount(at: str = MOUNT, volume: str = "kernels", **more: object) -> Object:
    """An entry of volumeMounts."""
    return {"name": volume, "mountPath": at, **more}


def container(script: str, *mounts: Object, name: str = "app", security: Object = ROOT) -> Object:
    """A container that runs a shell script once; without `mounts` it sees the volume `kernels` at MOUNT."""
    made: Object = objects.pod("", "", {}, script)["spec"]["containers"][0]
    return made | {"name": name, "securityContext": security, "volumeMounts": list(mounts or [mount()])}


def volume(attributes: Mapping[str, str], name: str = "kernels", **more: object) -> Object:
    return {"name": name, "csi": {"driver": "csi.gkm.io", "volumeAttributes": dict(attributes), **more}}


def pod(
    name: str, namespace: str, containers: Sequence[Object], volumes: Sequence[Object], **spec: object
) -> dict[str, Any]:
    """A pod of these containers and volumes; `spec` are further fields of it."""
    made = objects.pod(name, namespace, {}, "true")
    made["spec"] |= {"containers": list(containers), "volumes": list(volumes), **spec}
    return made


def named_image(name: str) -> LocalImage:
    """The image of a real cache that holds a file with its name."""
    with tempfile.TemporaryDirectory() as work:
        copy = shutil.copytree(CACHE, Path(work) / "cache")
        (copy / NAMED).write_text(name)
        return cache_image(name, copy)


def layout(fleet: Fleet) -> Layout:
    return Layout(fleet.gkm.state, fleet.gkm.run_directory)


def ready(fleet: Fleet, namespace: str, name: str = "llama") -> Path:
    """Declare a cache and wait until the node has it; return what pods see of it in the store."""
    fleet.declare(name, namespace, fleet.image(name, built=named_image(name)))
    return layout(fleet).entry(fleet.reaches(name, namespace, "Ready")["digest"]) / "cache"


def running(fleet: Fleet, made: Object) -> None:
    """Apply a pod and wait until all of it runs."""
    fleet.cluster.apply(made)
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]

    def runs() -> bool:
        said = fleet.cluster.get("pod", name, namespace)["status"]
        return said["phase"] == "Running" and all(one["ready"] for one in said["containerStatuses"])

    fleet.until(runs, f"pod {name} to run: {fleet.mount_events(name, namespace)}")


def inside(fleet: Fleet, namespace: str, name: str, script: str) -> str:
    """Run a script in the first container of a running pod; return what it printed."""
    return fleet.kubectl("exec", "-n", namespace, name, "--", "/bin/sh", "-c", f"exec 2>&1; {script}")


def delete(fleet: Fleet, namespace: str, name: str) -> None:
    """Delete a pod, and wait until the node has let go of all that it had."""
    fleet.kubectl("delete", "pod", name, "-n", namespace, "--grace-period=0")
    fleet.until(lambda: not left(fleet), f"nothing of pod {name} to be left")


def recorded(fleet: Fleet, namespace: str | None = None) -> list[VolumeRecord]:
    """The records of volumes, of one namespace or of all."""
    return [one for one in records.load_all(layout(fleet)) if namespace in (None, one.pod_namespace)]


def mounted(fleet: Fleet) -> list[MarkedMount]:
    """The mounts of volumes, by the kernel alone."""
    root = Path(os.path.realpath(fleet.cluster.kubelet_root))
    return [found for found in marked_mounts(mountinfo.read()) if Path(found.point).is_relative_to(root)]


def left(fleet: Fleet) -> list[str]:
    """All that volumes have on the node while they are there, and never afterwards."""
    host = layout(fleet)
    places = [*host.volumes.iterdir(), *host.layers.iterdir(), *host.captured.glob(".tmp-*")]
    return [*map(str, places), *(found.point for found in mounted(fleet))]


def tree(top: Path) -> Tree:
    """All that can be said of a directory and what is in it: two equal ones are the same, byte by byte."""
    return {str(path.relative_to(top)): _look(path) for path in (top, *top.rglob("*"))}


def _look(path: Path) -> tuple[object, ...]:
    found = path.lstat()
    what = path.read_bytes() if stat.S_ISREG(found.st_mode) else None
    return found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_ctime_ns, what

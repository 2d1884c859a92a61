"""What NVIDIA's DRA driver publishes in each mode of IMEX, as its chart and its kubelet plugin (v0.5.0) write it."""

from typing import Any

from gkm.api.imex import DAEMON_CLASS, DRIVER
from gkm.kube.resources import DEVICE_CLASSES, RESOURCE_SLICES, Resource
from support.kube.fake_api import FakeApi

Json = dict[str, Any]
SLICES: Resource[Json] = Resource(
    RESOURCE_SLICES.api_version, RESOURCE_SLICES.kind, RESOURCE_SLICES.plural, namespaced=False, type=dict
)


def resource_slice(node: str, *types: str, driver: str = DRIVER) -> Json:
    """The ResourceSlice of a node, with one device of each type."""
    devices = [{"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}} for kind in types]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }


def daemon_class() -> Json:
    """The DeviceClass of daemons, which the chart has unless the hosts run them."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DAEMON_CLASS},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    }


def publish(api: FakeApi, *, host_managed: bool, nodes: int = 3) -> None:
    """Let the driver run in a mode on some nodes, whose GPUs another driver publishes."""
    types = ("channel",) if host_managed else ("channel", "daemon")
    for number in range(nodes):
        api.put(SLICES, resource_slice(f"n{number}", *types))
        api.put(SLICES, resource_slice(f"n{number}", "gpu", driver="gpu.nvidia.com"))
    if not host_managed:
        api.put(DEVICE_CLASSES, daemon_class())

"""Parts of a rendered chart, for tests of its values."""

from kustomizations.directories import COMPONENTS
from kustomizations.rendering import merged
from support.chart.helm import Object, Values, render

ALL: Values = merged(each.values for each in COMPONENTS)
"""Every feature switched on."""
DAEMONS = ("gkm-agent", "gkm-csi")
DEPLOYMENTS = ("gkm-admission", "gkm-controllers")


def pod(name: str, values: Values | None = None) -> Object:
    """Return the pod template of a DaemonSet or Deployment."""
    found = [each.value for each in render(values) if each.key[0] in {"DaemonSet", "Deployment"}]
    (one,) = (each for each in found if each["metadata"]["name"] == name)
    template: Object = one["spec"]["template"]
    return template


def container(name: str, values: Values | None = None) -> Object:
    (found,) = pod(name, values)["spec"]["containers"]
    return dict(found)


def kinds(values: Values | None = None, *, namespace: str = "default") -> set[tuple[str, str]]:
    """Return kind and name of every object."""
    return {(each.key[0], each.key[2]) for each in render(values, namespace=namespace)}

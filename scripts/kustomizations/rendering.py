"""The manifests for kubectl and kustomize, as the chart renders them: base, components, overlays, remove-state.

The base is the chart with its default values. A component or an overlay is the difference that some values make: new
objects are files of their own, and changed objects are patches.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.chart.helm import CHART, Document, Values, render

from kustomizations.patches import patch_between

HEADER = "# Generated from deploy/chart/gkm by `make manifests`; do not edit.\n"
ABOUT_BASE = "kubectl apply --server-side -f crds && kubectl apply --server-side -k deploy/base"
FIRST = ("namespace.yaml", "config.yaml")
WIDTH = 120


@dataclass(frozen=True)
class Component:
    """A directory of components: the values that it stands for, and the components that come before it.

    It `needs` some of these; without the others it stands alone.
    """

    name: str
    about: str
    values: Values
    after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Overlay:
    """A directory of overlays, for a values file beside the chart's."""

    name: str
    about: str

    @property
    def values_file(self) -> Path:
        """Return the path of the values file."""
        return CHART / f"values-{self.name}.yaml"


@dataclass(frozen=True)
class Removal:
    """The DaemonSet that cleans nodes, in a directory of its own: no patch removes the DaemonSets before it."""

    source: str = "remove-state.yaml"
    about: str = """\
Removes what GKM has on the nodes, after the DaemonSets gkm-agent and gkm-csi are deleted (docs/reference/chart.md):
kubectl apply --server-side -k deploy/remove-state"""


REMOVAL = Removal()


@dataclass(frozen=True)
class Difference:
    """What values change: objects that they add, and patches of kustomize."""

    added: Sequence[Document]
    patches: Sequence[Mapping[str, Any]] = field(default_factory=list)


def write(target: Path, components: Sequence[Component], overlays: Sequence[Overlay]) -> None:
    """Write every file into a directory, which has nothing else then. A run that fails leaves what was there."""
    files = generated(components, overlays)
    new = target.with_name(f".{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    for path, text in files.items():
        (new / path).parent.mkdir(parents=True, exist_ok=True)
        (new / path).write_text(text, encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    new.replace(target)


def generated(components: Sequence[Component], overlays: Sequence[Overlay]) -> dict[Path, str]:
    """Return every file, by its path below the directory."""
    base = render()
    found = _directory(Path("base"), _kustomization(ABOUT_BASE), base)
    found |= {Path("install.yaml"): _whole(found)}
    for component in components:
        before = render(merged(other.values for other in components if other.name in component.after))
        values = merged(other.values for other in components if other.name in (*component.after, component.name))
        found |= _component(component, difference(before, render(values)))
    for overlay in overlays:
        change = difference(base, render(files=[overlay.values_file]))
        head = _kustomization(overlay.about, resources=["../../base"])
        found |= _directory(Path("overlays", overlay.name), head, change.added, change.patches)
    removal = [each for each in render({"removeState": True}) if each.source == REMOVAL.source]
    return found | _directory(Path("remove-state"), _kustomization(REMOVAL.about), removal)


def _whole(base: Mapping[Path, str]) -> str:
    """Return the kinds and the base as one file, in the order in which kubectl can apply it."""
    kinds = [path.read_text(encoding="utf-8") for path in sorted((CHART / "crds").glob("*.yaml"))]
    listed = yaml.load(base[Path("base", "kustomization.yaml")], yaml.CSafeLoader)["resources"]
    return "---\n".join([*kinds, *(base[Path("base", name)] for name in listed)])


def merged(values: Iterable[Values]) -> dict[str, Any]:
    """Return several values as one, mappings merged."""
    found: dict[str, Any] = {}
    for each in values:
        for key, value in each.items():
            nested = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = merged((found[key], value)) if nested else value
    return found


def difference(old: Sequence[Document], new: Sequence[Document]) -> Difference:
    """Return what turns one rendering into another.

    Raises:
        ValueError: an object would have to go, which no patch of ours does.
    """
    before = {each.key: each.value for each in old}
    if gone := before.keys() - {each.key for each in new}:
        raise ValueError(f"a component cannot remove {sorted(gone)}: render it without rules instead")
    patches: list[Mapping[str, Any]] = []
    for each in new:
        value = each.value
        if each.key not in before or before[each.key] == value:
            continue
        patch, target = patch_between(before[each.key], value), _target(value)
        if patch.merge:
            identity = {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": {"name": each.key[2]}}
            patches.append({"target": target, "patch": _yaml(merged((identity, patch.merge)))})
        if patch.operations:
            patches.append({"target": target, "patch": _yaml(patch.operations)})
    return Difference([each for each in new if each.key not in before], patches)


def _target(value: Mapping[str, Any]) -> dict[str, str]:
    """Return which object a patch is for; where it does not exist, kustomize skips the patch."""
    group, _, version = value["apiVersion"].rpartition("/")
    found = {"group": group, "version": version, "kind": value["kind"], "name": value["metadata"]["name"]}
    return {key: text for key, text in found.items() if text}


def _component(component: Component, change: Difference) -> dict[Path, str]:
    usage = f"resources: [<gkm>/deploy/base]\ncomponents: [<gkm>/deploy/components/{component.name}]"
    head = _kustomization(f"{component.about}\n{usage}", component=True)
    return _directory(Path("components", component.name), head, change.added, change.patches)


def _directory(
    directory: Path, head: str, documents: Sequence[Document], patches: Sequence[Mapping[str, Any]] = ()
) -> dict[Path, str]:
    """Return the files of a directory: one for each template, and the kustomization, whose beginning is given."""
    texts: dict[str, str] = {}
    for each in documents:
        name = Path(each.source).name
        texts[name] = f"{texts[name]}---\n{each.text}" if name in texts else HEADER + each.text
    names = sorted(texts, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    found = {directory / name: text for name, text in texts.items()}
    if names:
        listed = "".join(f"  - {name}\n" for name in names)
        head += listed if head.endswith("  - ../../base\n") else f"resources:\n{listed}"
    if patches:
        head += _yaml({"patches": list(patches)})
    return found | {directory / "kustomization.yaml": head}


def _kustomization(about: str, *, component: bool = False, resources: Sequence[str] = ()) -> str:
    kind, version = ("Component", "v1alpha1") if component else ("Kustomization", "v1beta1")
    comment = "".join(f"# {line}\n" for line in about.splitlines())
    found = f"{HEADER}{comment}apiVersion: kustomize.config.k8s.io/{version}\nkind: {kind}\n"
    return found + ("resources:\n" + "".join(f"  - {each}\n" for each in resources) if resources else "")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, repeats instead of naming anchors, and indents lists as people do."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _yaml(value: object) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=WIDTH)

"""GroupTemplates, Pools and a TaskGroup from files, with the values that the API server would add."""

from collections.abc import Iterable
from pathlib import Path

from gkm.api.grammar import count_of
from gkm.api.task_groups import GroupTemplate, Pool, TaskGroup
from gkm.templates.groups import MAX_NAME, SAMPLE_GROUP
from gkm.templates.pools import PoolTemplate
from msgspec.structs import replace

from gkm_cli.inputs import files
from gkm_cli.inputs.kinds import LABEL_HINT, T, converted, found_in, invalid_labels
from gkm_cli.output import UsageError

MAX_BYTES = 4 << 20
MAX_VALUES = 1 << 18
"""In one file, aliases counted each time. YAML takes up to a kilobyte for a value: 256 MiB at most."""
MAX_GROUP_NAME = 63
NAMESPACE = "default"


def read_templates(paths: Iterable[Path]) -> dict[str, PoolTemplate]:
    """Return the GroupTemplates in files by their names; raises OSError and UsageError."""
    found: dict[str, PoolTemplate] = {}
    for template in (each for path in paths for each in _read(path, GroupTemplate)):
        if template.metadata.name in found:
            raise UsageError(f"two GroupTemplates have the name {template.metadata.name}", "give every template once")
        found[template.metadata.name] = PoolTemplate.of(template)
    return found


def read_pools(path: Path) -> list[Pool]:
    """Return the Pools in a file; raises OSError and UsageError."""
    return _read(path, Pool)


def read_group(path: Path) -> TaskGroup:
    """Return the TaskGroup in a file, in a namespace and with a uid; raises OSError and UsageError."""
    found = _read(path, TaskGroup)
    if len(found) > 1:
        raise UsageError(f"--group {files.name(path)} holds {count_of(len(found), 'TaskGroup')}", "give one of them")
    group, where = found[0], files.name(path)
    names = [task.name for task in group.spec.tasks]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{where}: spec.tasks: two tasks have the name {twice}", "rename one of them")
    if fault := next(invalid_labels("spec.workflow.labels", group.spec.workflow.labels), None):
        raise UsageError(f"{where}: {fault}", LABEL_HINT)
    metadata = group.metadata
    uid = metadata.uid or SAMPLE_GROUP.metadata.uid
    return replace(group, metadata=replace(metadata, namespace=metadata.namespace or NAMESPACE, uid=uid))


def _read(path: Path, kind: type[T]) -> list[T]:
    max_name = MAX_GROUP_NAME if kind is TaskGroup else MAX_NAME
    found = found_in(path, kind.__name__, MAX_BYTES, max_values=MAX_VALUES, mixed=True)
    return [converted(each, kind, max_name) for each in found]

"""Groups of options as dataclasses: a command takes one value for each group, and its user sees the single options."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer that has, in the place of each parameter of a dataclass, the fields as options."""
    declared = signature(command)
    kinds = {name: parameter.annotation for name, parameter in declared.parameters.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}

    @wraps(command)
    def expanded(**values: object) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    options: list[Parameter] = []
    for name, parameter in declared.parameters.items():
        options += signature(groups[name]).parameters.values() if name in groups else [parameter]
    expanded.__signature__ = declared.replace(parameters=options)  # type: ignore[attr-defined]
    return expanded

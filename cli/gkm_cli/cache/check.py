"""`gkm cache check`: match an image with GPUs, and explain each mismatch."""

from collections.abc import Sequence
from typing import Any

import msgspec
from gkm.gpus import preflight
from gkm.gpus.preflight import MAX_MESSAGE, Preflight
from gkm.gpus.values import printable

from gkm_cli.cache.machines import GPUOption, GPUsOption, machines
from gkm_cli.output import NegativeResult, Output, OutputOption, line, show, table
from gkm_cli.registries import RefArgument, RegistryAccess


def check(
    reference: RefArgument,
    *,
    gpu: GPUOption = "",
    gpus: GPUsOption = None,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which GPUs can use an image, and why others cannot; exit 3 if no GPU can."""
    nodes = machines(gpu, gpus)
    _, image = access.described(reference)
    verdicts = [(node.name, preflight.check(image.targets, node.gpus)) for node in nodes]
    show(_result(verdicts), output, lambda: _print_result(verdicts))
    if not any(verdict.fits for _, verdict in verdicts):
        raise NegativeResult


def _result(verdicts: Sequence[tuple[str, Preflight]]) -> dict[str, object]:
    """Return the verdicts for programs; with several machines, each group names its machine."""
    several = len(verdicts) > 1
    fits = any(verdict.fits for _, verdict in verdicts)
    messages = [f"node {name}: {verdict.message}" if several else verdict.message for name, verdict in verdicts]
    return {
        "compatibleGPUs": [_group(name, group, several) for name, verdict in verdicts for group in verdict.compatible],
        "incompatibleGPUs": [
            _group(name, group, several) for name, verdict in verdicts for group in verdict.incompatible
        ],
        "message": "" if several and fits else printable("; ".join(messages), MAX_MESSAGE),
    }


def _group(name: str, group: object, several: bool) -> dict[str, Any]:  # noqa: FBT001 -- private
    built = dict(msgspec.to_builtins(group))
    return {"node": name, **built} if several else built


def _print_result(verdicts: Sequence[tuple[str, Preflight]]) -> None:
    rows: list[tuple[str, ...]] = []
    for name, verdict in verdicts:
        rows += [(name, _ids(group.ids), "yes", "") for group in verdict.compatible]
        rows += [(name, _ids(group.ids), group.reason, group.message) for group in verdict.incompatible]
        if len(verdicts) > 1 and not (verdict.compatible or verdict.incompatible):
            rows.append((name, "", str(verdict.reason), verdict.message))
    if len(verdicts) > 1:
        table(("node", "gpus", "fits", "message"), [(printable(row[0]), *row[1:]) for row in rows])
    elif rows:
        table(("gpus", "fits", "message"), [row[1:] for row in rows])
    else:
        line(f"no: {verdicts[0][1].message}")


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))

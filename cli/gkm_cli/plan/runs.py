"""Runs from files, validated as by the API server: misspelt fields and values out of bounds are errors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from gkm.api.runs import MAX_NAME, Run, RunSpec
from gkm.packing import conversion
from gkm.packing.values import Policy, Request
from gkm.topology.eligibility import NodeDemand

from gkm_cli.inputs.kinds import LABEL_HINT, converted, found_in, invalid_labels
from gkm_cli.inputs.objects import ParsedObject
from gkm_cli.output import UsageError

MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """A validated run. `namespace` is empty if the manifest has none."""

    name: str
    namespace: str
    spec: RunSpec
    demand: NodeDemand
    request: Request

    @property
    def qualified_name(self) -> str:
        """Return namespace/name, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def read(paths: Iterable[Path], default: str, override: Policy | None) -> ParsedRun:
    """Return the run in files. The policy `default` applies if it names none, `override` whatever it names.

    Raises:
        OSError: a file cannot be read.
        UsageError: an object is invalid, or there are several; the message names file, object and problem.
    """
    run, *others = [parse(found, default, override) for path in paths for found in found_in(path, "Run", MAX_BYTES)]
    if others:
        names = f"{run.qualified_name}, {others[0].qualified_name}"
        raise UsageError(f"--run gives {1 + len(others)} runs ({names}), and a plan is of one run", "give one of them")
    return run


def parse(found: ParsedObject, default: str, override: Policy | None) -> ParsedRun:
    """Return a run as a typed value; policies as for `read`.

    Raises:
        UsageError: it is invalid; the message says where and why.
    """
    run, where = converted(found, Run, MAX_NAME), found.where
    if override:
        run = msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, policy=override.value))
    try:
        request, demand = conversion.request(run.spec, run.spec.policy or default), conversion.demand(run.spec)
    except ValueError as error:
        raise UsageError(f"{where}: {error}", "correct its spec") from error
    if fault := next(_label_faults(run.spec), None):
        raise UsageError(f"{where}: {fault}", LABEL_HINT)
    malleable = run.spec.malleability
    if malleable and malleable.min_gpus > run.spec.gpus:
        raise UsageError(f"{where}: spec.malleability.minGPUs is more than spec.gpus", "correct its spec")
    return ParsedRun(run.metadata.name, run.metadata.namespace, run.spec, demand, request)


def _label_faults(spec: RunSpec) -> Iterator[str]:
    """Yield a message for each invalid label."""
    yield from invalid_labels("spec.labels", spec.labels)
    yield from invalid_labels("spec.selector.labels", spec.selector.labels)
    for number, scope in enumerate(spec.scopes):
        yield from invalid_labels(f"spec.scopes[{number}].selector.labels", scope.selector.labels)

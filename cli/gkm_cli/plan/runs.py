"""Runs from files, validated as by the API server: misspelt fields, values out of bounds and duplicates are errors."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import msgspec
from gkm.api.runs import LABEL_KEY, LABEL_VALUE, MAX_NAME, Run, RunSpec
from gkm.packing import asked
from gkm.packing.batches.values import MAX_RUNS
from gkm.packing.values import Policy, Request
from gkm.topology.eligibility import Demand

from gkm_cli.output import UsageError
from gkm_cli.plan import files, schema
from gkm_cli.plan.objects import ObjectsUnreadable, ParsedObject, objects

MAX_BYTES = 16 << 20
MAX_NAMESPACE = 63
# The rule of gkm.api.runs.Labels, which only the API server can evaluate.
_KEY, _VALUE = re.compile(LABEL_KEY), re.compile(LABEL_VALUE)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HINT = "give manifests of Runs (gkm.io/v1alpha1), or the output of `kubectl get runs -o json`"


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """A validated run. `namespace` is empty if the manifest has none."""

    name: str
    namespace: str
    spec: RunSpec
    demand: Demand
    request: Request

    @property
    def qualified_name(self) -> str:
        """Return namespace/name, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def read(paths: Iterable[Path], default: str, override: Policy | None) -> tuple[ParsedRun, ...]:
    """Return the runs in files. The policy `default` applies to runs that name none, `override` to all.

    Raises:
        OSError: a file cannot be read.
        UsageError: an object is invalid; the message names file, object and problem.
    """
    runs: list[ParsedRun] = []
    for path in paths:
        text = files.read_all(path, MAX_BYTES)
        try:
            found = objects(text, "Run")
        except ObjectsUnreadable as error:
            raise UsageError(f"{files.name(path)}: {error}", _HINT) from error
        runs += [_parse_run(one, one.describe(files.name(path)), default, override) for one in found]
    if len(runs) > MAX_RUNS:
        raise UsageError(f"these are {len(runs)} runs", f"give at most {MAX_RUNS} at once")
    _check_distinct(runs)
    return tuple(runs)


def _check_distinct(runs: Iterable[ParsedRun]) -> None:
    names: set[str] = set()
    for run in runs:
        if run.qualified_name in names:
            raise UsageError(f"two runs have the name {run.qualified_name}", "give every run once")
        names.add(run.qualified_name)


def _parse_run(found: ParsedObject, where: str, default: str, override: Policy | None) -> ParsedRun:
    if path := next(schema.unknown_fields(found.value, schema.of_runs()), None):
        raise UsageError(f"{where}: a Run has no field {ascii(path[:200])[1:-1]}", _suggestion(path))
    try:
        run = msgspec.convert(found.value, type=Run)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"{where}: {ascii(str(error)[:300])[1:-1]}", "correct it") from error
    name, namespace = run.metadata.name, run.metadata.namespace
    if not (_NAME.fullmatch(name) and len(name) <= MAX_NAME):
        raise UsageError(
            f"{where}: metadata.name {name[:80]!a} is not a valid name",
            f"use up to {MAX_NAME} lower case letters, digits, '-' and '.'",
        )
    if namespace and not (_NAME.fullmatch(namespace) and len(namespace) <= MAX_NAMESPACE):
        raise UsageError(f"{where}: metadata.namespace {namespace[:80]!a} is not a valid name", "correct it")
    if override:
        run = msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, policy=override.value))
    try:
        request, demand = asked.request(run.spec, default), asked.demand(run.spec)
    except ValueError as error:
        raise UsageError(f"{where}: {error}", "correct its spec") from error
    if fault := next(_label_faults(run.spec), None):
        raise UsageError(f"{where}: {fault}", "a key or value has up to 63 letters, digits, '-', '_' and '.'")
    malleable = run.spec.malleability
    if malleable and malleable.min_gpus > run.spec.gpus:
        raise UsageError(f"{where}: spec.malleability.minGPUs is more than spec.gpus", "correct its spec")
    return ParsedRun(name, namespace, run.spec, demand, request)


def _label_faults(spec: RunSpec) -> Iterator[str]:
    """Yield a message for each invalid label."""
    yield from _invalid_labels("spec.labels", spec.labels)
    yield from _invalid_labels("spec.selector.labels", spec.selector.labels)
    for number, scope in enumerate(spec.scopes):
        yield from _invalid_labels(f"spec.scopes[{number}].selector.labels", scope.selector.labels)


def _invalid_labels(path: str, labels: Mapping[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            yield f"{path}: {key[:80]!a}: {value!a} is not a valid label"


def _suggestion(path: str) -> str:
    """Return the field that an unknown field may stand for, or all fields."""
    *above, field = re.sub(r"\[[0-9]+\]", ".", path).split(".")
    here = schema.of_runs()
    for part in above:
        here = here.get("items", here) if not part else here.get("properties", {}).get(part, here)
    fields = sorted(here.get("properties", {}))
    close = get_close_matches(field, fields, n=1)
    return f"{close[0]} may be meant" if close else f"it has {', '.join(fields)}"

"""Runs out of files, read as the API server would: what is misspelt, out of bounds or named twice is refused."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import msgspec
from gkm.api.runs import MAX_NAME, Run, RunSpec
from gkm.packing import asked
from gkm.packing.batches.values import MAX_RUNS
from gkm.packing.values import Policy, Request
from gkm.topology.eligibility import Demand

from gkm_cli.answers import WrongUsage
from gkm_cli.plan import files, run_labels, schema
from gkm_cli.plan.objects import Found, ObjectsUnreadable, objects

MAX_BYTES = 16 << 20
MAX_NAMESPACE = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HINT = "give manifests of Runs (gkm.io/v1alpha1), or what `kubectl get runs -o json` prints"


@dataclass(frozen=True, slots=True)
class Asked:
    """A run as it is planned. `namespace` is empty where the manifest has none."""

    name: str
    namespace: str
    spec: RunSpec
    demand: Demand
    request: Request

    @property
    def called(self) -> str:
        """Return namespace/name, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def read(paths: Iterable[Path], policy: str, *, overrides: bool) -> tuple[Asked, ...]:
    """Return the runs in files. `policy` is for those that name none; with `overrides`, for all.

    Raises:
        OSError: a file cannot be read.
        WrongUsage: which file and object, and what is wrong with it.
    """
    runs: list[Asked] = []
    for path in paths:
        text = files.whole(path, MAX_BYTES)
        try:
            found = objects(text, "Run")
        except ObjectsUnreadable as error:
            raise WrongUsage(f"{files.name(path)}: {error}", _HINT) from error
        runs += [_asked(one, one.called(files.name(path)), policy, overrides=overrides) for one in found]
    if len(runs) > MAX_RUNS:
        raise WrongUsage(f"these are {len(runs)} runs", f"give at most {MAX_RUNS} at once")
    _distinct(runs)
    return tuple(runs)


def _distinct(runs: Iterable[Asked]) -> None:
    seen: set[str] = set()
    for run in runs:
        if run.called in seen:
            raise WrongUsage(f"two runs are called {run.called}", "give every run once")
        seen.add(run.called)


def _asked(found: Found, where: str, policy: str, *, overrides: bool) -> Asked:
    known = schema.of("Run")
    if path := next(schema.unknown(found.value, known), None):
        raise WrongUsage(f"{where}: a Run has no field {ascii(path[:200])[1:-1]}", _meant(path))
    try:
        run = msgspec.convert(found.value, type=Run)
    except (msgspec.ValidationError, RecursionError) as error:
        raise WrongUsage(f"{where}: {ascii(str(error)[:300])[1:-1]}", "correct it") from error
    name, namespace = run.metadata.name, run.metadata.namespace
    if not (_NAME.fullmatch(name) and len(name) <= MAX_NAME):
        raise WrongUsage(
            f"{where}: metadata.name {name[:80]!a} names no Run",
            f"give it one of up to {MAX_NAME} lower case letters, digits, '-' and '.'",
        )
    if namespace and not (_NAME.fullmatch(namespace) and len(namespace) <= MAX_NAMESPACE):
        raise WrongUsage(f"{where}: metadata.namespace {namespace[:80]!a} is none", "correct it")
    if overrides:
        run = msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, policy=Policy(policy).value))
    try:
        request, demand = asked.request(run.spec, policy), asked.demand(run.spec)
    except ValueError as error:
        raise WrongUsage(f"{where}: {error}", "correct its spec") from error
    if fault := next(run_labels.faults(run.spec), None):
        raise WrongUsage(f"{where}: {fault}", "a key or value has up to 63 letters, digits, '-', '_' and '.'")
    malleable = run.spec.malleability
    if malleable and malleable.min_gpus > run.spec.gpus:
        raise WrongUsage(f"{where}: spec.malleability.minGPUs is more than spec.gpus", "correct its spec")
    return Asked(name, namespace, run.spec, demand, request)


def _meant(path: str) -> str:
    """Return what to type instead of a field that is not there."""
    *above, field = re.sub(r"\[[0-9]+\]", ".", path).split(".")
    here = schema.of("Run")
    for part in above:
        here = here.get("items", here) if not part else here.get("properties", {}).get(part, here)
    fields = sorted(here.get("properties", {}))
    close = get_close_matches(field, fields, n=1)
    return f"{close[0]} may be meant" if close else f"it has {', '.join(fields)}"

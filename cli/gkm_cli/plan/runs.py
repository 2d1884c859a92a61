"""Runs from files and from flags, validated as by the API server.

Misspelt fields and values out of bounds are errors. A run from flags becomes the manifest that a file would have, so it
is checked in the same way. Pure, but for the reading.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
from gkm.api.grammar import listed
from gkm.api.meta import API_VERSION
from gkm.api.runs import MAX_NAME, Run, RunSpec
from gkm.packing import conversion
from gkm.packing.values import Policy, Request
from gkm.topology.eligibility import NodeDemand
from gkm.topology.labels import flavor

from gkm_cli.inputs.gpu_names import flavors_named
from gkm_cli.inputs.kinds import LABEL_HINT, converted, found_in, invalid_labels
from gkm_cli.inputs.objects import ParsedObject
from gkm_cli.output import UsageError
from gkm_cli.plan.options import RunFlags

MAX_BYTES = 16 << 20
Json = dict[str, Any]
NAME = "run"
MAX_FLAVORS = 8
"""Flavors that a message names."""
_FIELDS = {"gpus": "gpus", "pod": "gpusPerPod", "group": "groupGPUs", "spares": "spares"}
_MALLEABILITY = {"step_gpus": "stepGPUs", "min_gpus": "minGPUs"}
_REQUESTS = ("cpu", "memory")
_LEVELS = ("within", "apart")
_PLACES = ("region", "cluster")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """A validated run from a file or flags. `namespace` is empty if the manifest has no namespace."""

    name: str
    namespace: str
    spec: RunSpec
    demand: NodeDemand
    request: Request

    @property
    def qualified_name(self) -> str:
        """Return namespace/name of the run, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def with_default(self, policy: str) -> "ParsedRun":
        """Return the run with another policy where it has none: a cluster's default is known after the run."""
        return replace(self, request=conversion.request(self.spec, self.spec.policy or policy))


def read(paths: Iterable[Path], default: str, override: Policy | None) -> ParsedRun:
    """Return the only run in files. The policy `default` applies to a run without one, `override` to every run.

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
    """Return an object of a file as a validated run; policies as for `read`.

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


def check(flags: RunFlags, *, with_files: bool) -> None:
    """Refuse flags that describe no run, or a run beside a file's run.

    Raises:
        UsageError: --total-gpus is missing, or --run is given too.
    """
    given = [field.name for field in fields(flags) if getattr(flags, field.name) not in (None, False)]
    if flags.gpus is None and given:
        option = "scope" if given[0] == "scopes" else given[0].replace("_", "-")
        raise UsageError(f"--{option} describes a run without --total-gpus", "add it")
    if flags.gpus is not None and with_files:
        raise UsageError("--run and --total-gpus both give a run", "give one of them")
    if flags.gpus is None and not with_files:
        raise UsageError("no run is given", "name the file of a Run with --run, or describe one with --total-gpus")


def manifest(flags: RunFlags, node_gpus: Mapping[str, int]) -> ParsedObject:
    """Return the Run that flags describe; `node_gpus` are the GPUs of a node by flavor.

    A pod takes a whole node by default, or the whole group if that is smaller.

    Raises:
        UsageError: a selector or scope cannot be read, or the nodes do not have exactly one flavor and no flavor is
        given.
    """
    spec: Json = {"flavor": _flavor(flags.flavor, node_gpus)}
    if gpus := node_gpus.get(flavor(spec["flavor"])):
        spec["gpusPerPod"] = min(gpus, max(1, flags.group or flags.gpus or gpus))
    spec |= {key: value for name, key in _FIELDS.items() if (value := getattr(flags, name)) is not None}
    if malleability := {key: found for name, key in _MALLEABILITY.items() if (found := getattr(flags, name))}:
        spec["malleability"] = malleability
    if requests := {name: value for name in _REQUESTS if (value := getattr(flags, name)) is not None}:
        spec["requests"] = requests
    if flags.selector is not None:
        spec["selector"] = _selector("--selector", flags.selector)
    if flags.scopes:
        spec["scopes"] = [_scope(text) for text in flags.scopes]
    spec |= {name: value.value for name in _LEVELS if (value := getattr(flags, name)) is not None}
    if flags.balanced:
        spec["balanced"] = True
    if flags.per_area:
        spec["perArea"] = [_area_rule(text) for text in flags.per_area]
    name = NAME if flags.name is None else flags.name
    return ParsedObject(
        "the options", {"apiVersion": API_VERSION, "kind": "Run", "metadata": {"name": name}, "spec": spec}
    )


def _flavor(text: str | None, flavors: Collection[str]) -> str:
    """Return the flavor of nodes that a text means: theirs, or a name of a GPU."""
    if not text:
        return _only(flavors)
    if flavor(text) in flavors:
        return text
    found = flavors_named(text, flavors)
    if len(found) > 1:
        raise UsageError(f"{text} means {len(found)} flavors: {listed(found, MAX_FLAVORS)}", "give one of them")
    if ":" in text and not found:
        known = listed(sorted(flavors), MAX_FLAVORS) or "no flavor"
        raise UsageError(f"no node has a flavor that names {text}: the nodes have {known}", "choose one with --flavor")
    return found[0] if found else text


def _only(flavors: Collection[str]) -> str:
    found = sorted(flavors)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError("no node has GPUs and a label with their flavor", "give --flavor; gkm topology check helps")
    names = listed(found, MAX_FLAVORS)
    raise UsageError(f"the nodes have GPUs of {len(found)} flavors: {names}", "choose one with --flavor")


def _scope(text: str) -> Json:
    head, _, rest = text.partition(",")
    name, separator, gpus = head.partition("=")
    if not (separator and _NUMBER.fullmatch(gpus)):
        raise UsageError(f"--scope {text[:80]!a} has no number of GPUs", "give it as NAME=GPUS, or NAME=GPUS,region=eu")
    scope: Json = {"name": name, "maxGPUs": int(gpus)}
    return scope | ({"selector": _selector("--scope", rest)} if rest else {})


def _area_rule(text: str) -> Json:
    level, _, rest = text.partition(",")
    numbers = list(_pairs("--per-area", rest)) if rest else []
    if not numbers or any(_NUMBER.fullmatch(number) is None for _, number in numbers):
        raise UsageError(f"--per-area {text[:80]!a} has no numbers", "give it as LEVEL,KEY=NUMBER: rack,maxNodes=16")
    if len(dict(numbers)) < len(numbers):
        raise UsageError(f"--per-area {text[:80]!a} has a key twice", "give each key once")
    return {"level": level, **{key: int(number) for key, number in numbers}}


def _selector(option: str, text: str) -> Json:
    pairs = list(_pairs(option, text))
    found: Json = {key: value for key, value in pairs if key in _PLACES}
    labels = {key: value for key, value in pairs if key not in _PLACES}
    if len(found) + len(labels) < len(pairs):
        raise UsageError(f"{option} {text[:80]!a} has a key twice", "give each key once")
    return found | ({"labels": labels} if labels else {})


def _pairs(option: str, text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        key, separator, value = part.strip().partition("=")
        if not (key and separator):
            raise UsageError(f"{option}: {part[:80]!a} is not KEY=VALUE", "separate several by commas")
        yield key, value

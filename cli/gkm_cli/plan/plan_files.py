"""Plans from files: a PlacementPlan, or the output of `gkm plan -o json`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from gkm.api.grammar import count_of
from gkm.api.plans import PlanSpec
from gkm.packing.conversion import PlanUnreadable, groups_of
from gkm.packing.values import FormerPlan

from gkm_cli.inputs import files
from gkm_cli.inputs.objects import ObjectsUnreadable, objects, single_mapping
from gkm_cli.output import UsageError

MAX_BYTES = 64 << 20
_HINT = "give a PlacementPlan (kubectl get placementplan NAME -o json), or the output of `gkm plan -o json` for one run"


def read(path: Path) -> FormerPlan:
    """Return the present plan of a run from the file of --standing.

    Raises:
        OSError: the file cannot be read.
        UsageError: the file holds no plan, several plans, or an invalid one.
    """
    where = f"--standing {files.name(path)}"
    with readable(where):
        return FormerPlan(groups_of(read_spec(path, where)))


def read_spec(path: Path, where: str) -> PlanSpec:
    """Return the spec of the PlacementPlan in a file; `where` names the file in messages.

    Raises:
        OSError, UsageError: as `read`.
    """
    text = files.read_all(path, MAX_BYTES)
    with readable(where):
        return msgspec.convert(_spec(text), type=PlanSpec)


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Raise a UsageError if the block fails on an invalid plan; `where` names its file."""
    try:
        yield
    except (ObjectsUnreadable, PlanUnreadable, msgspec.ValidationError, ValueError, RecursionError) as error:
        problem = ascii(" ".join(str(error).split())[:300])[1:-1]
        raise UsageError(f"{where}: {problem}", _HINT) from error


def _spec(text: bytes) -> Any:  # noqa: ANN401 -- the caller converts it
    spec = single_mapping(text)
    if spec is not None:
        return spec
    found = objects(text, "PlacementPlan")
    if len(found) > 1:
        raise ObjectsUnreadable(f"it holds {count_of(len(found), 'plan')}, one is needed")
    return found[0].value.get("spec")

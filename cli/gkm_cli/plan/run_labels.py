"""Labels in a Run that can be none: the API server refuses them, and a selector with one would select nothing. Pure."""

import re
from collections.abc import Iterator, Mapping

from gkm.api.runs import LABEL_KEY, LABEL_VALUE, RunSpec

# The rule of gkm.api.runs.Labels, which only the API server can evaluate.
_KEY, _VALUE = re.compile(LABEL_KEY), re.compile(LABEL_VALUE)


def faults(spec: RunSpec) -> Iterator[str]:
    """Yield a sentence for each label that is none."""
    yield from _in("spec.labels", spec.labels)
    yield from _in("spec.selector.labels", spec.selector.labels)
    for number, scope in enumerate(spec.scopes):
        yield from _in(f"spec.scopes[{number}].selector.labels", scope.selector.labels)


def _in(path: str, labels: Mapping[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            yield f"{path}: {key[:80]!a}: {value!a} is no label"

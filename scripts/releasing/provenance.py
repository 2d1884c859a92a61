"""How an image was made: an in-toto statement with SLSA's predicate, version 1. Pure.

Source: in-toto Statement v1; slsa.dev, "Provenance", version 1.0.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://gkm.io/release/v1"
"""docs/reference/release.md describes its parameters."""
LOCAL_BUILDER = "https://gkm.io/release/local"
Json = dict[str, Any]
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Build:
    """What went into the images of one process, and who built them; times as RFC 3339."""

    version: str
    dockerfile: str
    source: str
    revision: str
    base: str
    started: str
    finished: str
    builder: str = LOCAL_BUILDER
    invocation: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Path to SHA-256 of the files that pin everything else."""


def of_base(name: str) -> Json:
    """Return the dependency of a base image."""
    base, _, digest = name.partition("@sha256:")
    return {"uri": f"pkg:docker/{base.replace(':', '@', 1)}", **({"digest": {"sha256": digest}} if digest else {})}


def problems(statement: Json, base: str) -> Iterator[str]:
    """Yield why a statement is of a trial: what was built is no commit, or not of the base image `base`."""
    definition = statement["predicate"]["buildDefinition"]
    if not _COMMIT.fullmatch(definition["externalParameters"]["revision"]):
        yield f"it is of {definition['externalParameters']['revision']!r}, which is no commit"
    if of_base(base) not in definition["resolvedDependencies"]:
        yield f"its base is another one than {base}"


def statement(subjects: Mapping[str, str], build: Build) -> Json:
    """Return the statement about subjects: name to `sha256:` digest."""
    dependencies: list[Json] = [
        {"uri": f"git+{build.source}" if build.source else "git", "digest": {"gitCommit": build.revision}},
        of_base(build.base),
        *({"uri": f"file:{path}", "digest": {"sha256": value}} for path, value in sorted(build.inputs.items())),
    ]
    metadata = {"startedOn": build.started, "finishedOn": build.finished}
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": value.removeprefix("sha256:")}} for name, value in subjects.items()
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": build.version, "source": build.source, "revision": build.revision},
                "internalParameters": {"dockerfile": build.dockerfile},
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": build.builder},
                "metadata": metadata | ({"invocationId": build.invocation} if build.invocation else {}),
            },
        },
    }

"""Whatever a stolen node writes as captures ends as a refusal: no exception, no write outside of the namespace."""

import re
import string

from gkm.api.nodes import MAX_CAPTURED_IMAGES, CapturedImage
from gkm.images.captured.statement import CLOCK_SKEW
from gkm.images.reference import Reference
from gkm_operator.caches.node_reports import ReportedCapture, ReportStatus
from gkm_operator.captures.objects import MAX_ANNOUNCEMENTS, Generation, cache_object, merged_announcements
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.operator.captures import NAMESPACE, NOW, REGISTRY, captured, digest, of_family

HONEST, FAMILY = captured(), of_family(2, base=1)
FIELDS = (
    "name",
    "image",
    "runtime",
    "version",
    "backend",
    "arch",
    "driver",
    "content_digest",
    "family",
    "base",
    "time",
)
PIECES = st.sampled_from(
    [
        "",
        "..",
        "/",
        "@",
        ":",
        "\n",
        "\0",
        "-",
        "_",
        "triton",
        "vllm",
        NAMESPACE,
        "others",
        REGISTRY,
        "llama",
        digest(1),
        FAMILY.name,
        "sha256:",
        "a" * 600,
    ]
    + [str(getattr(HONEST, field)) for field in FIELDS]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=4).map("".join), st.text(max_size=80), st.text(string.printable))
MADE_UP = st.fixed_dictionaries(
    {},
    optional={
        field: TEXTS if field not in ("content_digest", "base", "time") else st.none() | TEXTS for field in FIELDS
    },
)


def reported(like: CapturedImage = HONEST, **changes: object) -> ReportedCapture:
    values = {field: getattr(like, field) for field in FIELDS} | {"state": "Announced"} | changes
    return ReportedCapture(**values)


@settings(max_examples=examples(200))
@given(st.lists(MADE_UP, max_size=8), st.sampled_from([HONEST, FAMILY]))
def test_made_up_announcements_are_refused_or_name_images_of_the_namespace(
    changes: list[dict[str, object]], like: CapturedImage
) -> None:
    found, faults = merged_announcements(
        NAMESPACE, [("stolen", reported(like, **each)) for each in changes], REGISTRY, NOW
    )
    assert len(faults) <= 1
    for each in found:
        ref = Reference.parse(each.image)
        assert ref.name == f"{REGISTRY}/{NAMESPACE}/{each.hardware.runtime}"
        assert ref.digest is not None
        assert each.time <= NOW + CLOCK_SKEW
        made = cache_object(each, Generation(1, ("1" * 12,)) if each.family else None, cluster=False)
        assert len(each.family) <= 253
        assert set(each.family) <= set(string.ascii_lowercase + string.digits + "-.")
        assert not each.base or re.fullmatch("sha256:[0-9a-f]{64}", each.base)
        assert each.family or not each.base
        assert made["metadata"]["namespace"] == NAMESPACE
        assert made["metadata"]["name"].startswith(f"{each.family[:200]}-" if each.family else "captured-")
        allowed = set(string.ascii_letters + string.digits + "-_.")
        assert all(value[0].isalnum() and value[-1].isalnum() for value in made["metadata"]["labels"].values())
        assert all(len(value) <= 63 and set(value) <= allowed for value in made["metadata"]["labels"].values())


def test_a_node_counts_with_a_few_announcements_and_a_namespace_with_some() -> None:
    many = tuple(reported(name=f"x{number}") for number in range(10_000))
    assert len(ReportStatus(captures=many).captures) == MAX_CAPTURED_IMAGES
    honest = [captured(number) for number in range(1, 2_000)]
    nodes = [
        (f"n-{number}", reported(**{field: getattr(each, field) for field in FIELDS}))
        for number, each in enumerate(honest)
    ]
    found, _ = merged_announcements(NAMESPACE, nodes, REGISTRY, NOW)
    assert len(found) == MAX_ANNOUNCEMENTS

"""Single reads of ResourceClaims: remembered, and limited for each namespace."""

import pytest
from gkm.kube.errors import ApiError
from gkm_operator.computedomains.claims import ABSENT_SECONDS, BURST, FOUND_SECONDS, PER_SECOND, ClaimReader
from support.grove.objects import NAMESPACE
from support.operator.domains import CLAIMS, World, resource_claim

GPUS = ("gpu.nvidia.com",)


class Scene(World):
    """Claims, a clock that stands still, and a reader."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.reader = ClaimReader(self.api, lambda: self.seconds)

    def create(self, name: str) -> None:
        self.api.create(CLAIMS, resource_claim(name, *GPUS))

    def classes(self, name: str) -> tuple[str, ...] | None:
        return self.reader.device_classes(NAMESPACE, name)

    @property
    def reads(self) -> int:
        return len([call for call in self.api.calls if call[:2] == ("get", "resourceclaims")])


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_claim_is_read_once_in_a_minute(scene: Scene) -> None:
    scene.create("gpus")
    for _ in range(10):
        assert scene.classes("gpus") == GPUS
    assert scene.reads == 1
    scene.seconds += FOUND_SECONDS
    scene.api.delete(CLAIMS, "gpus", NAMESPACE)
    assert scene.classes("gpus") is None


def test_a_claim_with_hundreds_of_classes_is_not_remembered(scene: Scene) -> None:
    made = resource_claim("large", *GPUS)
    names = [f"{number:03}".ljust(253, "c") for number in range(32)]
    made["spec"]["devices"]["requests"] = [{"name": "r", "exactly": {"deviceClassName": name}} for name in names]
    scene.api.create(CLAIMS, made)
    assert scene.classes("large") == scene.classes("large") == tuple(names)
    assert scene.reads == 2


def test_an_absent_claim_is_found_soon_after_it_comes(scene: Scene) -> None:
    assert [scene.classes("gpus") for _ in range(10)] == [None] * 10
    assert scene.reads == 1
    scene.create("gpus")
    scene.seconds += ABSENT_SECONDS
    assert scene.classes("gpus") == GPUS


def test_a_namespace_with_thousands_of_claims_reads_some_at_a_time(scene: Scene) -> None:
    for _ in range(3):
        for number in range(3000):
            scene.classes(f"claim-{number}")
    assert scene.reads == BURST
    scene.seconds += 2.0
    for number in range(3000):
        scene.classes(f"more-{number}")
    assert scene.reads == BURST + 2 * PER_SECOND
    assert scene.reader.device_classes("other", "claim") is None
    assert scene.reads == BURST + 2 * PER_SECOND + 1


def test_a_claim_that_cannot_be_read_again_now_is_as_it_was(scene: Scene) -> None:
    scene.create("gpus")
    assert scene.classes("gpus") == GPUS
    scene.seconds += FOUND_SECONDS
    for number in range(BURST + 10):
        scene.classes(f"claim-{number}")
    assert scene.classes("gpus") == GPUS


@pytest.mark.parametrize("name", [".", "..", ""])
def test_a_name_that_no_claim_can_have_is_absent(scene: Scene, name: str) -> None:
    assert scene.classes(name) is None


def test_an_error_that_passes_is_raised_and_not_remembered(scene: Scene) -> None:
    scene.create("gpus")
    scene.api.fault = lambda _verb, _plural: ApiError(503, "", "away")
    with pytest.raises(ApiError, match="503: away"):
        scene.classes("gpus")
    scene.api.fault = lambda _verb, _plural: None
    assert scene.classes("gpus") == GPUS

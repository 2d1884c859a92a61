import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.assembly.versions import DependencyVersions


def test_mcvs_own_keys_are_understood_by_both_names() -> None:
    assert DependencyVersions.parse(["cuda_version=12.9", "ptx_version=84"]) == DependencyVersions.parse(
        ["cuda=12.9", "ptx=84"]
    )


def test_targets_of_other_backends_carry_no_version_of_cuda() -> None:
    versions = DependencyVersions.parse(["cuda=12.9", "ptx=84", "rocm=6.4"])
    assert versions.target("hip", "gfx90a", 64) == {"backend": "hip", "arch": "gfx90a", "warp_size": 64}
    assert versions.labels == {"gkm.io/dependency-version.rocm": "6.4"}


def test_a_stated_version_overrides_the_version_in_the_cache() -> None:
    stated = {"backend": "cuda", "arch": "90", "warp_size": 32, "cuda_version": "13.0"}
    assert DependencyVersions.parse(["cuda=13.0"]).target("cuda", "90", 32, cuda="12.9") == stated
    assert DependencyVersions().target("cuda", "90", 32, cuda="12.9")["cuda_version"] == "12.9"


@pytest.mark.parametrize(
    "pairs",
    [
        ["triton"],
        ["triton="],
        ["=1"],
        ["Triton=1"],
        ["a/b=1"],
        ["triton=1\n"],
        ["triton=" + "1" * 65],
        ["triton=1", "triton=2"],
        ["cuda=1", "cuda_version=1"],
        ["ptx=8.4"],
        ["ptx=0"],
        ["ptx=99999"],
        [f"name{number}=1" for number in range(33)],
    ],
)
def test_an_invalid_version_is_refused(pairs: list[str]) -> None:
    with pytest.raises(GKMError) as caught:
        DependencyVersions.parse(pairs)
    assert caught.value.reason is Reason.METADATA_INVALID
    assert len(str(caught.value)) < 300

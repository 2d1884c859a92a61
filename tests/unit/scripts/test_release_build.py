"""What a release asks of buildah for each platform."""

import pytest
from releasing.build import Options


def options(base: str) -> Options:
    return Options("1.2.3", "c" * 40, "", 0, "", ("linux/amd64", "linux/arm64"), base)


@pytest.mark.parametrize("platform", ["linux/arm64", "linux/arm64/v8"])
def test_a_local_base_is_made_for_each_architecture_and_never_pulled(platform: str) -> None:
    asked = options("local").arguments_of(platform)
    assert asked == [f"--platform={platform}", "--build-arg=BASE=localhost/python-base:bookworm-arm64"]
    assert options("local").arguments_of("") == ["--build-arg=BASE=localhost/python-base:bookworm"]


@pytest.mark.parametrize(("base", "named"), [("", []), ("r.example/python:3", ["--build-arg=BASE=r.example/python:3"])])
def test_a_base_of_a_registry_is_pulled_where_it_is_missing(base: str, named: list[str]) -> None:
    assert options(base).arguments_of("linux/arm64") == ["--platform=linux/arm64", "--pull=missing", *named]
    assert not [word for word in options(base).arguments if word.startswith("--build-arg=BASE")]

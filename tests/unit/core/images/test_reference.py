import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from hypothesis import given
from hypothesis import strategies as st

HEX = "a" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:5000/team/cache:1", Reference("host:5000", "team/cache", "1")),
        ("host:5000/cache", Reference("host:5000", "cache", "latest")),
        ("registry.example/a/b/c", Reference("registry.example", "a/b/c", "latest")),
        (f"registry.example/a@sha256:{HEX}", Reference("registry.example", "a", None, f"sha256:{HEX}")),
        (f"registry.example/a:v1@sha256:{HEX}", Reference("registry.example", "a", "v1", f"sha256:{HEX}")),
        ("cache", Reference("docker.io", "library/cache", "latest")),
        ("team/cache:v1", Reference("docker.io", "team/cache", "v1")),
        ("localhost/cache", Reference("localhost", "cache", "latest")),
        ("127.0.0.1:5000/cache:x", Reference("127.0.0.1:5000", "cache", "x")),
        ("[::1]:5000/cache", Reference("[::1]:5000", "cache", "latest")),
    ],
)
def test_a_reference_is_understood(text: str, expected: Reference) -> None:
    assert Reference.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://registry.example/cache",
        "registry.example/UPPER",
        "Registry/prod/x",
        "registry.example/a b",
        "registry.example/a:",
        "registry.example/a@",
        "registry.example/a@sha256:short",
        f"registry.example/a@sha256:{'A' * 64}",
        f"registry.example/a@sha512:{'a' * 128}",
        f"registry.example/a@sha256:{HEX}/../../x",
        "registry.example/../etc",
        "registry.example//cache",
        "registry.example/cache/",
        "registry.example/cache:" + "t" * 129,
        "registry.example/" + "a" * 600,
        "registry.example:99999999/cache",
        "-registry.example/cache",
        "registry.example/cache\n",
        "registry.example/cache:1\x00",
        "user@registry.example/cache",
        "registry.example/ｃache",
    ],
)
def test_an_invalid_reference_is_refused_with_its_reason(text: str) -> None:
    with pytest.raises(GKMError) as caught:
        Reference.parse(text)
    assert caught.value.reason is Reason.INVALID_REFERENCE
    assert "is not an image reference" in caught.value.message


@given(st.text(max_size=600))
def test_any_text_is_a_reference_or_an_error_of_ours(text: str) -> None:
    try:
        ref = Reference.parse(text)
    except GKMError:
        return
    assert Reference.parse(str(ref)) == ref


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("Registry.Example/prod/x", "registry.example/prod/x"),
        ("registry.example:443/prod/x", "registry.example/prod/x"),
        ("REGISTRY.example:443/prod/x", "registry.example/prod/x"),
        ("index.docker.io/team/x", "docker.io/team/x"),
        ("registry-1.docker.io/team/x", "docker.io/team/x"),
        ("docker.io/x", "docker.io/library/x"),
        ("registry.example:5000/prod/x", "registry.example:5000/prod/x"),
        ("LOCALHOST/x", "localhost/x"),
        ("registry:443/prod/x", "registry:443/prod/x"),  # without its port it would be docker.io's
        ("Registry:443/prod/x", "registry:443/prod/x"),
        ("[::1]:443/x", "[::1]/x"),
    ],
)
def test_a_registry_has_one_name_whatever_the_spelling(spelling: str, name: str) -> None:
    # Capitals or an explicit port in the host must not bypass a policy for registry.example/prod/*.
    assert Reference.parse(spelling).name == name


@pytest.mark.parametrize(
    ("image", "pattern", "fits"),
    [
        ("registry.example/team/a/b", "registry.example/*", True),
        ("registry.example/team/a/b", "registry.example/team/*", True),
        ("registry.example/team/a", "registry.example/other/*", False),
        ("a.corp.example/team/x", "*.corp.example/*", True),
        ("evil.example/x.corp.example/cache", "*.corp.example/*", False),
        ("evil.example/x.corp.example/cache", "*/x.corp.example/*", True),
        ("evil.example/x.corp.example", "*.corp.example", False),
        ("[fd00::1]:5000/team/x", "[fd00::1]:5000/*", True),
        ("[fd00::1]:5000/team/x", "[fd00::*]:*/team/*", True),
        ("[fd00::2]:5000/team/x", "[fd00::1]:5000/*", False),
        ("127.0.0.1:5000/team/x", "127.0.0.1:*/team/*", True),
        ("registry.example/team/x", "*", True),
        ("registry.example/team/x", "registry.example", True),
        ("registry.example/team/x", "*.example", True),
        ("registry.example:5000/team/x", "registry.example", False),
        ("registry.example/team/x", "registry.example/", False),
        ("registry.example/team/x", "team/x", False),
    ],
)
def test_a_glob_of_images_matches_host_and_repository_separately(image: str, pattern: str, fits: bool) -> None:  # noqa: FBT001 -- a column
    assert Reference.parse(image).matches(pattern) is fits

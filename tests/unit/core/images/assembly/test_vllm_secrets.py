"""cache_key_factors.json contains all variables of the compilation's environment; an image contains none of its
secrets.
"""

import json
from pathlib import Path

import pytest
from gkm.images.assembly import factors_file
from gkm.images.assembly import image as images
from gkm.images.assembly.contents import scan_directory
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format
from gkm.images.pulling.extract import Extraction
from support.images.archives import content
from support.images.builds import build
from support.images.vllm import HASH, OTHER_HASH, binary, ptx, put

FACTORS = f"torch_compile_cache/{HASH}/rank_0_0/backbone/cache_key_factors.json"
SETTINGS = {
    "VLLM_API_KEY": None,
    "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE": 163840,
    "VLLM_USE_KEYS": True,
    "VLLM_EMPTY_TOKEN": "",
    "VLLM_PORT": 8000,
}
"""What real files hold without any secret: the names alone do not make one."""
SECRET = "sk-0123456789"


def packed(root: Path, work: Path) -> tuple[dict[str, bytes], bytes, list[str]]:
    """Build and extract an image; return its files, manifest.json and the warnings."""
    (work / "layer").mkdir(parents=True)
    (work / "out").mkdir()
    image = build(root, "x", work / "layer")
    warnings = images.warnings(scan_directory(root, (), DependencyVersions()))
    made = Extraction(work / "out", [Format.VLLM], 1 << 20)
    made.layer([content(image.blobs[1])])
    assert made.size_bytes == int(image.labels["cache.vllm.image/cache-size-bytes"])
    files = {str(path.relative_to(work / "out")): path.read_bytes() for path in (work / "out").rglob("*.json")}
    return files, made.manifest, warnings


@pytest.mark.parametrize(
    "env",
    [
        {"VLLM_API_KEY": SECRET},
        {"HF_TOKEN": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET},
        {"db_password": SECRET},
        {"A_KEY": [SECRET]},
        {"A_TOKEN": {"x": SECRET}},
        {"NESTED": {"deep": [{"API_KEY": SECRET}]}},
    ],
)
def test_no_secret_is_in_an_image_and_a_person_is_warned(tmp_path: Path, env: dict[str, object]) -> None:
    cache = binary(tmp_path / "cache", ptx("75"), env={**SETTINGS, **env})
    files, manifest, (warning,) = packed(cache, tmp_path)
    assert SECRET.encode() not in b"".join([*files.values(), manifest])
    assert SECRET not in warning
    for name in env.keys() - {"NESTED"}:
        assert name in warning
        assert json.loads(files[FACTORS])["env"][name] is None
        assert name not in json.loads(manifest)["vllm"][0]["binary"][0]["env"]
    kept = json.loads(files[FACTORS])["env"]
    assert {name: kept[name] for name in SETTINGS} == SETTINGS


def test_the_manifest_repeats_no_variable_that_is_named_like_a_secret_and_is_set(tmp_path: Path) -> None:
    manifest = scan_directory(binary(tmp_path, ptx("75"), env=SETTINGS), (), DependencyVersions()).manifest
    assert json.loads(manifest)["vllm"][0]["binary"][0]["env"] == {
        "VLLM_API_KEY": None,
        "VLLM_PORT": 8000,
        "VLLM_TARGET_DEVICE": "cuda",
    }


def test_a_file_without_secrets_stays_as_it_is(tmp_path: Path) -> None:
    binary(tmp_path / "cache", ptx("75"), env=SETTINGS)
    odd = b'{ "env":{"B_KEY" : null,"A":1e3}  }\n'
    put(tmp_path / "cache", FACTORS, odd)
    files, _, warnings = packed(tmp_path / "cache", tmp_path)
    assert (files[FACTORS], warnings) == (odd, [])


def test_a_secret_that_a_later_pair_hides_is_found(tmp_path: Path) -> None:
    binary(tmp_path / "cache", ptx("75"))
    put(tmp_path / "cache", FACTORS, b'{"env":{"A_KEY":"%s","A_KEY":null}}' % SECRET.encode())
    files, _, warnings = packed(tmp_path / "cache", tmp_path)
    assert SECRET.encode() not in files[FACTORS]
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "beside", [b"{}", b"[" + b"0," * 20_000 + b"0]"], ids=["short", "too many values to be listed"]
)
def test_a_component_that_is_not_listed_loses_its_secrets_too(tmp_path: Path, beside: bytes) -> None:
    binary(tmp_path / "cache", ptx("75"))
    other = f"torch_compile_cache/{OTHER_HASH}/rank_0_0/backbone/cache_key_factors.json"
    put(tmp_path / "cache", other, b'{"code_hash":7,"env":{"A_KEY":"%b","B":%b}}' % (SECRET.encode(), beside))
    files, manifest, warnings = packed(tmp_path / "cache", tmp_path)
    assert SECRET.encode() not in b"".join([*files.values(), manifest])
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"env":{"VLLM_API_KEY":"%b",',
        b'{"env":{"VLLM_API_KEY":"%b"},"code_hash":"\xff"}',
        b'{"env":{"VLLM_API_KEY":"%b"},"code_hash":' + b"7" * 5000 + b"}",
        b'{"env":{"VLLM_API_KEY":"%b"}}' + b" " * 6000,
    ],
    ids=["cut off", "no text", "a number out of range", "too large to read"],
)
def test_a_file_that_cannot_be_read_takes_no_secret_into_an_image(
    tmp_path: Path, damaged: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vLLM that was killed while it wrote leaves the beginning of the file: it was packed as it was."""
    monkeypatch.setattr(factors_file, "MAX_BYTES", 6000)
    binary(tmp_path / "cache", ptx("75"))
    other = f"torch_compile_cache/{OTHER_HASH}/rank_0_0/backbone/cache_key_factors.json"
    put(tmp_path / "cache", other, damaged % SECRET.encode())
    files, manifest, _ = packed(tmp_path / "cache", tmp_path)
    assert SECRET.encode() not in b"".join([*files.values(), manifest]), "the damaged file was packed as it is"
    assert files[other] == b"{}"


def test_a_warning_about_many_names_is_one_line_of_plain_characters(tmp_path: Path) -> None:
    env = {f"A_{number}_KEY\x1b[31m\n": SECRET for number in range(100)}
    _, _, (warning,) = packed(binary(tmp_path / "cache", ptx("75"), env=env), tmp_path)
    assert warning.isprintable()
    assert warning.isascii()
    assert "92 more" in warning

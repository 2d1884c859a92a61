"""Where several caches of one image stand, and which directory each variable names."""

import pytest
from gkm.runtimes import RUNTIMES
from gkm.runtimes.placement import SEPARATOR, beside, environment, joined, names_in


def test_one_cache_stands_at_the_path_itself() -> None:
    assert environment(["triton"], "/cache") == {"TRITON_CACHE_DIR": "/cache"}


def test_two_runtimes_never_share_a_directory() -> None:
    every = [runtime.name for runtime in RUNTIMES]
    directories = environment(every, "/cache")
    assert len(set(directories.values())) == len(every)
    assert (directories["VLLM_CACHE_ROOT"], directories["TRITON_CACHE_DIR"]) == ("/cache/vllm", "/cache/triton")


def test_the_text_of_runtimes_is_read_back() -> None:
    assert joined(["triton", "vllm"]) == "vllm-triton"
    assert names_in("vllm-triton") == ("vllm", "triton")
    assert names_in("triton") == ("triton",)


@pytest.mark.parametrize("text", ["", "-", "triton-vllm", "vllm-vllm", "vllm-unheard", "vllm-", "Vllm"])
def test_any_other_text_names_no_runtime(text: str) -> None:
    assert names_in(text) == ()


def test_no_runtime_has_the_separator_in_its_name() -> None:
    assert [runtime.name for runtime in RUNTIMES if SEPARATOR in runtime.name] == []


def test_a_runtime_that_compiles_beside_another_one_has_a_directory_unless_it_has_a_cache() -> None:
    assert beside(["vllm"], "/cache") == {"TRITON_CACHE_DIR": "/cache/triton"}
    assert beside(["vllm", "triton"], "/cache") == {}
    assert beside(["triton"], "/cache") == {}


def test_a_cache_that_grows_from_one_to_several_keeps_the_directory_beside() -> None:
    assert beside(["vllm"], "/cache").items() <= environment(["vllm", "triton"], "/cache").items()


def test_what_compiles_beside_a_runtime_is_in_the_table() -> None:
    names = {runtime.name for runtime in RUNTIMES}
    assert [runtime.name for runtime in RUNTIMES if not names.issuperset(runtime.beside)] == []

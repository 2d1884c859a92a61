"""Where several caches of one image stand, and which directory each variable names."""

import pytest
from gkm.runtimes import RUNTIMES
from gkm.runtimes.placement import SEPARATOR, environment, joined, names_in


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

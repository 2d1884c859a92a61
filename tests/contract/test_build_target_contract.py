"""Both kinds of build target: preflight gives the same verdict for the image's and its own normal form."""

from collections.abc import Callable

import pytest
from gkm.api.errors import Reason
from gkm.api.targets import GpuTarget
from gkm.gpus import preflight
from gkm.gpus.targets import NormalizedTarget, normalize_target
from support.gpus.preflight_values import gpu

MakeTarget = Callable[[str, str, int, int, str], GpuTarget]
KINDS: list[MakeTarget] = [GpuTarget, NormalizedTarget]


@pytest.mark.parametrize("make", KINDS)
def test_every_field_reaches_the_normal_form(make: MakeTarget) -> None:
    assert normalize_target(make("cuda", "90", 32, 84, "12.9")) == NormalizedTarget("cuda", "90", 32, 84, "12.9")


@pytest.mark.parametrize("make", KINDS)
def test_the_spelling_of_labels_becomes_the_spelling_of_gpus(make: MakeTarget) -> None:
    assert normalize_target(make("cuda", "sm_90a", 32, 0, "")).arch == "90"
    rocm = normalize_target(make("rocm", "gfx90a:sramecc+:xnack-", 64, 0, ""))
    assert (rocm.backend, rocm.arch) == ("hip", "gfx90a")


@pytest.mark.parametrize("make", KINDS)
def test_the_normal_form_is_stable(make: MakeTarget) -> None:
    once = normalize_target(make("rocm", "gfx942:xnack-", 64, 0, ""))
    assert normalize_target(once) == once


@pytest.mark.parametrize("make", KINDS)
def test_the_verdict_does_not_depend_on_the_kind_of_target(make: MakeTarget) -> None:
    assert preflight.check([make("cuda", "90", 32, 0, "")], [gpu()]).fits
    assert preflight.check([make("cuda", "80", 32, 0, "")], [gpu()]).reason is Reason.ARCHITECTURE_MISMATCH
    assert preflight.check([make("cuda", "90", 0, 0, "")], [gpu()]).reason is Reason.METADATA_INVALID

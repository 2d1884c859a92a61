"""The errors of publish for every state of a cache."""

from dataclasses import replace
from pathlib import Path

import pytest
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import READ_ONLY, VolumeOptions, VolumeRecord
from gkm_csi.status_errors import Code, StatusError, is_final
from gkm_csi.volumes import publish_errors
from gkm_csi.volumes.request import PodInfo, PublishRequest, VolumeTarget

REF = CacheRef("ml-apps", "llama")
DIGEST = "sha256:" + "0" * 64
NODE = "node-7"
OTHERWISE = "is already published for another pod, another cache or with other attributes"


def pointer(state: CacheState, **values: str | int) -> Pointer:
    return Pointer(REF, "image", state, **values)  # type: ignore[arg-type]


def answer(of: Pointer | None, driver: str | None = None) -> StatusError:
    with pytest.raises(StatusError) as caught:
        publish_errors.usable_pointer(of, REF, NODE, driver)
    return caught.value


@pytest.mark.parametrize(("checked", "loaded"), [("", None), ("550.1", None), ("550.1", "550.1")])
def test_ready_is_published(checked: str, loaded: str | None) -> None:
    ready = pointer(CacheState.READY, digest=DIGEST, driver_version=checked)
    assert publish_errors.usable_pointer(ready, REF, NODE, loaded) is ready


@pytest.mark.parametrize(
    ("of", "driver", "told"),
    [
        (None, None, "GKMCache ml-apps/llama is not known on node-7 yet"),
        (pointer(CacheState.PENDING), None, "is Pending on node-7"),
        (pointer(CacheState.PENDING, message="waits for Verified"), None, "waits for Verified"),
        (pointer(CacheState.DOWNLOADING, progress=61), None, "is Downloading on node-7, 61 %"),
        (pointer(CacheState.EXTRACTING, progress=5), None, "is Extracting on node-7, 5 %"),
        (
            pointer(CacheState.READY, digest=DIGEST, driver_version="550.1"),
            "570.2",
            "with driver 550.1, and driver 570.2",
        ),
        (pointer(CacheState.READY, digest=DIGEST), "570.2", "without a GPU driver"),
        (pointer(CacheState.READY), None, "restart the agent on node-7"),
    ],
)
def test_a_temporary_state_is_unavailable_and_kubelet_retries(
    of: Pointer | None, driver: str | None, told: str
) -> None:
    refusal = answer(of, driver)

    assert refusal.code is Code.UNAVAILABLE
    assert told in refusal.message
    assert refusal.message.endswith("; kubelet retries")
    assert not is_final(refusal)


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (
            pointer(CacheState.INCOMPATIBLE, reason="NoGPU", message="no GPU"),
            "is Incompatible on node-7: NoGPU: no GPU",
        ),
        (pointer(CacheState.FAILED, reason="DigestMismatch"), "is Failed on node-7: DigestMismatch"),
        (pointer(CacheState.FAILED), "kubectl get gkmcache -n ml-apps llama"),
        (pointer(CacheState.DELETING), "is Deleting on node-7"),
    ],
)
def test_a_permanent_state_is_a_failed_precondition(of: Pointer, told: str) -> None:
    refusal = answer(of)

    assert refusal.code is Code.FAILED_PRECONDITION
    assert told in refusal.message
    assert is_final(refusal)


def test_the_message_for_a_cluster_cache_names_its_kind() -> None:
    with pytest.raises(StatusError, match="kubectl get clustergkmcache shared"):
        publish_errors.usable_pointer(None, CacheRef(None, "shared"), NODE, None)


def test_an_endless_message_is_one_short_line() -> None:
    message = answer(pointer(CacheState.FAILED, message="line\n" * 10_000)).message
    assert len(message) < 1000
    assert "\n" not in message


KNOWN = VolumeRecord("csi-1", "/k/pods/u/mount", "trainer-0", "ml-apps", "uid", REF, DIGEST, 1, "now")
ASKED = PublishRequest(
    VolumeTarget("csi-1", Path("/k/pods/u/mount")), PodInfo("trainer-0", "ml-apps", "uid"), REF, READ_ONLY
)


def test_the_same_again_is_a_repeat() -> None:
    publish_errors.check_repeat(KNOWN, ASKED)


@pytest.mark.parametrize(
    ("asked", "code", "why"),
    [
        (replace(ASKED, ref=CacheRef("ml-apps", "other")), Code.ALREADY_EXISTS, OTHERWISE),
        (replace(ASKED, ref=CacheRef(None, "llama")), Code.ALREADY_EXISTS, OTHERWISE),
        (replace(ASKED, pod=PodInfo("trainer-1", "ml-apps", "uid")), Code.ALREADY_EXISTS, OTHERWISE),
        (replace(ASKED, pod=PodInfo("trainer-0", "other", "uid")), Code.ALREADY_EXISTS, OTHERWISE),
        (replace(ASKED, pod=PodInfo("trainer-0", "ml-apps", "uid-2")), Code.ALREADY_EXISTS, OTHERWISE),
        (replace(ASKED, options=VolumeOptions(private=True, size_limit=1 << 30)), Code.ALREADY_EXISTS, OTHERWISE),
        (replace(ASKED, options=VolumeOptions(mount_path="/cache")), Code.ALREADY_EXISTS, OTHERWISE),
        (
            replace(ASKED, volume=VolumeTarget("csi-1", Path("/k/pods/v/mount"))),
            Code.FAILED_PRECONDITION,
            "is already published at another target",
        ),
    ],
)
def test_a_published_volume_is_not_published_differently(asked: PublishRequest, code: Code, why: str) -> None:
    with pytest.raises(StatusError) as caught:
        publish_errors.check_repeat(KNOWN, asked)
    assert (caught.value.code, why in str(caught.value)) == (code, True)

import pytest
from gkm.images.signing.secretbox import WrongKey, open_box

# The worked example of "Cryptography in NaCl" (D. J. Bernstein, 2009), sections 8 to 10.
KEY = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
NONCE = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
TEXT = bytes.fromhex(
    "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129"
    "6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde"
    "048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705"
)
BOX = bytes.fromhex(
    "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a"
    "c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae"
    "90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74"
    "e355a5"
)


def test_the_box_of_the_paper_opens() -> None:
    assert open_box(KEY, NONCE, BOX) == TEXT


@pytest.mark.parametrize("place", [0, 15, 16, len(BOX) - 1])
def test_a_box_with_one_bit_changed_stays_shut(place: int) -> None:
    changed = bytearray(BOX)
    changed[place] ^= 1
    with pytest.raises(WrongKey):
        open_box(KEY, NONCE, bytes(changed))


def test_another_key_or_nonce_opens_nothing() -> None:
    with pytest.raises(WrongKey):
        open_box(bytes(32), NONCE, BOX)
    with pytest.raises(WrongKey):
        open_box(KEY, bytes(24), BOX)


@pytest.mark.parametrize(
    ("key", "nonce", "box"), [(KEY[1:], NONCE, BOX), (KEY, NONCE[1:], BOX), (KEY, NONCE, BOX[:15])]
)
def test_impossible_lengths_are_refused(key: bytes, nonce: bytes, box: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        open_box(key, nonce, box)

"""The text in a survey: the output of ibnetdiscover, compressed by gzip, in base64 as in its ConfigMap. Foreign."""

import binascii
import zlib
from base64 import b64decode

from gkm.topology.fabrics import ibnetdiscover
from gkm.topology.fabrics.subnet import Subnet

_GZIP = 16 + zlib.MAX_WBITS


def parsed(survey: bytes) -> Subnet:
    """Return the network in a survey.

    Raises:
        NotASurvey: it is not compressed by gzip, longer than a survey may be, or no output of ibnetdiscover.
    """
    try:
        stream = zlib.decompressobj(_GZIP)
        text = stream.decompress(b64decode(survey, validate=True), ibnetdiscover.MAX_BYTES + 1)
    except (binascii.Error, zlib.error):
        raise ibnetdiscover.NotASurvey("it is not compressed by gzip and in base64") from None
    if len(text) <= ibnetdiscover.MAX_BYTES and not stream.eof:
        raise ibnetdiscover.NotASurvey("it ends in the middle")
    return ibnetdiscover.parse(text)

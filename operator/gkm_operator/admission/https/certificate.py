"""The server's certificate: the files as they are now, without a restart. Accepts nothing and reads no connection."""

import logging
import ssl
from pathlib import Path

from gkm_operator.admission.https.throttled_log import ThrottledLog

_LOG = logging.getLogger(__name__)


class ServerCertificate:
    """Certificate and key of a server, from two PEM files.

    Files that changed are loaded with the next connection; while they do not fit each other, the old pair serves on.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load the files.

        Raises:
            OSError: a file cannot be read, or (ssl.SSLError) the two are no pair.
        """
        self._files = (certificate, key)
        self._seldom = ThrottledLog(_LOG)
        self._stamp = self._read_stamp()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is served by.

        It is made anew, never changed: a pair that does not fit would leave half of itself in the old one.
        """
        stamp = self._read_stamp()
        if stamp != self._stamp:
            try:
                self._context, self._stamp = self._load(), stamp
            except OSError as error:
                # Half-way through a rotation, or for good: then somebody must know before the old pair has expired.
                why = error.strerror or str(error)
                self._seldom.warning("certificate not taken", file=str(self._files[0]), why=why)
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake is the dearest thing a client can ask for: one each
        # A key that is encrypted is an error, never a question at a terminal, which nobody would answer.
        context.load_cert_chain(*self._files, password=str)
        return context

    def _read_stamp(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in self._files)
        except OSError:
            return ()

"""Rows of the matrix about `validFor`: a service in the trusted root counts only within its period.

The rows test each service before its period, after it, and in a period that ended after the time of signing.
"""

from support.images.matrix import Row

SERVICES = {
    "authority": "certificateAuthorities",
    "log": "tlogs",
    "certificate log": "ctlogs",
}
_AUTHORITY = "no certificate authority is trusted"
_SAYS = {
    "authority": _AUTHORITY,
    "log": "for which the log is not trusted",
    "certificate log": "no trusted certificate log has seen",
}
# sigstore-python first drops services whose period has not begun.
_SAYS_IN_BUNDLES = {
    ("authority", "not begun"): "Fulcio certificates not found",
    ("log", "not begun"): "cannot be verified",
    ("certificate log", "not begun"): "cannot be verified",
}


def _rows() -> tuple[Row, ...]:
    return tuple(
        Row(
            f"{service} {period} {form}",
            form,
            "person",
            "person",
            "" if period == "ended since" else _says(service, period, form),
            log=1,
            limited=SERVICES[service],
            period=period,
        )
        for form in ("bundle", "legacy")
        for service in SERVICES
        for period in ("ended", "not begun", "ended since")
    )


def _says(service: str, period: str, form: str) -> str:
    return (_SAYS_IN_BUNDLES if form == "bundle" else {}).get((service, period), _SAYS[service])


def _stamped(name: str, by: str, service: str, period: str, says: str = "", *, stricter: bool = False) -> Row:
    return Row(name, "bundle", by, by, says, 2, stamped=True, limited=service, period=period, stricter=stricter)


_LOG, _TIME = "for which the log is not trusted", "verified time"
ROWS = (
    *_rows(),
    _stamped("authority ended tsa", "person", "certificateAuthorities", "ended", _AUTHORITY),
    _stamped("authority ended since tsa", "person", "certificateAuthorities", "ended since"),
    _stamped("timestamp authority ended", "person", "timestampAuthorities", "ended", _TIME),
    _stamped("timestamp authority not begun", "person", "timestampAuthorities", "not begun", _TIME),
    _stamped("timestamp authority ended since", "person", "timestampAuthorities", "ended since"),
    _stamped("certificate log ended tsa", "person", "ctlogs", "ended", _SAYS["certificate log"]),
    # cosign compares a log's period with the log's own time only, which Rekor 2 does not state.
    _stamped("log ended tsa", "person", "tlogs", "ended", _LOG, stricter=True),
    _stamped("log ended since tsa", "person", "tlogs", "ended since"),
    _stamped("log ended by key tsa", "key", "tlogs", "ended", _LOG, stricter=True),
    _stamped("log ended since by key tsa", "key", "tlogs", "ended since"),
    Row("log ended by key", "bundle", "key", "key", _LOG, 2, limited="tlogs", period="ended", stricter=True),
    Row(
        "log ended since by key", "bundle", "key", "key", _LOG, 2, limited="tlogs", period="ended since", stricter=True
    ),
    Row("log ended by key bundle", "bundle", "key", "key", _LOG, 1, limited="tlogs", period="ended"),
    Row("log ended by key legacy", "legacy", "key", "key", _LOG, 1, limited="tlogs", period="ended"),
    Row("log ended since by key bundle", "bundle", "key", "key", log=1, limited="tlogs", period="ended since"),
    Row("log ended since by key legacy", "legacy", "key", "key", log=1, limited="tlogs", period="ended since"),
)
ACCEPTED = tuple(row for row in ROWS if row.accepted)
REFUSED = tuple(row for row in ROWS if not row.accepted)

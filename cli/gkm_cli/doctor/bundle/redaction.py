"""Remove text that looks like a credential. Pure.

It knows forms, not values: a password that stands alone in a sentence looks like any word. So the bundle has no field
that is meant for one, and its reader looks at it before it leaves the machine.
"""

from typing import Any

import re2

REDACTED = "REDACTED"
_NAMES = r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credential|authorization|private[_-]?key)[\w.-]*"
_SEPARATOR = r"\\*[\"']?\s*[:=]\s*\\*[\"']?"
_FORMS = (
    (r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)", REDACTED),
    (r"\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?", REDACTED),
    (r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{6,}", rf"\1 {REDACTED}"),
    (r"://[^/\s@\"'\\]+@", f"://{REDACTED}@"),
    (r"(?i)(https?://[^\s?\"'\\]+\?)[^\s\"'\\]+", rf"\1{REDACTED}"),
    (rf"(?i)\b({_NAMES}|auth)({_SEPARATOR})[^\s\"'\\,;&}}]+", rf"\1\2{REDACTED}"),
    # Well-known forms: AWS, GitHub, GitLab, Slack, Hugging Face, NVIDIA, OpenAI.
    (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", REDACTED),
    (r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_|nvapi-|sk-)[\w-]{16,}", REDACTED),
)
"""Each form, and its text afterwards. Logs are foreign, so RE2 reads them, in linear time (decision 10)."""
_PATTERNS = [(re2.compile(form), after) for form, after in _FORMS]
_KEY = re2.compile(rf"(?i)^(?:.*/)?(?:{_NAMES}|auth)$")


def redacted(text: str) -> str:
    """Return a text with REDACTED in place of everything that looks like a credential."""
    for pattern, after in _PATTERNS:
        text = pattern.sub(after, text)
    return text


def redacted_values(value: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return JSON with redacted texts; a text whose key names a credential is replaced completely."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [redacted_values(each) for each in value]
    if value is None or isinstance(value, int | float):
        return value
    # A value of any other type ends here: it could hide a text.
    return {
        redacted(str(key)): REDACTED if isinstance(each, str) and each and _KEY.search(key) else redacted_values(each)
        for key, each in value.items()
    }

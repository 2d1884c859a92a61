"""Series of promtool's unit tests: what processes expose, healthy or not.

Values are those of promtool: `0+1x60` is 0, 1, 2 … for 60 minutes, `_` a missing sample.
"""

from collections.abc import Mapping

Series = Mapping[str, str]
ALWAYS = 120
UP, BUILD = 'up{namespace="gkm-system",pod="a"}', 'gkm_build_info{program="gkm-operator-admission",version="1"}'
PULLED, NOT_READY = 'gkm_pull_bytes_total{node="a"}', "gkm_cache_not_ready"
MOUNTS, REVIEWS = "gkm_publish_seconds", "gkm_admission_seconds"
LAST = "gkm_last_success_timestamp_seconds"
READY = 'gkm_ready{program="gkm-operator-admission",pod="a"}'
BACKGROUND: Series = {
    BUILD: f"1x{ALWAYS}",
    READY: f"1x{ALWAYS}",
    'gkm_leader{pod="a"}': f"1x{ALWAYS}",
    'gkm_leader{pod="b"}': f"0x{ALWAYS}",
    'process_start_time_seconds{pod="a"}': f"0x{ALWAYS}",
}
"""What a healthy installation exposes that started before the test; a case replaces series of it."""
AGENT, AGENT_STARTED = (
    'gkm_build_info{program="gkm-agent",node="n",pod="n"}',
    'process_start_time_seconds{node="n",pod="n"}',
)
PASSED, CHECKED, TRUSTED = (f'{LAST}{{task="{task}",%s}}' for task in ("pass", "installation", "certificate"))
OF_AGENT, OF_A = 'node="n",pod="n"', 'pod="a"'


def held(value: float) -> str:
    return f"{value:g}x{ALWAYS}"


def changed(before: float, minutes: int, after: float) -> str:
    """Return a value that has been another for some minutes."""
    return f"{before:g}x{ALWAYS - minutes} {after:g}x{minutes}"


def grows(by: float) -> str:
    return f"0+{by:g}x{ALWAYS}"


def once_at(minutes: int, value: float = 1) -> str:
    """Return a counter that appears with its first event."""
    return f"_x{minutes} {value:g}x{ALWAYS - minutes}"


def time_stopped(minutes: int) -> str:
    """Return the time of a last success that was some minutes before the end."""
    return f"0+60x{ALWAYS - minutes} {60 * (ALWAYS - minutes)}x{minutes}"


def restarted_each(minutes: int) -> str:
    """Return the start of a process that begins anew at intervals."""
    return " ".join(f"{60 * start}x{minutes - 1}" for start in range(0, ALWAYS, minutes))


def seconds(metric: str, within: float, labels: str) -> Series:
    """Return a histogram whose values are all just below a bound of its buckets."""
    inside = {f'{metric}_bucket{{le="{bound}",{labels}}}': grows(60 if bound >= within else 0) for bound in (0.5, 1, 5)}
    return inside | {
        f'{metric}_bucket{{le="10",{labels}}}': grows(60),
        f'{metric}_bucket{{le="+Inf",{labels}}}': grows(60),
    }


def state(reason: str, state_: str = "Failed") -> str:
    return f'{NOT_READY}{{node="a",reason="{reason}",state="{state_}"}}'


def reconciles(result: str) -> str:
    return f'gkm_reconcile_seconds_count{{controller="verify",result="{result}"}}'


def requests(code: str) -> str:
    return f'gkm_api_requests_total{{pod="a",code="{code}"}}'


def reviews(result: str, kind: str = "GKMCache") -> str:
    return f'{REVIEWS}_count{{kind="{kind}",result="{result}"}}'


def scraped_twice(series: Series) -> Series:
    """Return series with the same ones of a second job, as with Services and PodMonitors."""
    return {**series, **{name.replace("{", '{job="second",', 1): text for name, text in series.items()}}

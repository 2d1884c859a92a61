"""The figures of each bench that documents cite, and the stable ones; a bench without them makes documents false."""

from collections.abc import Iterator, Mapping

P50_P99 = ("p50", "p99")


def _each(pattern: str, *parts: str) -> Iterator[str]:
    return (pattern.format(part) for part in parts)


def _peers() -> Iterator[str]:
    for place in ("tmpfs", "disk"):
        for side in ("gkm", "containerd"):
            yield from _each(f"{place}_{side}_{{}}", "pull_s", "pull_cpu_s", "mount_s", "delete_s")
        yield from _each(f"{place}_{{}}", "ratio", "cpu_ratio", "containerd_settled_s", "gkm_mount_again_s", "ctr_s")


def _rollout() -> Iterator[str]:
    limits = ("unlimited", "limit_1000", "limit_500", "limit_500_retry_after_1", "limit_500_retry_after_60")
    for scenario in (*limits, "closed_for_an_hour", "1000_at_a_time", "200_at_a_time"):
        yield from _each(f"{scenario}.{{}}", "ready_50_s", "ready_99_s", "ready_100_s", "last_over_ideal", "requests")
        yield from _each(
            f"{scenario}.{{}}", "refused", "peak_requests_s", "largest_retry_wave_percent", "status_writes"
        )
    for part in ("", "cold_"):
        yield from _each(f"{part}{{}}", "agents", "origin_copies", "origin_requests_per_agent", "all_ready_s")


def _coldstart() -> Iterator[str]:
    for target in ("cuda_90_32", "cuda_100_32", "hip_gfx942_64"):
        for moment in ("first", "all", "call"):
            yield from _each(f"{target}_{moment}_{{}}", "empty_s", "mounted_s", "ratio")


def _csi() -> Iterator[str]:
    for kind in ("", "at_500_one_cache_", "private_", "mount_path_"):
        yield from _each(f"{kind}publish_{{}}_ms", *P50_P99)
    yield from _each("at_once_{}", "rate_per_s", "ok", "aborted", "resource_exhausted")


def _fleet() -> Iterator[str]:
    for watcher in ("thin", "official"):
        yield from _each(f"{watcher}_{{}}", "synced_s", "rss_mib", "peak_rss_mib", "sums_wrong")
        for rate in (100, 300):
            yield from _each(f"{watcher}_{rate}_{{}}", "lag_p50_ms", "lag_p99_ms", "reached_per_s", "lost")
    yield from _each("failover_{}", "s", "max_s", "events_lost", "events_doubled", "statuses_wrong")


CITED: Mapping[str, tuple[str, ...]] = {
    "agent": ("cold_start_s", "warm_start_s", "idle_cpu_percent", "rss_mib"),
    "agent_api": (
        *("cold_start_s", "cold_api_writes", "cold_api_requests", "warm_start_s", "warm_api_writes"),
        *("steady_api_writes_per_minute", "steady_api_requests_per_minute", "changed_api_writes", "rss_mib"),
    ),
    # docs/about/comparison.md, docs/measurements/gpu-h100.md
    "coldstart": (
        *("first_kernel_cold_s", "first_kernel_mounted_s", "ratio", "real_gpu", "publish_mounted_s"),
        *_coldstart(),
    ),
    # docs/about/gpus-and-loading.md, docs/about/comparison.md
    "csi": (
        *("idle_rss_mib", "ready_s", "ratio_to_go_noop", "first_relocation_s", "at_500_one_cache_rss_mib"),
        *("rss_growth_mib", "descriptor_growth"),
        *_csi(),
    ),
    # docs/about/comparison.md
    "delivery": ("copy_for_a_pod_s", "read_plain_s", "read_gkm_s", "triton_compiles_ms", "triton_hits_ms"),
    "domains": ("converge_s", "cliques_s", "admission_p99_ms", "delete_s", "leaked", "requests_per_object", "rss_mib"),
    # docs/decisions/0046-families.md
    "families": (
        *("ready_elsewhere_s", "second_generation_ready_elsewhere_s", "new_kernels_bytes", "pushed_bytes"),
        *("pushed_ratio", "variant_ready_elsewhere_s", "storm_images", "storm_layer_uploads", "storm_s"),
    ),
    # docs/decisions/0012-own-reflector.md, 0013-own-elector.md
    "fleet": (
        *("sync_s", "rss_mib", "cpu_s_per_1000_events", "lag_p50_ms", "lag_p99_ms", "cost_growth_1k_to_10k"),
        *_fleet(),
    ),
    # docs/features/placement.md
    "followed": (
        *("runs", "pods", "nodes", "followed_percent", "bound_s", "run_to_pods_p50_ms", "run_to_pods_p99_ms"),
        *_each("load_{}_rejected_ratio", "0.80", "0.90"),
        *_each("load_0.80_{}_rejected_percent", "gkm", "kueue"),
        *_each("load_0.90_{}_rejected_percent", "gkm", "kueue"),
        *_each("load_0.80_{}_domains_a_run", "gkm", "kueue"),
        *_each("load_0.90_{}_domains_a_run", "gkm", "kueue"),
    ),
    "groups": ("create_s", "destroy_s", "requests_per_object", "leaked", "render_p50_ms", "hostile_refused_s"),
    # docs/reference/images.md
    "install": ("help_s", "quickstart_s", "agent_mb", "csi_mb", "operator_mb", "doctor_found", "doctor_seeded"),
    # docs/decisions/0007-private-layers.md
    "layers": tuple(
        f"{kind}_{figure}" for kind in ("tmpfs", "loop", "directory") for figure in ("ms_p50", "ms_p99", "write_mib_s")
    ),
    # docs/about/differences.md, docs/decisions/0009-planning.md
    "packing": (
        *("plan_p99_ms", "optimal_percent", "online_rejected_percent", "rss_mib", "cases"),
        *("better_than_peers", "equal_to_peers", "worse_than_peers"),
        *_each("load_0.80_{}_rejected_percent", "m2-rules", "fewest-domains", "fewest-blocks", "least-waste"),
        *_each("load_0.80_{}_domains_a_run", "fewest-domains", "least-waste"),
    ),
    # docs/about/comparison.md
    "peers": tuple(_peers()),
    # docs/about/comparison.md, docs/decisions/0014-own-registry-client.md
    "pull": (
        *("wall_over_floor", "oraspy_over_ours", "peak_rss_mib", "verify_p50_ms", "verify_p99_ms"),
        *_each("triton_tmpfs_{}_s", "ours", "oraspy", "skopeo", "floor"),
        *_each("random_tmpfs_{}_s", "ours", "oraspy", "skopeo", "floor"),
        "triton_disk_ours_s",
    ),
    # docs/reference/rollout.md
    "rollout": ("p99_ready_over_ideal", "last_ready_over_ideal", *_rollout()),
    # docs/reference/topology-tree.md
    "topology": (
        *("build_s", "apart_s", "tree_s", "update_ms", "update_contradicting_ms", "ibnetdiscover_10k_s"),
        *("rss_mib_per_1000_nodes", "controllers_first_s", "controllers_change_s", "controllers_peak_of_limit"),
    ),
    # docs/decisions/0004-whose-signatures-count.md
    "verify": (
        *("verify_p50_ms", "verify_p99_ms"),
        *_each("{}_p50_ms", "key_bundle", "key_legacy", "keyless_bundle", "keyless_legacy"),
    ),
}
"""By bench. Names without a document are in the design's table of stable figures, or in the bench's own docstring."""

#!/bin/bash
# A program in a container of podman or Docker, with its kernels: gkm exec verifies and fetches the cache on this machine,
# and the container sees it at the same path, because files of a cache name absolute paths.
#   deploy/examples/containers/run.sh            by podman, as root or as any user
#   deploy/examples/containers/run.sh docker     by Docker, as a user who may use it
# docs/how-to/without-a-cluster.md explains it. For an image of a vLLM cache the variable is VLLM_CACHE_ROOT.
set -euo pipefail
cache=registry.example/team/caches/llama:1
image=registry.example/team/server:1
engine=${1:-podman}
case $engine in
  podman) options=(--device nvidia.com/gpu=all) ;;
  docker)
    # What gkm exec mounts for root, only its own processes see, and the daemon is none of them.
    [ "$(id -u)" != 0 ] || { echo "run.sh: as root use podman; Docker does not see the mounts of gkm exec" >&2; exit 2; }
    # As the same user, so that what the program adds can be removed when it ends.
    options=(--gpus all --user "$(id -u):$(id -g)")
    ;;
  *) echo "usage: run.sh [podman|docker]" >&2; exit 2 ;;
esac
# --rw: what the image lacks is compiled into a copy, or a layer in memory, that ends with the program. Without it the
# files are shared with other programs: then add :ro to the volume, because root in a container may write anything.
# shellcheck disable=SC2016 # gkm exec sets the variable
exec gkm exec --rw --cache "$cache" --config /etc/gkm/config.yaml -- \
  sh -c 'exec "$@" --volume "$TRITON_CACHE_DIR:$TRITON_CACHE_DIR" --env TRITON_CACHE_DIR "$0" python serve.py' \
  "$image" "$engine" run --rm "${options[@]}"

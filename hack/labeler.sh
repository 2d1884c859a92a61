#!/usr/bin/env bash
# Checks the topology labels of nodes, and prints the commands that correct them (docs/how-to/labels.md).
# With --apply it runs them, except those that are comments: they need a person's decision. It changes labels only.
set -euo pipefail

usage() {
    echo "usage: labeler.sh [--apply] [--nodes FILE] [--config FILE]" >&2
    echo "Without --nodes it reads the nodes of the current context of kubectl." >&2
    exit 2
}

apply=false nodes="" options=()
while (($#)); do
    case $1 in
    --apply) apply=true ;;
    --nodes) nodes=${2:-} && [[ $nodes ]] && shift || usage ;;
    --config) [[ ${2:-} ]] && options+=(--config "$2") && shift || usage ;;
    *) usage ;;
    esac
    shift
done

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
if [[ ! $nodes ]]; then
    nodes=$directory/nodes.json
    kubectl get nodes -o json >"$nodes"
fi

# 3 is the answer "no": there are problems.
run() {
    local code=0
    gkm topology check --nodes "$nodes" ${options[@]+"${options[@]}"} "$@" || code=$?
    ((code == 0 || code == 3)) || exit "$code"
    result=$code
}

run
run -o commands >"$directory/commands"
if [[ -s $directory/commands ]]; then
    echo
    cat "$directory/commands"
fi
if $apply; then
    echo
    bash -e "$directory/commands"
    echo "Run this again to check the result."
fi
exit "$result"

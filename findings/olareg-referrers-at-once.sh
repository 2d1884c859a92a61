#!/usr/bin/env bash
# olareg v0.1.2 loses referrers of one subject that clients push at the same time.
#
# Expected: eight referrers are pushed at once, each push is answered with 201, and the referrers API lists all eight.
# Seen: in most rounds it lists fewer, four to seven for instance. A push of one after another loses none.
# Clients should push the referrers of a subject one by one, and read the list back.
#
# Needs Go, curl and python3; it takes less than a minute and works in a temporary folder. It fails if no round loses any.
set -euo pipefail
work=$(mktemp -d)
server=""
trap '[ -z "$server" ] || kill "$server"; chmod -R u+w "$work"; rm -rf "$work"' EXIT

printf 'module finding\n\ngo 1.24\n\nrequire github.com/olareg/olareg v0.1.2\n' > "$work/go.mod"
export GOMODCACHE=${GOMODCACHE:-$work/modules} GOFLAGS=-mod=mod
(cd "$work" && go build -o olareg github.com/olareg/olareg/cmd/olareg)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$work/olareg" serve --addr 127.0.0.1 --port "$port" --dir "$work/data" > "$work/log" 2>&1 &
server=$!
for _ in $(seq 100); do curl -sf "http://127.0.0.1:$port/v2/" > "$work/answer" && break; sleep 0.1; done

base="http://127.0.0.1:$port/v2/test"
manifest=application/vnd.oci.image.manifest.v1+json
digest() { printf 'sha256:%s' "$(printf %s "$1" | sha256sum | cut -d' ' -f1)"; }
empty=$(digest '{}')
blob="{\"mediaType\":\"application/vnd.oci.empty.v1+json\",\"digest\":\"$empty\",\"size\":2}"
image="{\"schemaVersion\":2,\"mediaType\":\"$manifest\",\"config\":$blob,\"layers\":[$blob]}"
subject="{\"mediaType\":\"$manifest\",\"digest\":\"$(digest "$image")\",\"size\":${#image}}"

push() { # repository, manifest
    curl -sf -o "$work/pushed-$BASHPID" -X PUT -H "Content-Type: $manifest" --data-raw "$2" \
        "$base/$1/manifests/$(digest "$2")"
}

referrer() { # number
    printf '{"schemaVersion":2,"mediaType":"%s","artifactType":"test/x","config":%s,"layers":[%s],"subject":%s,' \
        "$manifest" "$blob" "$blob" "$subject"
    printf '"annotations":{"number":"%s"}}' "$1"
}

rounds_with_loss=0
for round in 1 2 3 4 5 6 7 8; do
    curl -sf -o "$work/answer" -X POST --data-raw '{}' -H 'Content-Type: application/octet-stream' \
        "$base/$round/blobs/uploads/?digest=$empty"
    push "$round" "$image"
    pushes=()
    for number in 1 2 3 4 5 6 7 8; do
        push "$round" "$(referrer "$number")" &
        pushes+=($!)
    done
    for each in "${pushes[@]}"; do wait "$each"; done
    listed=$(curl -sf "$base/$round/referrers/$(digest "$image")" |
        python3 -c 'import json, sys; print(len(json.load(sys.stdin)["manifests"] or []))')
    echo "round $round: 8 pushes were answered with success, $listed referrers are listed"
    [ "$listed" = 8 ] || rounds_with_loss=$((rounds_with_loss + 1))
done
echo "olareg v0.1.2: referrers were lost in $rounds_with_loss of 8 rounds"
[ "$rounds_with_loss" -gt 0 ]

#!/bin/sh
# `helm test`: one streamed completion through the whole cluster. POSIX sh and curl only.
#   URL    the routers' Service
#   MODEL  name in the API
# Sends the first of the API keys, where there are any. Certificates of the Service are not looked at: it is called inside.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/header"
keys=${KEYS_FILE:-/etc/baton/api-keys/keys}
[ ! -f "$keys" ] || printf 'Authorization: Bearer %s\n' "$(sed -n '/./{p;q;}' "$keys")" >"$work/header"

printf '{"model": "%s", "prompt": "One, two, three,", "max_tokens": 8, "stream": true}' "$MODEL" >"$work/body"
curl --fail-with-body --silent --show-error --no-buffer --insecure --max-time 120 --retry 10 --retry-delay 3 \
  --retry-connrefused --header "@$work/header" --header 'Content-Type: application/json' --data "@$work/body" \
  "$URL/v1/completions" | tee "$work/answer"

grep -q '"text"' "$work/answer" || { echo "stream-completion: the stream has no text" >&2; exit 1; }
grep -q '^data: \[DONE\]' "$work/answer" || { echo "stream-completion: the stream has no end" >&2; exit 1; }
echo "stream-completion: $MODEL answers at $URL"

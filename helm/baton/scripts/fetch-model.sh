#!/bin/sh
# Fetches a model's files from Hugging Face into $TARGET, before routers and workers start. POSIX sh and curl only.
#   HF_ENDPOINT, HF_REPOSITORY, HF_REVISION   what to fetch, from where
#   HF_FILES, HF_SKIP                         shell patterns, separated by blanks: fetched, and not
#   HF_TOKEN                                  sent if set; never on a command line
# A file has its name only once it is whole, so several pods may fill one claim, and a restarted one fetches only what is missing.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
header="$work/header"
: >"$header"
[ -z "${HF_TOKEN:-}" ] || printf 'Authorization: Bearer %s\n' "$HF_TOKEN" >"$header"

fetch() { curl --fail --silent --show-error --location --retry 5 --header "@$header" "$@"; }

matches() { # NAME PATTERN...
  name=$1
  shift
  for pattern in "$@"; do
    # shellcheck disable=SC2254  # the pattern is one
    case "$name" in $pattern) return 0 ;; esac
  done
  return 1
}

set -f # patterns are for the repository's names, not for this folder's
fetch "$HF_ENDPOINT/api/models/$HF_REPOSITORY/revision/$HF_REVISION" >"$work/model.json"
# Of the answer only the files' names matter: "siblings": [{"rfilename": "config.json"}, ...]
grep -o '"rfilename" *: *"[^"]*"' "$work/model.json" | sed 's/.*: *"//; s/"$//' >"$work/names"

fetched=0
while read -r name; do
  # shellcheck disable=SC2086  # several patterns
  matches "$name" $HF_FILES || continue
  # shellcheck disable=SC2086
  if matches "$name" $HF_SKIP; then continue; fi
  case "/$name/" in */../*) echo "fetch-model: got the file name $name, want one below the repository" >&2; exit 1 ;; esac
  fetched=$((fetched + 1))
  [ ! -e "$TARGET/$name" ] || continue
  mkdir -p "$(dirname "$TARGET/$name")"
  part="$TARGET/$name.$(hostname).part"
  echo "fetch-model: $name"
  # From the start each time: curl takes the answer 416 to a continued request for "there is no more", which a part of
  # something else, or a server without ranges, may get as well.
  fetch --output "$part" "$HF_ENDPOINT/$HF_REPOSITORY/resolve/$HF_REVISION/$name"
  mv "$part" "$TARGET/$name"
done <"$work/names"

if [ "$fetched" -eq 0 ]; then
  echo "fetch-model: no file of $HF_REPOSITORY at $HF_REVISION matches $HF_FILES" >&2
  exit 1
fi
echo "fetch-model: $fetched files in $TARGET"

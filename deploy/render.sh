#!/bin/sh
# Fill in what differs between clusters: sh deploy/render.sh OUT_FOLDER, with every word below in the environment. See docs/deploy.md.
set -eu
out=${1:?where to write: sh deploy/render.sh OUT_FOLDER}
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
words="PROJECT_ID REGION REGISTRY GIT_SHA ARTIFACT_BUCKET LOG_BUCKET PG_HOST PG_CIDR API_SERVER_CIDR DOMAIN WEB_URL VIEWER_URL OPERATORS IMAGE_DIGEST PROXY_IMAGE"
script=""
for word in $words; do
    eval "value=\${$word:-}"
    if [ -z "$value" ]; then
        echo "render: \$$word is not set; needed: $words" >&2
        exit 1
    fi
    # addresses with commas become lines of a YAML string
    [ "$word" != OPERATORS ] || value=$(printf %s "$value" | sed 's/,/\\\\n/g')
    script="$script;s|@$word@|$value|g"
done
case "$IMAGE_DIGEST $PROXY_IMAGE" in
    sha256:*" "*@sha256:*) ;;
    *) echo "render: IMAGE_DIGEST is '$IMAGE_DIGEST' and PROXY_IMAGE '$PROXY_IMAGE'; give sha256:... and NAME@sha256:..." >&2; exit 1 ;;
esac
mkdir -p "$out"
for file in "$here"/kubernetes/*.yaml "$here"/helm/values.yaml; do
    sed "${script#;}" "$file" > "$out/$(basename "$file")"
done
if grep -rnE '@[A-Z_]+@' "$out"; then
    echo "render: the words above have no value" >&2
    exit 1
fi

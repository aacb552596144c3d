#!/bin/sh
# Post-renderer of Helm: every image of the chart gets its digest from $IMAGES_LOCK (deploy/pin_images.py).
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
exec "$here/../.venv/bin/python" "$here/pin_images.py" "${IMAGES_LOCK:?the file with the digests of images (docs/deploy.md, section 5)}"

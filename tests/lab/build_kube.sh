#!/bin/bash
# Build kube-apiserver, kube-controller-manager and kube-scheduler (v1.20.2) from Debian 12's own source package, and unpack its etcd:
#   bash tests/lab/build_kube.sh [OUT_DIR]        five minutes of two idle cores once, 3 GB of disk while it runs, 300 MB after
# OUT_DIR is $MARIN_KUBE, or marin/kube-1.20.2 in the user's cache. Go is Debian 11's 1.15, for which that release was written:
# with Debian 12's Go 1.19 the API server dies at the first custom resource. Nothing is installed on the system, and nothing is
# built where $KUBEBUILDER_ASSETS has all four binaries (of any release; only 1.20 has been run).
set -euo pipefail
assets=${KUBEBUILDER_ASSETS:-}
if [ -n "$assets" ] && [ -x "$assets/etcd" ] && [ -x "$assets/kube-apiserver" ] && [ -x "$assets/kube-controller-manager" ] &&
    [ -x "$assets/kube-scheduler" ]; then
    exit 0
fi
out=${1:-${MARIN_KUBE:-${XDG_CACHE_HOME:-$HOME/.cache}/marin/kube-1.20.2}}
mkdir -p "$out" && out=$(cd "$out" && pwd)
missing=
for binary in kube-apiserver kube-controller-manager kube-scheduler etcd; do
    [ -x "$out/$binary" ] || missing="$missing $binary"
done
[ -n "$missing" ] || exit 0
echo "cluster-test:$missing not in $out: building once, about five minutes of two cores" >&2
for tool in dpkg-source make rsync openssl; do
    command -v $tool >/dev/null || { echo "cluster-test: needs $tool (Debian: dpkg-dev make rsync openssl)" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/var/tmp}/marin-kube.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mirror=$(awk '/^URIs:/{print $2; exit}' /etc/apt/sources.list.d/debian.sources)
key=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p lists/partial cache/archives/partial
cat >sources.list <<END
deb-src [signed-by=$key] $mirror bookworm main
deb [signed-by=$key] $mirror bookworm main
deb [signed-by=$key] $mirror bullseye main
END
cat >apt.conf <<END
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG=$work/apt.conf
apt-get update -qq
apt-get source -qq --download-only kubernetes
apt-get download -qq golang-1.15-go golang-1.15-src etcd-server/bookworm
for package in golang-1.15-*.deb etcd-server_*.deb; do dpkg -x "$package" unpacked; done
install -m 755 unpacked/usr/bin/etcd "$out"
dpkg-source --no-check -x kubernetes_*.dsc kube >/dev/null
mkdir -p kube/.go/src/k8s.io && ln -sfn ../../.. kube/.go/src/k8s.io/kubernetes
cd kube
export GOROOT=$work/unpacked/usr/lib/go-1.15 GOPATH=$PWD/.go CGO_ENABLED=0 HOME=$work GOLDFLAGS="-s -w"
export PATH=$GOROOT/bin:$PATH
export KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=clean KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20
make WHAT="cmd/kube-apiserver cmd/kube-controller-manager cmd/kube-scheduler" >"$work/build.log" 2>&1 ||
    { tail -30 "$work/build.log" >&2; exit 1; }
install -m 755 _output/local/bin/linux/amd64/kube-{apiserver,controller-manager,scheduler} "$out"
"$out/kube-apiserver" --version >&2

#!/usr/bin/env bash
# Builds Kubernetes' API server, controller manager, scheduler and kubectl, and kwok, from their Go modules: once, in
# the cache directory of the user. Prints the directory of the programs. The first build takes some 14 minutes of CPU.
set -euo pipefail
cd "$(dirname "$0")/k8s"

version() { GOFLAGS=-mod=mod go list -m -f '{{.Version}}' "$1"; }
kubernetes=$(version k8s.io/kubernetes)
kwok=$(version sigs.k8s.io/kwok)
bin=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/k8s-$kubernetes-kwok-$kwok

mkdir -p "$bin"
exec 9>"$bin.lock"
flock 9 # another checkout may build the same
work=$bin/.build
trap '[[ ! -e $work ]] || { chmod -R u+w "$work"; rm -rf "$work"; }' EXIT

# build PACKAGE FLAG...: the programs share most packages, so the first one takes the time.
build() {
	local package=$1 program
	program=$(basename "$package")
	[[ -x $bin/$program ]] && return
	mkdir -p "$work"
	CGO_ENABLED=0 go build -trimpath "${@:2}" -o "$work/$program" "$package" 1>&2
	mv "$work/$program" "$bin/$program"
}

# The programs say their version to each other, and the API server refuses to be without one.
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $package.gitVersion=$kubernetes"
done
minor=${kubernetes#v1.} minor=${minor%%.*}
flags+=" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor"
for program in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
	build "k8s.io/kubernetes/cmd/$program" -ldflags "$flags"
done

# This kwok names a constant that this Kubernetes has no longer. Its value is the same in both.
if [[ ! -x $bin/kwok ]]; then
	mkdir -p "$work"
	cp -r "$(GOFLAGS=-mod=mod go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)" "$work/kwok-module"
	chmod -R u+w "$work/kwok-module"
	grep -rl metav1.InitialEventsListBlueprintAnnotationKey "$work/kwok-module/pkg" |
		xargs sed -i 's|metav1.InitialEventsListBlueprintAnnotationKey|"kubernetes.io/initial-events-list-blueprint"|'
	cp go.mod go.sum "$work/"
	go mod edit -replace "sigs.k8s.io/kwok=$work/kwok-module" "$work/go.mod"
	build sigs.k8s.io/kwok/cmd/kwok -modfile "$work/go.mod" -mod=mod -ldflags "-s -w"
fi
echo "$bin"

#!/usr/bin/env bash
# Makes what docker would pull, from Debian packages and programs that lie here: kind's node image, and
# Debian with a C compiler, on which the base image of deploy/Dockerfile stands.
#   images.sh OUT KUBE CONTAINERD COREDNS KIND
# OUT/storage becomes a store of podman. KUBE holds kube and pause, CONTAINERD containerd, its shim and ctr;
# COREDNS is the program, KIND the version of kind's module, which holds the node's files and manifests.
set -euo pipefail
out=$1 kube=$2 containerd=$3 coredns=$4
kind=$(cd / && go mod download -json "sigs.k8s.io/kind@v$5" | jq -r .Dir)
here=$(dirname "$(realpath "$0")")
work=$out run=$(mktemp -d /run/leasehold-images-XXXX) images=
node=$out/node cluster=$out/cluster base=$out/base
finish() {
  umount "$out/storage/overlay" 2>/dev/null || true
  rm -rf "$run" "$node" "$cluster" "$base" "$out/"{tmp,libpod,networks,images.tar}
}
trap finish EXIT
. "$here/podman.sh"

# The release whose systemd still takes cgroups of version 1.
mirror=$(awk '/^URIs/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
debian() { # folder packages variant
  mmdebstrap --quiet --variant="$3" --include="$2" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$1" ${mirror:+"$mirror"}
}

# 1. Every component of a cluster, with the tools that they call, as one layer of several images.
debian "$cluster" nftables,iptables,conntrack extract
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
  ln -sf xtables-nft-multi "$cluster/usr/sbin/$name"
done
install -D -t "$cluster/usr/local/bin" "$kube/kube"
install -t "$cluster" "$coredns" "$kube/pause"
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kindnetd; do
  ln -s kube "$cluster/usr/local/bin/$name"
done
tar --directory "$cluster" --create . |
  podman import --quiet --change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin' - localhost/cluster
names=()
image() { # entrypoint names...
  local tags=() name
  for name in "${@:2}"; do tags+=(--tag "$name"); done
  podman build --quiet "${tags[@]}" --file - "$out/tmp" <<C
FROM localhost/cluster
ENTRYPOINT ["$1"]
C
  names+=("${@:2}")
}
version=$("$kube/kube" kubectl version --client --output json | jq -r .clientVersion.gitVersion)
wanted=$("$kube/kube" kubeadm config images list --kubernetes-version "$version")
pauses=$(sed -n 's/^ *sandbox_image = "\(.*\)"/\1/p' "$kind/images/base/files/etc/containerd/config.toml")
kindnet=$(sed -n 's/^const kindnetdImage = "\(.*\)"/\1/p' "$kind/pkg/build/nodeimage/const_cni.go")
image /usr/local/bin/kube $(grep -v '/coredns\|/pause' <<<"$wanted")
image /coredns $(grep /coredns <<<"$wanted")
image /pause $(printf '%s\n' $pauses $(grep /pause <<<"$wanted") | sort -u)
image /usr/local/bin/kindnetd "$kindnet"
podman save --quiet --multi-image-archive --output "$out/images.tar" "${names[@]}"
rm -rf "$cluster"

# 2. The node: Debian, kind's own files as in the Dockerfile of its base image, and the programs.
debian "$node" systemd,systemd-sysv,dbus,conntrack,iptables,nftables,iproute2,ethtool,mount,kmod,pigz,e2fsprogs,bash,ca-certificates,curl,jq,procps,runc,containernetworking-plugins minbase
files=$kind/images/base/files
install -D -t "$node/usr/local/bin" "$files"/usr/local/bin/*
install -D -t "$node/kind/bin" "$files"/kind/bin/*
(cd "$files" && find etc -type f -exec install -D -m 0644 {} "$node/{}" \;)
(
  cd "$node"
  rm -f etc/systemd/system/{containerd-fuse-overlayfs.service,*.wants/*}
  cd lib/systemd/system
  rm -f sysinit.target.wants/systemd-tmpfiles-setup.service {multi-user,local-fs,basic}.target.wants/* \
    sockets.target.wants/*{udev,initctl}*
)
echo ReadKMsg=no >>"$node/etc/systemd/journald.conf"
ln -sf /usr/lib/systemd/systemd "$node/sbin/init"
for unit in kubelet containerd undo-mount-hacks; do systemctl --root="$node" --quiet enable "$unit.service"; done
systemctl --root="$node" --quiet mask systemd-binfmt.service
mkdir -p "$node"/etc/kubernetes/manifests "$node"/opt/cni/bin "$node"/kind/manifests
ln -sf /usr/lib/cni/{host-local,loopback,ptp,portmap,bridge} "$node/opt/cni/bin/"
install -t "$node/usr/bin" "$kube/kube"
for name in kubelet kubeadm kubectl; do ln -s kube "$node/usr/bin/$name"; done
install -t "$node/usr/local/bin" "$containerd"/{containerd,ctr,containerd-shim-runc-v2}
echo "$version" >"$node/kind/version"
sed -n '/^const defaultCNIManifest = `/,/^`$/p' "$kind/pkg/build/nodeimage/const_cni.go" |
  sed "1d; \$d; s|\` + kindnetdImage + \`|$kindnet|" >"$node/kind/manifests/default-cni.yaml"
# Where a machine withholds CAP_SYS_RESOURCE, scores cannot be lowered; some still have cgroups of version 1.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$node/etc/containerd/config.toml"
sed -i 's/$/ --fail-cgroupv1=false/' "$node/etc/default/kubelet"
# Kernel settings are the machine's: the kubelet sees them as it wants them, and systemd leaves them alone.
install "$here/pretend.sh" "$node/kind/bin/pretend.sh"
printf '[Service]\nExecStartPre=/kind/bin/pretend.sh\n' >"$node/etc/systemd/system/kubelet.service.d/12-pretend.conf"
rm -f "$node"/usr/lib/sysctl.d/{50-pid-max,99-protect-links}.conf
rm -rf "$node"/var/{cache/apt,lib/apt/lists,log}/*
: >"$node/etc/machine-id"
chroot "$node" ctr oci spec |
  jq '.hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
    >"$node/etc/containerd/cri-base.json"
# The images, unpacked into the store of its containerd.
ln "$out/images.tar" "$node/images.tar"
unshare --mount --pid --net --fork --kill-child=KILL --propagation private bash -euc '
  cd "$0"; mount -t proc proc proc; mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp
  mount --rbind /dev dev; mount -t sysfs sysfs sys
  chroot . bash -euc "
    containerd --log-level warn >/tmp/log 2>&1 &
    trap \"cat /tmp/log\" ERR
    until ctr version >/dev/null 2>&1; do kill -0 %1; sleep 0.1; done
    ctr --namespace k8s.io images import --discard-unpacked-layers --local /images.tar >/dev/null
    kill %1; wait || true"' "$node"
rm "$node/images.tar"
tar --directory "$node" --create . | podman import --quiet --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' \
  --change 'ENV container=docker' --change 'STOPSIGNAL 37' - localhost/kindest/node:own

# 3. Debian with a C compiler.
debian "$base" gcc,libc6-dev,ca-certificates,binutils minbase
tar --directory "$base" --create . | podman import --quiet - localhost/debian
podman image rm --force localhost/cluster "${names[@]}" >/dev/null

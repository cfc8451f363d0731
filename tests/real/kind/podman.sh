# Sourced: a podman of its own in folder $work, beside whatever the machine has. With $images, that store
# is there too, read only.
mkdir -p "$work/networks" "$work/tmp"
cat >"$work/containers.conf" <<C
[containers]
pids_limit = 0
log_driver = "k8s-file"
# Not above the machine's: raising a limit needs a right that is often withheld.
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=30000:30000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
# crun does not know machines that have cgroups of both versions.
runtime = "runc"
stop_timeout = 1
tmp_dir = "$run/libpod"
static_dir = "$work/libpod"
volume_path = "$work/volumes"
[network]
network_backend = "netavark"
network_config_dir = "$work/networks"
C
cat >"$work/storage.conf" <<C
[storage]
driver = "overlay"
graphroot = "$work/storage"
runroot = "$run/storage"
[storage.options]
additionalimagestores = [${images:+\"$images\"}]
C
printf 'unqualified-search-registries = []\nshort-name-mode = "permissive"\n' >"$work/registries.conf"
export CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf
export CONTAINERS_REGISTRIES_CONF=$work/registries.conf TMPDIR=$work/tmp

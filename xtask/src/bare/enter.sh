# Enters a minimal Debian and runs one command of a copy of this project there, with this machine's Rust toolchain, read
# only: sh -euc SCRIPT bare ROOT TOOLCHAIN COMMAND…. Its mounts are in a namespace of their own and end with it.
root=$1 toolchain=$2
shift 2

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs bare "$root/run"
mount -t tmpfs bare "$root/tmp"
mkdir -p "$root/opt/rust"
mount --bind "$toolchain" "$root/opt/rust"
mount -o remount,bind,ro "$root/opt/rust"
# The machine's own variables go along (proxies, certificates), except those that name its folders.
unset CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN CARGO_TARGET_DIR CARGO CARGO_MANIFEST_DIR LD_LIBRARY_PATH
unset GOVERNOR_TOOLS GOVERNOR_EBPF_OBJECT PIP_FIND_LINKS PYTHONPATH TMPDIR
export HOME=/root CARGO_HOME=/root/.cargo PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin
# Not by chroot: the kernel makes no user namespace for a process whose root is not that of its mount namespace.
cd "$root"
pivot_root . .
umount -l .
exec chroot . sh -c 'cd /governor && exec "$@"' sh "$@"

#!/bin/busybox sh
# First program of the test machine: makes it habitable, runs the kernel tests, says what came of it, turns it off.
# Lines that begin with "VM " are read by xtask; see console.rs.
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp /run/netns
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
mount -t securityfs securityfs /sys/kernel/security
exec </dev/null >/dev/console 2>&1
# busybox has an `ip` too, but not the one the tests know.
export PATH=/tools:/bin HOME=/tmp RUST_BACKTRACE=1
for module in /modules/*; do
    case "$module" in
    *.xz) xzcat "$module" >/tmp/module.ko ;;
    *) cp "$module" /tmp/module.ko ;;
    esac
    insmod /tmp/module.ko
done
rm -f /tmp/module.ko
ip link set lo up
ulimit -n 20000
echo "VM KERNEL $(uname -r) $(uname -v)"
. /settings
# What the kernel offers comes first, so that it is known even when the tests do not end.
"$tests" --show-output report::
"$tests" --test-threads=1 --show-output --skip report:: $arguments
echo "VM EXIT $?"
poweroff -f

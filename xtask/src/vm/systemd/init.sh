#!/bin/busybox sh
# First program of a machine with a disk: loads what the disk needs, mounts it, and starts its own init (systemd). The disk is
# a real mount, because a unit's mount namespace is made by pivot_root, which a file system in the initramfs does not allow.
/bin/busybox mkdir -p /bin /proc /sys /dev /disk
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/null >/dev/console 2>&1
for module in /modules/*; do
    case "$module" in
    *.xz) xzcat "$module" >/module.ko ;;
    *) cp "$module" /module.ko ;;
    esac
    insmod /module.ko || echo "MACHINE FAILED: module $module"
done
rm -f /module.ko
tries=0
until [ -b /dev/vda ] || [ "$tries" -gt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
if ! mount -t ext4 -o rw,noatime /dev/vda /disk; then
    echo "MACHINE FAILED: the disk cannot be mounted"
    poweroff -f
fi
umount /sys /proc
umount -l /dev
exec switch_root /disk /lib/systemd/systemd

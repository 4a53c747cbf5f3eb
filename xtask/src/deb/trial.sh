# Installs a package in a copy of this machine, starts what it installed, removes and purges it, and holds what is left
# against what was there. Runs in mount, network and process namespaces of its own: sh -euc SCRIPT trial PACKAGE FOLDER.
# Ends with 77 where no copy can be made.
package=$1 place=$2 root=$2/root

not_here() { echo "$*" >&2; exit 77; }
fail() { echo "$*" >&2; cat "$place/log" >&2 2>/dev/null || true; exit 1; }
say() { echo "deb: $*"; }
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin NO_COLOR=1 "$@"; }

# What differs from the machine, but for dpkg's own notes: files, what was deleted, and folders that are new.
differs() {
    (cd "$place/upper" && find . ! -type d ! -path './var/lib/dpkg/*' ! -path './var/log/*' ! -path './var/cache/*' -print
        find . -type d ! -path './var/lib/dpkg/*' ! -path './var/cache/*' -print | while read -r folder; do
            [ -d "/$folder" ] || echo "$folder"
        done) | sort
}

mount -t tmpfs -o mode=755 trial "$place" || not_here "no tmpfs can be mounted"
mkdir "$place/upper" "$place/work" "$root"
mount -t overlay trial -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$root" 2>/dev/null ||
    not_here "this machine cannot be copied by an overlay"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs trial "$root/run"
mount -t tmpfs trial "$root/tmp"
mount -t bpf bpf "$root/sys/fs/bpf" || true
ip link set lo up
cp "$package" "$root/tmp/governor.deb"

inside dpkg --no-triggers --install /tmp/governor.deb >"$place/log" 2>&1 || fail "it cannot be installed"
say "installed: $(differs | wc -l) files and folders"
inside /usr/sbin/governord --check >"$place/log" 2>&1 || fail "its configuration is not valid"
unit=/usr/lib/systemd/system/governord.service
if inside sh -c 'command -v systemd-analyze' >/dev/null; then
    inside systemd-analyze verify --man=no "$unit" >"$place/log" 2>&1 || fail "its unit is not valid"
    inside systemd-analyze security --offline=true --no-pager "$unit" >"$place/log" 2>&1 || fail "its unit cannot be judged"
    exposure=$(sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p' "$place/log")
    say "exposure of the unit: $exposure"
    # What is left it needs: see the unit.
    [ "$(echo "$exposure" | tr -d .)" -le 26 ] || fail "its unit is less closed than it was"
fi
for file in /usr/share/man/man1/governorctl-tune.1.gz /usr/share/man/man8/governord.8.gz \
    /usr/share/bash-completion/completions/governorctl; do
    [ -s "$root$file" ] || fail "$file is missing"
done

# As systemd would, but for what it closes.
# shellcheck disable=SC2046
chroot "$root" env -i $(sed -n 's/^ExecStart=//p' "$root$unit") >"$place/log" 2>&1 &
daemon=$!
tries=0
until inside governorctl status >"$place/status" 2>&1; do
    kill -0 "$daemon" 2>/dev/null || fail "it ended by itself"
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || fail "it does not answer"
    sleep 0.1
done
inside governorctl config | grep -q 'tuner\.mode *observe' || fail "it does not only observe"
inside governorctl tune >"$place/status" 2>&1 || fail "its command line does not work"
kill -TERM "$daemon"
wait "$daemon" || fail "it did not stop cleanly"
[ -z "$(ls -A "$root/run/governor" 2>/dev/null)" ] || fail "it left something in /run"
say "started, asked and stopped"

inside dpkg --no-triggers --remove governor >"$place/log" 2>&1 || fail "it cannot be removed"
[ -e "$root/etc/governor/governor.toml" ] || fail "removing took the configuration away"
[ ! -e "$root/usr/sbin/governord" ] || fail "removing left the daemon"
inside dpkg --no-triggers --purge governor >"$place/log" 2>&1 || fail "it cannot be purged"
left=$(differs)
[ -z "$left" ] || fail "purging leaves: $left"
say "removed and purged: nothing is left"

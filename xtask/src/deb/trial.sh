# Installs a package in a copy of this machine, starts what it installed, removes and purges it, and holds what is left
# against what was there. The daemon runs confined by its unit's own filter of system calls, bounding set, namespaces and
# address families, serves a proxy and tunes a server that are not root. Mounts, devices and cgroups are left to a real
# systemd (`cargo xtask vm --systemd`). Runs in mount, network and process namespaces of its own:
# sh -euc SCRIPT trial PACKAGE FOLDER TEST-FIELD. Ends with 77 where no copy can be made.
package=$1 place=$2 root=$2/root field=$3

not_here() { echo "$*" >&2; exit 77; }
fail() { echo "$*" >&2; cat "$place/log" >&2 2>/dev/null || true; exit 1; }
say() { echo "deb: $*"; }
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin NO_COLOR=1 "$@"; }
# Neither root nor its group; of the group the sockets are given to.
plain="setpriv --reuid=65534 --regid=1 --clear-groups"

# Waits until a command succeeds, 30 s at most, for as long as the daemon runs.
until_true() {
    what=$1 tries=0
    shift
    until "$@"; do
        kill -0 "$daemon" 2>/dev/null || fail "the daemon ended by itself"
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$what"
        sleep 0.1
    done
}

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
cp "$field" "$root/tmp/test-field"

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
    [ "$(echo "$exposure" | tr -d .)" -le 31 ] || fail "its unit is less closed than it was"
fi
for file in /usr/share/man/man1/governorctl-tune.1.gz /usr/share/man/man8/governord.8.gz \
    /usr/share/bash-completion/completions/governorctl; do
    [ -s "$root$file" ] || fail "$file is missing"
done

cat >"$root/tmp/trial.toml" <<'END'
[daemon]
socket_group = "daemon"
control_group = "daemon"
[tuner]
mode = "enforce"
[[pools.chat.members]]
name = "a"
slots = 2
END

answers() { inside governorctl status >"$place/status" 2>&1; }
start="$(sed -n 's/^ExecStart=//p' "$root$unit")"
# shellcheck disable=SC2086
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin $start --check >"$place/log" 2>&1 || fail "its own configuration is not valid"
# shellcheck disable=SC2086
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin GOVERNOR_CONFIG=/tmp/trial.toml \
    /tmp/test-field confine "$unit" $start >"$place/log" 2>&1 &
daemon=$!
until_true "it does not answer" answers
# shellcheck disable=SC2010
for socket in proxy.sock control.sock; do
    group=$(stat -c %G "$root/run/governor/$socket") || fail "no socket $socket"
    [ "$group" = daemon ] || fail "$socket belongs to the group $group, not daemon"
done
say "started confined: tier $(inside governorctl --format json status | sed -n 's/.*"tier": "\([a-z]*\)".*/\1/p' | head -n 1), sockets of the group daemon"

# shellcheck disable=SC2086
inside $plain /tmp/test-field serve 5 12 >"$place/port" 2>>"$place/log" &
server=$!
until_true "the server does not start" [ -s "$place/port" ]
port=$(cat "$place/port")
backlog() { inside ss -Hltn "sport = :$port" | awk '{ print $3 }'; }
raised() { [ "$(backlog)" -gt 5 ]; }
until_true "the backlog of a server that is not root is not raised" raised
say "raised the backlog of a server that is not root: 5 to $(backlog)"
kill -TERM "$server"
wait "$server" || true

mkfifo "$place/held"
# shellcheck disable=SC2086
inside $plain /tmp/test-field admit /run/governor/proxy.sock chat <"$place/held" >"$place/granted" 2>>"$place/log" &
proxy=$!
exec 3>"$place/held"
until_true "a proxy that is not root gets no slot" [ -s "$place/granted" ]
inside governorctl leases | grep -q test-field || inside governorctl --format json pools | grep -q '"in_flight": 1' ||
    fail "its lease is not counted"
exec 3>&-
wait "$proxy" || fail "the proxy did not end well"
say "admitted a proxy that is not root"

inside governorctl config | grep -q 'tuner\.mode *enforce' || fail "its configuration is not in force"
inside governorctl reload >"$place/status" 2>&1 || fail "it does not reload"
inside governorctl tune >"$place/status" 2>&1 || fail "its command line does not work"
kill -TERM "$daemon"
wait "$daemon" || fail "it did not stop cleanly"
[ -z "$(ls -A "$root/run/governor" 2>/dev/null)" ] || fail "it left something in /run"
say "reloaded and stopped"

inside dpkg --no-triggers --remove governor >"$place/log" 2>&1 || fail "it cannot be removed"
[ -e "$root/etc/governor/governor.toml" ] || fail "removing took the configuration away"
[ ! -e "$root/usr/sbin/governord" ] || fail "removing left the daemon"
inside dpkg --no-triggers --purge governor >"$place/log" 2>&1 || fail "it cannot be purged"
left=$(differs)
[ -z "$left" ] || fail "purging leaves: $left"
say "removed and purged: nothing is left"

#!/bin/sh
# Installs the package under this machine's systemd, uses it as an administrator would, and purges it. Everything is started
# and stopped by systemd; nothing of its sandbox is imitated. Lines that begin with "MACHINE " are read by xtask.
set -eu
export LC_ALL=C NO_COLOR=1 PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_PAGER=
unit=/lib/systemd/system/governord.service
config=/etc/governor/governor.toml

say() { echo "MACHINE $(cut -d. -f1 /proc/uptime) s: $*"; }
fail() {
    echo "MACHINE FAILED: $*"
    systemctl --no-pager status governord || true
    journalctl --no-pager --lines 60 || true
    exit 1
}
property() { systemctl show governord --property "$1" --value; }
pid() { property MainPID; }
answers() { governorctl status >/dev/null 2>&1 || [ $? -eq 1 ]; }
until_true() {
    what=$1 tries=0
    shift
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "$what"
        sleep 0.2
    done
}
# Neither root nor of its group; of the group that the sockets are given to.
as_nobody="setpriv --reuid=65534 --regid=1 --clear-groups"
# Every file, but for the notes of dpkg, systemd and the journal.
files() {
    find / -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/systemd -o -path /tmp \
        -o -path /var/tmp -o -path /trial \) -prune -o -print | sort
}

say "$(systemctl --version | head -n 1), Linux $(uname -r)"
files >/trial/before

# --- install
dpkg --install /trial/governor.deb >/trial/log 2>&1 || fail "not installed: $(cat /trial/log)"
[ "$(property ActiveState)" = active ] || fail "the package does not start its unit"
[ "$(property Type) $(property NotifyAccess)" = "notify main" ] || fail "the unit is not notified"
until_true "no answer" answers
! journalctl --no-pager --unit governord | grep -q 'degraded: counts end' || fail "the sandbox forbids pins"
governorctl config | grep -q 'tuner\.mode *observe' || fail "more than observation without a configuration"
say "installed and started: $(property StatusText), $(governorctl status | head -n 1)"

# --- confinement: what systemd applied, held against the reading of the unit that the other tests use
systemd-analyze security --no-pager governord.service >/trial/log 2>&1 || true
say "$(sed -n 's/.*Overall exposure level/exposure level/p' /trial/log)"
property SystemCallFilter | tr ' ' '\n' | sed '/^$/d' | sort >/trial/applied
/trial/test-field calls "$unit" >/trial/read
sed 's/ here$//' /trial/read | sort >/trial/all
sed -n 's/ here$//p' /trial/read | sort >/trial/here
# Both lists have names of other architectures, but not the same ones.
extra=$(comm -23 /trial/applied /trial/all | tr '\n' ' ')
[ -z "$extra" ] || fail "systemd allows what the tests do not know of: $extra"
# Calls that are newer than Debian 12's libseccomp have no number there: systemd leaves them out.
missing=$(comm -13 /trial/applied /trial/here | grep -vx uretprobe | tr '\n' ' ')
[ -z "$missing" ] || fail "systemd does not allow what the tests allow: $missing"
say "effective filter: $(wc -l </trial/here) calls of this architecture, the same as in the tests"
for call in bpf perf_event_open pidfd_getfd pidfd_open setns; do
    grep -qx "$call" /trial/applied || fail "the effective filter lacks $call"
done
for call in io_uring_setup io_uring_enter userfaultfd process_vm_readv process_vm_writev ptrace kcmp mount; do
    ! grep -qx "$call" /trial/applied || fail "the effective filter allows $call"
done
status() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(pid)/status"; }
[ "$(status Seccomp) $(status NoNewPrivs)" = "2 1" ] || fail "no filter or new privileges"
say "capabilities of the process: effective $(status CapEff), bounding $(status CapBnd); $(property CapabilityBoundingSet)"
say "limits: memory $(property MemoryMax) (now $(property MemoryCurrent)), tasks $(property TasksMax) (now $(property TasksCurrent)), watchdog $(property WatchdogUSec)"

# --- a configuration with groups of its own, by restart
cat >"$config" <<'END'
[daemon]
socket_group = "daemon"
control_group = "daemon"
[tuner]
mode = "enforce"
[[pools.chat.members]]
name = "a"
slots = 2
END
systemctl restart governord || fail "no restart with socket groups"
for socket in proxy.sock control.sock; do
    [ "$(stat -c %G "/run/governor/$socket")" = daemon ] || fail "$socket is not of the group daemon"
done
say "restarted with socket_group and control_group: $(stat -c '%n %U:%G %a' /run/governor/proxy.sock)"

# --- the backlog of a server that is not root
systemd-run --quiet --unit server --uid 65534 --gid 65534 --property StandardOutput=file:/run/port \
    /trial/test-field serve 5 12 || fail "no server"
until_true "the server does not start" [ -s /run/port ]
port=$(cat /run/port)
backlog() { ss -Hltn "sport = :$port" | awk '{ print $3 }'; }
raised() { [ "$(backlog)" -gt 5 ]; }
until_true "the backlog of a server that is not root is not raised" raised
say "raised the backlog of a server of uid 65534: 5 to $(backlog)"

# --- a proxy that is not root, in a pid namespace of its own
mkfifo /run/held
# shellcheck disable=SC2086
unshare --pid --fork --kill-child --mount-proc $as_nobody \
    /trial/test-field admit /run/governor/proxy.sock chat </run/held >/run/granted 2>/run/proxy.log &
proxy=$!
exec 3>/run/held
until_true "a proxy that is not root gets no slot: $(cat /run/proxy.log)" [ -s /run/granted ]
leased() { governorctl --format json pools | grep -q '"in_flight": 1'; }
until_true "its lease is not counted" leased
say "admitted a proxy of uid 65534 in another pid namespace"

# --- reload
capacity() { governorctl --format json pools | sed -n 's/^.*"capacity": \([0-9]*\).*/\1/p' | head -n 1; }
before=$(capacity)
sed -i 's/^slots = .*/slots = 40/' "$config"
systemctl reload governord || fail "a valid file is not reloaded"
capacity=$(capacity)
[ "$capacity" -gt "$before" ] || fail "the reloaded file is not in force: capacity $capacity"
echo 'max_wait = 5' >>"$config"
! systemctl reload governord 2>/trial/log || fail "the reload of a broken file succeeds"
[ "$(property ActiveState) $(capacity)" = "active $capacity" ] || fail "a broken file changed something"
property StatusText | grep -q 'last reload failed' || fail "systemctl status does not show the failed reload"
say "reloaded; of a broken file systemctl reload says: $(head -n 1 /trial/log)"
say "and systemctl status: $(property StatusText)"
sed -i '$d' "$config"
systemctl reload governord || fail "the mended file is not reloaded"

# --- restart with hand-over
accepted() {
    governorctl --format json listeners |
        awk -v port="$port," '/"port":/ { ours = ($2 == port) } ours && /"accepted_total":/ { sub(",", "", $2); print $2; exit }'
}
before=$(accepted) old=$(pid)
[ "${before:-0}" -gt 0 ] || fail "no accepts are counted: ${before:-none}"
systemctl restart governord || fail "no restart"
[ "$(pid)" != "$old" ] || fail "the restart kept the process"
after=$(accepted)
[ "${after:-0}" -ge "$before" ] || fail "the restart lost counts: $before accepts before, ${after:-none} after"
[ "$(backlog)" -gt 5 ] || fail "the restart lowered the backlog to $(backlog)"
until_true "the lease is lost by the restart" leased
say "restarted with hand-over: accepts $before before, $after after; lease and backlog ($(backlog)) stay"

# --- a signal before the daemon is ready
old=$(pid)
systemctl restart --no-block governord
is_new() { now=$(pid) && [ "$now" != 0 ] && [ "$now" != "$old" ]; }
until_true "no new process" is_new
caught() { sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$now/status"; }
handles() { [ $((0x$(caught) & 1)) = 1 ]; }
until_true "SIGHUP has no handler" handles
early=$(property ActiveState)
kill -HUP "$now"
is_active() { [ "$(property ActiveState)" = active ]; }
until_true "SIGHUP during the start ended it" is_active
[ "$(pid) $(property NRestarts)" = "$now 0" ] || fail "SIGHUP during the start ended the process"
say "SIGHUP while $early: kept until ready"

# --- watchdog
old=$(pid)
stopped=$(cut -d. -f1 /proc/uptime)
kill -STOP "$old"
restarted() { is_new && is_active; }
until_true "a stalled daemon is not replaced" restarted
journalctl --no-pager --unit governord | grep -q 'Watchdog timeout' || fail "no watchdog timeout in the journal"
[ "$(property NRestarts)" = 1 ] || fail "$(property NRestarts) restarts"
until_true "no answer after the watchdog" answers
until_true "the lease is lost by the watchdog" leased
say "watchdog: a stalled daemon was replaced after $(($(cut -d. -f1 /proc/uptime) - stopped)) s; the lease stays"

exec 3>&-
wait "$proxy" || fail "the proxy did not end well: $(cat /run/proxy.log)"
free() { governorctl --format json pools | grep -q '"in_flight": 0'; }
until_true "the slot is not free again" free

# --- purge
systemctl stop server
dpkg --purge governor >/trial/log 2>&1 || fail "not purged: $(cat /trial/log)"
files >/trial/after
left=$(diff /trial/before /trial/after || true)
[ -z "$left" ] || fail "purging leaves: $left"
for place in /run/governor /sys/fs/bpf/governor; do
    [ ! -e "$place" ] || fail "purging leaves $place"
done
! systemctl cat governord >/dev/null 2>&1 || fail "purging leaves the unit"
! systemctl --quiet is-failed governord || fail "purging leaves a failed unit"
! grep -qx governord /proc/[0-9]*/comm || fail "purging leaves the daemon running"
say "purged: nothing is left"
echo "MACHINE PASSED"

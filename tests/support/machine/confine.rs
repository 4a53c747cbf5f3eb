//! Confines this process as a unit confines its service, as far as a process can do that to itself: bounding set, no new
//! privileges, system calls, namespaces, address families. Mounts, devices and cgroups are left to a real systemd.

use crate::machine::unit::Confinement;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, compile_from_json,
};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What a refused call returns, as the unit's SystemCallErrorNumber= says.
const REFUSED: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// Every kind of namespace: its flag and what units call it.
const NAMESPACES: [(libc::c_int, &str); 7] = [
    (libc::CLONE_NEWCGROUP, "cgroup"),
    (libc::CLONE_NEWIPC, "ipc"),
    (libc::CLONE_NEWNET, "net"),
    (libc::CLONE_NEWNS, "mnt"),
    (libc::CLONE_NEWPID, "pid"),
    (libc::CLONE_NEWUSER, "user"),
    (libc::CLONE_NEWUTS, "uts"),
];

const FAMILIES: [(libc::c_int, &str); 5] = [
    (libc::AF_UNIX, "AF_UNIX"),
    (libc::AF_INET, "AF_INET"),
    (libc::AF_INET6, "AF_INET6"),
    (libc::AF_NETLINK, "AF_NETLINK"),
    (libc::AF_PACKET, "AF_PACKET"),
];

/// Confines the calling thread, and with it what it executes.
///
/// # Errors
/// A name that is unknown here, or the kernel refuses.
pub fn confine(unit: &Confinement) -> Outcome<()> {
    for (name, capability) in CapabilitySet::all().iter_names() {
        if !unit.capabilities.contains(&format!("CAP_{name}")) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    set_no_new_privs(unit.no_new_privileges)?;
    // The filter of calls comes last: it may forbid the call that sets the others.
    apply_filter(&namespaces(&unit.namespaces)?)?;
    apply_filter(&families(&unit.families)?)?;
    apply_filter(&calls(&unit.calls)?)?;
    Ok(())
}

/// Only the calls of these names pass. Names of other architectures and of kernels newer than the table have no number: they
/// do not pass.
fn calls(names: &BTreeSet<String>) -> Outcome<BpfProgram> {
    compiled(&numbered(names))
}

/// The names that this architecture has a number for.
#[must_use]
pub fn numbered(names: &BTreeSet<String>) -> Vec<&str> {
    names.iter().filter(|name| compiled(&[name]).is_ok()).map(String::as_str).collect()
}

fn compiled(names: &[impl AsRef<str>]) -> Outcome<BpfProgram> {
    let filter: Vec<_> = names.iter().map(|name| serde_json::json!({ "syscall": name.as_ref() })).collect();
    let rules = serde_json::json!({
        "calls": { "mismatch_action": { "errno": libc::EPERM }, "match_action": "allow", "filter": filter }
    });
    let mut programs = compile_from_json(rules.to_string().as_bytes(), architecture()?)?;
    programs.remove("calls").ok_or_else(|| "the filter has another name".into())
}

/// `setns`, `unshare` and `clone` only with flags of the allowed kinds; `setns` also not with 0, which means any kind.
/// `clone3` hides its flags in memory: it does not exist, and callers use `clone` instead.
fn namespaces(allowed: &BTreeSet<String>) -> Outcome<BpfProgram> {
    let mut refused = BTreeMap::from([(libc::SYS_setns, vec![rule(1, SeccompCmpOp::Eq, 0)?])]);
    for (flag, _) in NAMESPACES.iter().filter(|(_, name)| !allowed.contains(*name)) {
        let flag = u64::try_from(*flag)?;
        for (call, argument) in [(libc::SYS_setns, 1), (libc::SYS_unshare, 0), (libc::SYS_clone, 0)] {
            refused.entry(call).or_default().push(rule(argument, SeccompCmpOp::MaskedEq(flag), flag)?);
        }
    }
    filter(refused, SeccompAction::Allow, REFUSED)
}

/// `socket` and `socketpair` only of the allowed families.
fn families(allowed: &BTreeSet<String>) -> Outcome<BpfProgram> {
    let mut numbers = Vec::new();
    for name in allowed {
        let found = FAMILIES.iter().find(|(_, known)| known == name);
        numbers.push(u64::try_from(found.ok_or_else(|| format!("what is {name}?"))?.0)?);
    }
    let others: Result<Vec<_>, _> = numbers.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family)).collect();
    let rule = SeccompRule::new(others?)?;
    filter(BTreeMap::from([(libc::SYS_socket, vec![rule])]), SeccompAction::Allow, REFUSED)
}

fn filter(
    rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Outcome<BpfProgram> {
    Ok(SeccompFilter::new(rules, otherwise, matching, architecture()?)?.try_into()?)
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Outcome<SeccompRule> {
    Ok(SeccompRule::new(vec![condition(argument, operator, value)?])?)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn architecture() -> Outcome<TargetArch> {
    Ok(std::env::consts::ARCH.try_into()?)
}

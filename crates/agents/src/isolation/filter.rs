//! System calls that are refused inside of an isolation: what would leave it, and what the rules of
//! the file system do not cover.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use super::means::{LANDLOCK_SIGNALS, landlock_abi};

/// What stands around the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enclosure {
    /// Its rules keep tracing, and mostly signals, among a command's own processes.
    Landlock,
    /// Its namespace has no other processes.
    Bubblewrap,
}

/// Refused with "not permitted": keyrings, mounts, kernel modules, the clock, handles of files.
const REFUSED: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_acct,
    libc::SYS_open_by_handle_at,
];

/// The program that decides about each call. One, because the kernel tries all calls with each.
pub(super) fn filter(around: Enclosure) -> Result<BpfProgram, String> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        refused.insert(call, vec![rule(0, SeccompCmpOp::MaskedEq(USER_NAMESPACE), USER_NAMESPACE)?]);
    }
    if around == Enclosure::Landlock && landlock_abi() < LANDLOCK_SIGNALS {
        spare_everloop(&mut refused)?;
    }
    Ok([unknown(), program(refused)?].concat())
}

/// The steps in front: these calls are as if the kernel did not have them, and callers use others.
fn unknown() -> BpfProgram {
    let step = |code: u32, jf: u8, k: u32| sock_filter { code: code as u16, jt: 0, jf, k };
    let number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let refuse = step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    // The flags of clone3 are in memory that a filter cannot read.
    let clone3 = step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_clone3 as u32);
    let mut steps = vec![number, clone3, refuse.clone()];
    if cfg!(target_arch = "x86_64") {
        // A second numbering of the same calls, which the list below does not name.
        steps.extend([step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32_CALLS), refuse]);
    }
    steps
}

/// The first number of the calls of programs with short pointers.
const X32_CALLS: u32 = 0x4000_0000;

const USER_NAMESPACE: u64 = libc::CLONE_NEWUSER as u64;

/// Signals to the shim, to the supervisor and to all processes at once are refused, where the
/// kernel does not keep signals among a command's own.
fn spare_everloop(refused: &mut BTreeMap<i64, Vec<SeccompRule>>) -> Result<(), String> {
    let (shim, supervisor) = (i64::from(std::process::id()), i64::from(nix::unistd::getppid().as_raw()));
    let targets = [shim, supervisor, -shim, -supervisor, -1];
    for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_pidfd_open] {
        let rules = targets.iter().map(|pid| rule(0, SeccompCmpOp::Eq, u64::from(*pid as u32)));
        refused.insert(call, rules.collect::<Result<_, _>>()?);
    }
    Ok(())
}

fn rule(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map_err(failed)?;
    SeccompRule::new(vec![condition]).map_err(failed)
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH.try_into().map_err(failed)?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(failed)?;
    BpfProgram::try_from(filter).map_err(failed)
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
fn failed(error: seccompiler::BackendError) -> String {
    format!("cannot make the filter of system calls: {error}")
}

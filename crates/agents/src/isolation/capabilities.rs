//! What root may do is taken from a command that runs as root; other users have nothing of it.

use everloop_core::planted::{self, Bug};
use nix::libc;

/// Powers over the kernel and over other processes, with their numbers in linux/capability.h. Those
/// over files stay: the rules about paths hold for root too.
pub(super) const DROPPED: &[(&str, libc::c_ulong)] = &[
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_SYS_MODULE", 16),
    ("CAP_SYS_RAWIO", 17),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_BOOT", 22),
    ("CAP_SYS_TIME", 25),
    ("CAP_MKNOD", 27),
    ("CAP_MAC_OVERRIDE", 32),
    ("CAP_MAC_ADMIN", 33),
    ("CAP_SYSLOG", 34),
    // Reads the environment of every process, past the check for tracing.
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
];

/// Takes them from the calling process, with effect from its next exec on.
#[expect(unsafe_code, reason = "prctl for the bounding set has no safe wrapper")]
pub(super) fn drop_all() {
    if planted::is(Bug::PowersKept) {
        return;
    }
    for (_, number) in DROPPED {
        // SAFETY: only integers are passed. The call fails for users without powers, rightly.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, *number, 0, 0, 0) };
    }
}

"""The system calls that the kernel refuses an answer's process: a seccomp filter, as its few BPF instructions.

The filter needs no rights, packages or namespaces, works in containers too, and cannot be removed. It lists what is
refused and lets the rest pass, because NumPy and torch use calls that an allow-list would miss.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER_MODE = 38, 22, 2
"prctl options, and SECCOMP_MODE_FILTER (linux/prctl.h, linux/seccomp.h)."
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"Column of `REFUSED`, and the kernel's number for the machine (AUDIT_ARCH_* in linux/audit.h)."
FOREIGN = 0x40000000
"From this number on, x86_64 has its calls a second time (x32)."

# Numbers on x86_64 and aarch64 (asm/unistd_64.h, asm-generic/unistd.h); None where a machine lacks the call. From 424
# on, the numbers are the same on all machines.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # another program, another process
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    # modes, owners, times and attributes of files, which Landlock does not cover
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open_by_handle_at": (304, 265),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setsid": (112, 157),  # the process is killed with its group
    "setpgid": (109, 154),
    # other views of the file system
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # the network; a pair of sockets within the process is still allowed
    "socket": (41, 198),
    # memory that counts towards no limit
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # large kernel interfaces that no answer needs
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    "syslog": (103, 116),
    # what only root may do: started by root without namespaces, the process would still have the right to do it
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
}
CLONE, CLONE3 = (56, 220), (435, 435)
THREAD = 0x00010000
"CLONE_THREAD: a clone with it is a thread of the same process and ends with it."
KILL, TGKILL, PRLIMIT = (62, 129), (234, 131), (302, 261)
"Their first argument is a process; its own is allowed, because `abort` needs that, and so does reading a limit."
UNWANTED: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    # PR_SET_PDEATHSIG: with the signal cleared, the process would outlive a killed grader
    "prctl": ((157, 167), 0, (1,)),
    # F_SETOWN, F_SETOWN_EX: signals to others through a descriptor
    "fcntl": ((72, 25), 1, (8, 15)),
    # FS_IOC_SETFLAGS in both widths, FS_IOC_FSSETXATTR (what chattr does), TIOCSTI, TIOCLINUX (typing into a terminal)
    "ioctl": ((16, 29), 1, (0x40086602, 0x40046602, 0x401C5820, 0x5412, 0x541C)),
}
"Numbers of the call, index of an argument, and the values of it that are refused."

# Instructions of classic BPF (linux/bpf_common.h) over `struct seccomp_data`: number, machine, address, six arguments.
LOAD, EQUAL, AT_LEAST, BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16
ALLOW, KILL_PROCESS, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
Instruction = tuple[int, int, int, int]


def filter_instructions(machine: str, own: int) -> list[Instruction]:
    """The instructions of the filter, each (code, jump if true, jump if false, constant).

    Args:
        machine: as `platform.machine` names it.
        own: id of the process to be filtered.
    """
    column, name = MACHINES[machine]
    refuse = (RETURN, 0, 0, FAIL | errno.EPERM)
    absent = (RETURN, 0, 0, FAIL | errno.ENOSYS)  # the C library then does without
    allow = (RETURN, 0, 0, ALLOW)
    # a 32-bit call on a 64-bit machine has other numbers
    rules = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, name), (RETURN, 0, 0, KILL_PROCESS), (LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        rules += [(AT_LEAST, 0, 1, FOREIGN), absent]
    for numbers in REFUSED.values():
        if (number := numbers[column]) is not None:
            rules += [(EQUAL, 0, 1, number), refuse]
    # the flags of clone3 are in memory, which a filter cannot read; those of clone are an argument
    rules += [(EQUAL, 0, 1, CLONE3[column]), absent]
    rules += [(EQUAL, 0, 4, CLONE[column]), argument(0), (BITS, 0, 1, THREAD), allow, refuse]
    for call in (KILL, TGKILL):
        rules += [(EQUAL, 0, 4, call[column]), argument(0), (EQUAL, 0, 1, own), allow, refuse]
    rules += [(EQUAL, 0, 5, PRLIMIT[column]), argument(0), (EQUAL, 1, 0, 0), (EQUAL, 0, 1, own), allow, refuse]
    for numbers, which, values in UNWANTED.values():
        rules += [(EQUAL, 0, 2 * len(values) + 2, numbers[column]), argument(which)]
        for value in values:
            rules += [(EQUAL, 0, 1, value), refuse]
        rules.append(allow)
    return [*rules, allow]


def argument(which: int) -> Instruction:
    """Load the lower half of an argument: processes, commands and the flags in question have 32 bits."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * which)


def refuse_calls() -> bool:
    """Filter the calls of this thread and of all that it starts, for good. Returns whether the system does so."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES:
        return False
    rules = filter_instructions(machine, os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(rules), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(SET_SECCOMP, FILTER_MODE, program, 0, 0) == 0)

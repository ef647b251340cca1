#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tests/vm finds the complaints of a kernel and no other lines, and a complaint fails the
program during which it came."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import types
import unittest

VM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../vm")
sys.path.insert(0, VM)
import machine  # noqa: E402
import report as reports  # noqa: E402

COMPLAINTS = """\
BUG: KASAN: slab-use-after-free in thc_x+0x1/0x2
BUG: kernel NULL pointer dereference, address: 0000000000000000
BUG: sleeping function called from invalid context at mm/x.c:1
BUG: scheduling while atomic: x/1/0x2
BUG: workqueue leaked atomic, lock or RCU: x
BUG kmalloc-64 (Not tainted): Object already free
kernel BUG at net/core/skbuff.c:1!
Oops: 0000 [#1] PREEMPT SMP
general protection fault, probably for non-canonical address
WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1
WARNING: possible circular locking dependency detected
WARNING: inconsistent lock state
WARNING: suspicious RCU usage
[ BUG: bad unlock balance detected! ]
UBSAN: array-index-out-of-bounds in a.c:1:2
INFO: task x:1 blocked for more than 60 seconds.
INFO: trying to register non-static key.
rcu: INFO: rcu_preempt self-detected stall on CPU
refcount_t: underflow; use-after-free.
unregister_netdevice: waiting for lo to become free. Usage count = 2
ref_tracker: net notrefcnt@0000 has 1/1 users at
kmemleak: unreferenced object 0xffff888 (size 64):
list_del corruption. prev->next should be
ODEBUG: free active (active state 0) object: 00 object type: timer_list hint: x
watchdog: BUG: soft lockup - CPU#0 stuck for 22s!
IPv4: Attempt to release alive inet socket 1
kmem_cache_destroy thc: Slab cache still has objects when called from x
Kernel panic - not syncing: Fatal exception
thc-vm: a detector is not at work: kmemleak
"""
NORMAL = """\
Linux version 6.12.117+deb12-amd64 (debian-kernel@lists.debian.org)
mtrr: your CPUs had inconsistent fixed MTRR settings
PCI: Using host bridge windows from ACPI; if necessary, use "pci=nocrs" and report a bug
thc: loading out-of-tree module taints kernel.
thc: module verification failed: signature and/or required key missing - tainting kernel
FAULT_INJECTION: forcing a failure.
SLUB: Unable to allocate memory on CPU 0 (of node 0) on node -1
kmemleak: Kernel memory leak detector initialized (mem pool available: 31000)
rcu: Preemptible hierarchical RCU implementation.
Running RCU self tests
Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
kasan: KernelAddressSanitizer initialized
"""


def load_check():
    """tests/vm/check as a module: its name has no suffix."""
    loader = importlib.machinery.SourceFileLoader("check", os.path.join(VM, "check"))
    check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(check)
    sys.dont_write_bytecode = dont_write
    return check


def find(*lines):
    with tempfile.NamedTemporaryFile("w") as f:
        f.writelines(line + "\n" for line in lines)
        f.flush()
        return machine.find_splats(f.name)


def met_half_an_instruction(log):
    return machine.Machine._met_half_an_instruction(
        types.SimpleNamespace(accel="tcg", log=log, splats=lambda: machine.find_splats(log)))


class Splats(unittest.TestCase):
    def test_every_complaint_is_found(self):
        for line in COMPLAINTS.splitlines():
            for stamp in ("[   12.345678] ", "[12345.678901][  T123] "):
                with self.subTest(line=line, stamp=stamp):
                    self.assertEqual(find(stamp + line), [stamp + line])

    def test_what_is_normal_is_not(self):
        for line in NORMAL.splitlines():
            with self.subTest(line=line):
                self.assertEqual(find("[    1.234567] " + line), [])

    def test_a_trace_is_one_complaint(self):
        trace = ["[    1.0] ok", "[    1.1] WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1",
                 "[    1.2] WARNING: a line of the same", "[    1.3] ---[ end trace 0000 ]---",
                 "[    1.4] fine", "[    1.5] UBSAN: shift-out-of-bounds in b.c:1:2"]
        self.assertEqual(find(*trace), ["\n".join(trace[1:4]), trace[5]])

    def test_the_emulator_is_to_blame(self):
        for line, blamed in (("Oops: int3: 0000 [#1] PREEMPT SMP", True), ("int3: 0000 [#1]", True),
                             ("RIP: 0010:asm_exc_int3+0x0/0x40", True),
                             ("RIP: 0010:exc_int3+0x4e/0x120", True),
                             ("RIP: 0010:thc_receive+0x4e/0x120", False),
                             ("Oops: 0000 [#1] PREEMPT SMP", False), (" exc_int3+0x4e/0x120", False)):
            with self.subTest(line=line), tempfile.NamedTemporaryFile("w") as f:
                f.write("[    1.0] fine\n[    1.1] " + line + "\n")
                f.flush()
                self.assertEqual(met_half_an_instruction(f.name), blamed)

    def test_the_emulator_is_to_blame_for_who_waits_for_it(self):
        lockup, warning = "watchdog: BUG: soft lockup - CPU#1 stuck for 104s! [x:413]", "WARNING: x"
        stall = "rcu: INFO: rcu_preempt self-detected stall on CPU"
        for first, frame, blamed in ((lockup, " text_poke_bp_batch+0xb7/0x300", True),
                                     (stall, " text_poke_bp_batch+0xb7/0x300", True),
                                     (lockup, " smp_text_poke_batch_finish+0x1/0x2", True),
                                     (lockup, " ? text_poke_bp_batch+0xb7/0x300", False),
                                     (lockup, " thc_receive+0x4e/0x120", False),
                                     (warning, " text_poke_bp_batch+0xb7/0x300", False)):
            with self.subTest(first=first, frame=frame), tempfile.NamedTemporaryFile("w") as f:
                f.writelines(f"[    1.0] {line}\n" for line in
                             (first, "RIP: 0010:smp_call_function_many_cond+0xf1/0x330",
                              "Call Trace:", " <TASK>", " on_each_cpu_cond_mask+0x20/0x40", frame))
                f.flush()
                self.assertEqual(met_half_an_instruction(f.name), blamed)

    def test_the_emulator_is_to_blame_for_a_jump_that_does_not_end(self):
        lockup = "watchdog: BUG: soft lockup - CPU#{} stuck for 105s! [x:413]"
        at, code = "RIP: 0010:udp_destroy_sock+0x2e/0xa0", "Code: e8 c2 04 f0 ff <{}> 07 5b 5d"
        same = "RIP: 0010:udp_destroy_sock+0x2f/0xa0"
        for first, second, byte, blamed in ((at, at, "eb", True), (at, at, "66> 90 <90", True),
                                            (at, same, "eb", False), (at, at, "f3", False),
                                            (at + " [thc]", at + " [thc]", "eb", False),
                                            (at, None, "eb", False)):
            with self.subTest(second=second, byte=byte), tempfile.NamedTemporaryFile("w") as f:
                for cpu, place in enumerate(filter(None, (first, second))):
                    f.writelines(f"[    1.0] {line}\n" for line in
                                 (lockup.format(cpu), place, code.format(byte), "Call Trace:",
                                  *(" frame+0x1/0x2",) * 40))
                f.flush()
                self.assertEqual(met_half_an_instruction(f.name), blamed)

    def test_a_complaint_fails_its_program(self):
        check = load_check()
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "dmesg")

            def kernel_says(line):
                with open(log, "a") as f:
                    f.write("[    1.0] " + line + "\n")

            report = reports.Report("debug", folder, events=False, verbose=False)
            session = check.Session(report, ["quiet", "loud", "skipped", "after"], 300)
            session.vm = types.SimpleNamespace(
                log=log, cpu_seconds=lambda: 0.0,
                splats=lambda since: machine.find_splats(log, since))
            failed = []
            for name, says, status in (("quiet", "thc: fine", 0), ("loud", "WARNING: x", 0),
                                       ("skipped", "BUG: x", reports.SKIPPED), ("after", "ok", 0)):
                report.failed = False
                with contextlib.redirect_stdout(io.StringIO()):
                    session.output(f"@@ begin {name}\n".encode())
                    kernel_says(says)
                    session.output(f"1..1\nok 1\n@@ end {name} {status}\n".encode())
                failed += [name] * report.failed
            self.assertEqual(failed, ["loud", "skipped"])

    def test_another_boot_goes_on_where_the_emulator_failed(self):
        check = load_check()
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "dmesg")
            open(log, "w").close()
            report = reports.Report("debug", folder, events=True, verbose=False)
            session = check.Session(report, ["a/test_one", "a/test_two", "a/test_three"], 300)
            session.vm = types.SimpleNamespace(log=log, cpu_seconds=lambda: 0.0,
                                               splats=lambda since: [])
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                session.output(b"@@ begin load\n@@ end load 0\n@@ begin test_one\nok 1\n"
                               b"@@ end test_one 0\n@@ begin test_two\nnot ok 1 - half a li")
                command = session.again()
                session.output(b"@@ begin load\n1..2\n@@ end load 0\n@@ begin test_two\nok 1\n"
                               b"@@ end test_two 0\n@@ begin test_three\n@@ end test_three 0\n")
            self.assertEqual(command[-2:], ["a/test_two", "a/test_three"])
            self.assertIn("note vm/debug/test_two the emulator failed", said.getvalue())
            self.assertEqual([line.split()[:2] for line in said.getvalue().splitlines()
                              if not line.startswith("note")],
                             [[word, f"vm/debug/{name}"] for name in ("load", "test_one", "test_two",
                                                        "test_three") for word in ("begin", "end")])
            with open(report.path("test_two")) as f:
                self.assertEqual([x for x in f.read().splitlines() if x[0] != "#"], ["ok 1"])
            self.assertFalse(report.failed)


if __name__ == "__main__":
    unittest.main(verbosity=2)

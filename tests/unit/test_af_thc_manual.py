#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""af_thc(7) describes the options and structures of linux/thc.h, the columns
and states of /proc/net/thc, and every errno that the sources of the module
return to the caller of a socket.
"""
import glob
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Sources of the module that serve no socket calls, and KUnit.
OTHERS = r"netlink|hostjob|kfunc|simd|kunit"


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def manual():
    """{section: its text without font changes}, subsections included."""
    text = re.sub(r"^\.[BI][RI]? |\\f.", "", read("Documentation/man/af_thc.7"), flags=re.M)
    parts = re.split(r"^\.S[HS] (.*)\n", text.replace("\\-", "-"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def fields(text, struct):
    """[(type, name)] of a structure."""
    body = without_comments(text).split(f"struct {struct} {{")[1].split("}")[0]
    return re.findall(r"(\w+)\s+(\w+(?:\[\w+\])?);", body)


class Manual(unittest.TestCase):
    def setUp(self):
        self.page = manual()
        self.header = read("include/uapi/linux/thc.h")

    def test_options(self):
        there = re.findall(
            r"(THC_OPT_\w+)\s*= \d+,\s*/\* (?:(read only|write only): )?(\w+(?: \w+)?)",
            self.header)
        self.assertGreaterEqual(len(there), 8)
        said = re.findall(r'^\.TP\n(THC_OPT_\w+) " \((.*)\)"$', self.page["Socket options"], re.M)
        self.assertEqual([(name, kind + (f", {only}" if only else ""))
                          for name, only, kind in there], said)

    def test_defaults_of_options(self):
        for name, default in re.findall(r"(THC_OPT_\w+)\s*= \d+,\s*/\* .*; (\d[\w ]*) \*/",
                                        self.header):
            said = self.page["Socket options"].split(name, 1)[1].split(".TP")[0]
            self.assertIn(f"; {default}", said, name)

    def test_structures(self):
        self.assertEqual(fields(self.page["Addresses"], "sockaddr_thc"),
                         fields(self.header, "sockaddr_thc"))
        self.assertEqual(fields(self.page["Sending"], "thc_send"), fields(self.header, "thc_send"))

    def test_columns_of_proc(self):
        source = read("kmod/proc.c")
        names = " ".join(re.findall(r'"(.*?)(?:\\n)?"', re.search(
            r"seq_puts\(seq, (\"  job.*?)\);", source, re.S)[1])).split()
        self.assertGreaterEqual(len(names), 14)
        columns = self.page["FILES"].split("/proc/net/thc\n")[1]
        columns = re.search(r"^\.RS\n(.*?)^\.RE$", columns, re.S | re.M)[1]
        said = " ".join(re.findall(r"^\.TP\n(.*)$", columns, re.M))
        self.assertEqual(re.findall(r"\w+", said), names)

    def test_states_of_proc(self):
        names = re.search(r"thc_state_name\[\] = \{(.*?)\};", read("kmod/state.c"), re.S)[1]
        said = self.page["FILES"].split(".TP\nstate\n")[1].split(".TP")[0]
        self.assertEqual(re.findall(r"(\w+) ?\"?:", said), re.findall(r'"(\w+)"', names))

    def test_errors(self):
        sources = "".join(without_comments(read(path))
                          for path in glob.glob(os.path.join(ROOT, "kmod/*.c"))
                          if not re.match(OTHERS, os.path.basename(path)))
        returned = set(re.findall(r"-(E[A-Z0-9]{3,})\b", sources))
        self.assertGreaterEqual(len(returned), 15)
        self.assertEqual(returned - set(re.findall(r"\bE[A-Z0-9]{3,}\b", self.page["ERRORS"])),
                         set())

    def test_example_is_what_a_selftest_runs(self):
        page = read("Documentation/man/af_thc.7").split(".SH EXAMPLES\n")[1]
        block, = re.findall(r"^\.nf\n(.*?)\n\.fi$", page, re.S | re.M)
        block = block.replace("\\-", "-").replace("\\e", "\\")
        self.assertGreaterEqual(len(re.findall(r"^static int ", block, re.M)), 2)
        self.assertIn(f"\n\n{block}\n\n", read("tests/selftests/test_af_thc_none.c"))


if __name__ == "__main__":
    unittest.main()

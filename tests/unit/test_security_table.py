#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The table of attacks in Documentation/security.md agrees with the cases of tests/adversary, and
has a row for each case. The table of attempts on a host with thc.ko names existing cases of
tests/selftests.
"""
import ast
import glob
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def rows_of(text):
    """(who, attack, today, test) of each line of the table."""
    table = text.split("| who | attack | today | test |\n", 1)[1].split("\n\n", 1)[0]
    for line in table.splitlines()[1:]:
        who, attack, today, test = (cell.strip() for cell in line.strip("|").split("|"))
        yield who, attack, today, test


def selftests_of(text):
    """(program, case) of each case that the table of thc.ko names."""
    table = text.split("| protection | selftests |\n", 1)[1].split("\n\n", 1)[0]
    for line in table.splitlines()[1:]:
        _who, _protection, named = (cell.strip() for cell in line.strip("|").split("|"))
        for of_one in named.split(";"):
            program, cases = of_one.split(":")
            for case in cases.split(","):
                yield program.strip(), case.strip()


def cases_of(program):
    """Names of the cases in a C program of tests/selftests; none: there is no such program."""
    path = os.path.join(ROOT, "tests/selftests", program + ".c")
    if not os.path.exists(path):
        return set()
    with open(path, encoding="utf-8") as f:
        return set(re.findall(r"^TEST_F(?:_TIMEOUT)?\(\w+, (\w+)[,)]", f.read(), re.MULTILINE))


def missing(text):
    """Cases that the table of thc.ko names and that do not exist."""
    return [named for named in selftests_of(text) if named[1] not in cases_of(named[0])]


def said_by(path):
    """(who, attack, today, test) of each case of a test, from the case's decorator."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    names = {target.id: node.value.value for node in tree.body if isinstance(node, ast.Assign)
             for target in node.targets if isinstance(node.value, ast.Constant)}
    for node in tree.body:
        for call in getattr(node, "decorator_list", []):
            who, attack = call.args
            today = call.func.id
            if today == "possible":
                until, = (k.value.value for k in call.keywords)
                today = "possible for ever" if until == "ever" else f"possible until {until}"
            yield names[who.id], attack.value, today, os.path.basename(path)[:-3]


def undecorated(path):
    """Names of cases without a decorator: functions of the module with __ in their name."""
    with open(path, encoding="utf-8") as f:
        return [node.name for node in ast.parse(f.read()).body
                if isinstance(node, ast.FunctionDef) and "__" in node.name
                and not node.decorator_list]


class Table(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(ROOT, "Documentation/security.md"), encoding="utf-8") as f:
            self.text = f.read()
        self.tests = sorted(glob.glob(os.path.join(ROOT, "tests/adversary/test_*.py")))

    def test_rows_are_the_cases(self):
        said = sorted(case for path in self.tests for case in said_by(path))
        self.assertGreater(len(said), 10)
        self.assertEqual(sorted(rows_of(self.text)), said)

    def test_each_case_says_what_it_is(self):
        self.assertEqual([name for path in self.tests for name in undecorated(path)], [])

    def test_the_comparison_sees_a_difference(self):
        said = sorted(case for path in self.tests for case in said_by(path))
        changed = re.sub("prevented \\| test_lan", "possible until version 2 | test_lan",
                         self.text, count=1)
        self.assertNotEqual(sorted(rows_of(changed)), said)

    def test_selftests_are_there(self):
        self.assertGreater(len(list(selftests_of(self.text))), 10)
        self.assertEqual(missing(self.text), [])

    def test_a_selftest_that_is_not_there_is_missed(self):
        for was, now in (("option_key", "option_keys"), ("test_af_thc_life", "test_af_thc_live")):
            self.assertEqual(len(missing(self.text.replace(was, now))), 1)


if __name__ == "__main__":
    unittest.main()

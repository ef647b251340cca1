#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Documentation/netlink/specs/thc.yaml agrees with the module: names, order and
values with linux/thc_netlink.h; commands, their attributes and the types of
requests with the policies in kmod/netlink*.c; the types of replies with the
calls of nla_put*().
"""
import json
import os
import re
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = "Documentation/netlink/specs/thc.yaml"
# exact lengths in a policy, in bytes
SIZES = {"sizeof(struct in_addr)": 4, "sizeof(struct in6_addr)": 16, "THC_KEY_BYTES": 32}
# nla_put*: type in the spec, exact length
PUTS = {"u8": ("u8", None), "u16": ("u16", None), "u32": ("u32", None), "u64_64bit": ("u64", None),
        "string": ("string", None), "in_addr": ("binary", 4), "in6_addr": ("binary", 16),
        "": ("binary", None)}
# Functions that build a command's reply.
PUTTERS = {"job-get": ("put_job", "put_aggregator"), "socket-get": ("put_socket",),
           "stats-get": ("put_reason",)}


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def constant(prefix, name):
    """thc-attr-, job: THC_ATTR_JOB"""
    return (prefix + name).upper().replace("-", "_")


def enumerators(header, prefix):
    """The names in the enum whose names begin with @prefix, in order."""
    for body in re.findall(r"enum \w+ \{(.*?)\}", without_comments(header), re.S):
        names = re.findall(r"(\w+)([^,]*)", body)
        if names[0][0].startswith(prefix):
            assert not any(rest.strip() for _, rest in names), "they count from 0"
            return [name for name, _ in names]
    raise AssertionError(f"no enum {prefix}*")


def policies(source):
    """{array: {attribute: (type, checks or the nest's policy)}}"""
    out = {}
    for name, body in re.findall(r"struct nla_policy (\w+)\[[^\]]*\] = \{(.*?)\n\};", source, re.S):
        out[name] = {}
        for attribute, what in re.findall(r"\[(\w+)\]\s*= (.*),\n", body + "\n"):
            if m := re.fullmatch(r"\{ \.type = NLA_(\w+) \}", what):
                entry = m[1].lower(), {}
            elif m := re.fullmatch(r"NLA_POLICY_MIN\(NLA_(\w+), (\d+)\)", what):
                entry = m[1].lower(), {"min": int(m[2])}
            elif m := re.fullmatch(r"NLA_POLICY_EXACT_LEN\((.*)\)", what):
                entry = "binary", {"exact-len": SIZES[m[1]]}
            elif m := re.fullmatch(r"NLA_POLICY_NESTED\((\w+)\)", what):
                entry = "nest", m[1]
            else:
                raise AssertionError(f"a policy that this test does not know: {what}")
            out[name][attribute] = entry
    return out


@unittest.skipUnless(yaml, "PyYAML is missing: apt-get install python3-yaml")
class Spec(unittest.TestCase):
    def setUp(self):
        self.spec = yaml.safe_load(read(SPEC))
        self.sets = {s["name"]: s for s in self.spec["attribute-sets"]}
        self.header = read("include/uapi", self.spec["uapi-header"])
        self.job, self.show, self.family = (
            without_comments(read("kmod", name))
            for name in ("netlink_job.c", "netlink_show.c", "netlink.c"))

    def attributes(self, name):
        """{constant: entry} of a set of the spec."""
        s = self.sets[name]
        return {constant(s["name-prefix"], a["name"]): a for a in s["attributes"]}

    def check_values(self, prefix, named):
        """@named: the spec's names in order, from value 1 on."""
        self.assertEqual(enumerators(self.header, prefix),
                         [prefix + "UNSPEC", *named, f"__{prefix}END"])

    def test_family(self):
        said = dict(re.findall(r"#define (\w+)[ \t]+(\S+)", self.header))
        self.assertEqual(said["THC_GENL_NAME"], f'"{self.spec["name"]}"')
        self.assertEqual(said["THC_GENL_VERSION"], str(self.spec["version"]))
        for d in self.spec["definitions"]:
            if d["type"] == "const":
                self.assertEqual(said[constant("thc-", d["name"])], str(d["value"]))
        self.assertEqual("mcast-groups" in self.spec, "mcgrps" in self.family)

    def test_commands(self):
        operations = self.spec["operations"]
        self.assertEqual(operations["enum-model"], "unified")
        self.assertTrue(all("value" not in o for o in operations["list"]))
        self.check_values("THC_CMD_", [constant(operations["name-prefix"], o["name"])
                                       for o in operations["list"]])

    def test_attributes(self):
        self.assertEqual(len(self.sets), 5)
        for name, s in self.sets.items():
            self.assertTrue(all("value" not in a for a in s["attributes"]))
            self.check_values(constant(s["name-prefix"], ""), list(self.attributes(name)))

    def test_comments_of_the_header(self):
        """The comments of the header have the types of the spec."""
        for name in self.sets:
            for attribute, a in self.attributes(name).items():
                said = re.search(rf"^\t{attribute},\s*/\* ([a-z]+\d*)", self.header, re.M)
                self.assertEqual(said[1] if said else "pad", a["type"], attribute)
                if a["type"] == "nest":
                    nest = re.search(rf"{attribute},\s*/\* nest of (\w+)\*", self.header)[1]
                    self.assertEqual(nest, constant(
                        self.sets[a["nested-attributes"]]["name-prefix"], ""))

    def check_policy(self, shown, name, taken):
        """A policy has the attributes @taken, with the types that set @name gives them."""
        known = self.attributes(name)
        everything = policies(self.job)
        self.assertEqual(list(everything[shown]), taken)
        for attribute, (kind, more) in everything[shown].items():
            self.assertEqual(kind, known[attribute]["type"], attribute)
            if kind == "nest":
                nest = known[attribute]["nested-attributes"]
                self.check_policy(more, nest, list(self.attributes(nest)))
            else:
                self.assertEqual(more, known[attribute].get("checks", {}), attribute)

    def test_what_commands_take(self):
        table = self.family.split("struct genl_ops")[1].split("\n};")[0]
        shown = {}
        for entry in re.findall(r"\{\n(.*?)\n\t\}", table, re.S):
            shown[re.search(r"\.cmd\s*= (\w+)", entry)[1]] = entry
        operations = self.spec["operations"]
        self.assertEqual(list(shown), [constant(operations["name-prefix"], o["name"])
                                       for o in operations["list"]])
        for o, entry in zip(operations["list"], shown.values()):
            self.assertEqual("do" in o, ".doit" in entry, o["name"])
            self.assertEqual("dump" in o, ".dumpit" in entry, o["name"])
            self.assertEqual(o.get("flags", []),
                             ["uns-admin-perm"] if "GENL_UNS_ADMIN_PERM" in entry else [])
            self.assertNotIn("request", o.get("dump", {}))
            takes = o.get("do", {}).get("request", {}).get("attributes", [])
            policy = re.search(r"POLICY\((\w+)\)", entry)
            self.assertEqual(bool(takes), bool(policy), o["name"])
            if policy:
                prefix = self.sets[o["attribute-set"]]["name-prefix"]
                self.check_policy(policy[1], o["attribute-set"],
                                  [constant(prefix, a) for a in takes])

    def test_what_goes_out(self):
        sources = self.job + self.show
        put = {}
        for call, attribute in re.findall(r"\bnla_put_?(\w*)\(\s*\w+,\s*(\w+)", sources):
            put[attribute] = PUTS[call]
        for attribute in re.findall(r"\bnla_nest_start\(\s*\w+,\s*(\w+)", sources):
            put[attribute] = "nest", None
        shown = {constant(self.sets["thc"]["name-prefix"], a)
                 for o in self.spec["operations"]["list"] for how in {"do", "dump"} & set(o)
                 for a in (o[how].get("reply") or {}).get("attributes", [])}
        said = {}
        for name in self.sets:
            for attribute, a in self.attributes(name).items():
                if a["type"] != "pad" and (name != "thc" or attribute in shown):
                    said[attribute] = a["type"], a.get("checks", {}).get("exact-len")
        self.assertNotIn("THC_ATTR_KEY", said, "the secret is shown")
        self.assertEqual(put, said)
        # the pad of a 64-bit number is of the number's own set
        pads = re.findall(r"nla_put_u64_64bit\(\s*\w+,\s*(\w+),[^;]*?(THC_\w+)\)", sources)
        self.assertEqual({attribute for attribute, _ in pads},
                         {attribute for attribute, (kind, _) in said.items() if kind == "u64"})
        for attribute, pad in pads:
            self.assertEqual(pad, re.sub(r"_[A-Z]+$", "_PAD", attribute))

    def test_replies(self):
        """Each has the attributes that its functions put on the outer level."""
        sources = self.job + self.show
        for o in self.spec["operations"]["list"]:
            put = {a for function in PUTTERS.get(o["name"], ()) for a in re.findall(
                r"THC_ATTR_(?!PAD)\w+",
                re.search(rf"^static int {function}\(.*?\n\}}\n", sources, re.S | re.M)[0])}
            prefix = self.sets[o["attribute-set"]]["name-prefix"]
            for how in {"do", "dump"} & set(o):
                said = (o[how].get("reply") or {}).get("attributes", [])
                self.assertEqual({constant(prefix, a) for a in said}, put, o["name"])

    def test_commands_of_the_users_guide(self):
        operations = {o["name"]: o for o in self.spec["operations"]["list"]}
        shown = re.findall(r"^    \$ynl --(\w+) (\S+)(?: --json '((?:[^']|'\$key')*)')?", read(
            "Documentation/users-guide.md"), re.M)
        self.assertEqual([name for _, name, _ in shown], ["job-new", "job-get", "job-del"])
        for how, name, request in shown:
            given = json.loads(request.replace("'$key'", "00" * 32) or "{}")
            takes = operations[name][how].get("request", {}).get("attributes", [])
            self.assertEqual(list(given), takes)
            for aggregator in given.get("aggregator", []):
                self.assertLessEqual(set(aggregator),
                                     {a["name"] for a in self.sets["aggr"]["attributes"]})
            for ids in ("users", "groups"):
                self.assertEqual(list(given.get(ids, {"first": 0, "last": 0})),
                                 [a["name"] for a in self.sets["ids"]["attributes"]])

    def test_counters(self):
        [members] = [d["members"] for d in self.spec["definitions"] if d["type"] == "struct"]
        fields = without_comments(read("include/uapi/linux/thc.h"))
        fields = re.search(r"struct thc_socket_stats \{(.*?)\};", fields, re.S)[1]
        self.assertEqual([(f"__{m['type']}", m["name"].replace("-", "_")) for m in members],
                         re.findall(r"(\w+)\s+(\w+);", fields))

    def test_states(self):
        names = re.search(r"thc_state_name\[\] = \{(.*?)\};", read("kmod/state.c"), re.S)[1]
        [doc] = [a["doc"] for a in self.sets["sock"]["attributes"] if a["name"] == "state"]
        self.assertEqual(re.findall(r'"(\w+)"', names), re.findall(r"(?!or\b)\b\w+", doc))


if __name__ == "__main__":
    unittest.main()

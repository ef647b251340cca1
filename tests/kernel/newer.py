#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Headers of a newer kernel, as far as thc.ko sees them, made from those of the kernel at hand.

    newer.py RELEASE BUILT OUT

BUILT is a folder in which kmod/ has been compiled, or what includes all that is named below: the
compiler's notes say which headers it found. OUT gets a copy of each header that upstream has changed in a way that concerns the module,
up to RELEASE. The old form is gone from the copy, so that only the new one compiles. An edit that
finds neither the old form nor the new one is an error: the test would prove nothing.
"""
import glob
import os
import re
import sys

# RELEASE: (headers, old form, new form, what a header that is new already has). The edit has to
# apply to one of the headers, unless the last field is empty.
HRTIMER = ("linux/hrtimer.h", "linux/hrtimer_types.h")
EDITS = {
    "6.15": [
        (HRTIMER[:1], r"extern void hrtimer_init\(struct hrtimer \*timer, ",
         "extern void hrtimer_setup(struct hrtimer *timer,\n"
         "\tenum hrtimer_restart (*function)(struct hrtimer *), ", r"void hrtimer_setup\("),
        (HRTIMER[:1], r"\thrtimer_init\(timer, ", "\thrtimer_setup(timer, NULL, ",
         r"void hrtimer_setup\("),
        (HRTIMER, r"\(\*function\)\(struct hrtimer \*\);", "(*hidden)(struct hrtimer *);",
         r"__private function"),
        (HRTIMER[:1], r"timer->function\b", "timer->hidden", r""),
    ],
    "6.17": [
        (("net/sock.h",), r"kuid_t sock_i_uid\(struct sock \*sk\);",
         "static inline kuid_t sk_uid(const struct sock *sk)\n{\n"
         "\treturn READ_ONCE(sk->sk_uid);\n}",
         r"kuid_t sk_uid\("),
        (("net/udp_tunnel.h",), r"bool xnet, bool nocheck\)",
         "bool xnet, bool nocheck, u16 ipcb_flags)", "u16 ipcb_flags"),
        (("net/udp_tunnel.h",), r"__be16 dst_port, bool nocheck\)",
         "__be16 dst_port, bool nocheck, u16 ip6cb_flags)", "u16 ip6cb_flags"),
    ],
    "6.19": [
        (("linux/net.h",), r"struct sockaddr( \*(?:myaddr|vaddr),)", r"struct sockaddr_unsized\1",
         "sockaddr_unsized"),
        (("linux/net.h",), r"(int kernel_bind\(struct socket \*sock, struct sockaddr)( \*addr)",
         r"\1_unsized\2", "sockaddr_unsized"),
        (("linux/net.h",), r"\nstruct proto_ops \{", "\nstruct sockaddr_unsized {\n"
         "\t__kernel_sa_family_t sa_family;\n\tchar sa_data[];\n};\n\nstruct proto_ops {",
         "sockaddr_unsized"),
    ],
    "7.1": [
        (("net/udp_tunnel.h",), r"(setup_udp_tunnel_sock\(struct net \*net, )struct socket \*sock",
         r"\1struct sock *sk", r"setup_udp_tunnel_sock\(struct net \*net, struct sock \*"),
        (("net/udp_tunnel.h",), r"udp_tunnel_sock_release\(struct socket \*sock\)",
         "udp_tunnel_sock_release(struct sock *sk)", r"udp_tunnel_sock_release\(struct sock \*"),
        (("net/sock.h",), r"unsigned long sock_i_ino\(", "u64 sock_i_ino(", r"u64 sock_i_ino\("),
        (("net/ipv6_stubs.h",), r"ipv6_dst_lookup_flow", "hidden_lookup", ""),
        (HRTIMER[:1], r"hrtimer_get_expires_ns", "hrtimer_hidden", r""),
        (("linux/net.h",), r"(\n\tint\t+\(\*getsockopt\)\(.*\n.*\n)",
         r"\1\tint (*getsockopt_iter)(struct socket *sock, int level, int option,"
         "\n\t\tsockopt_t *opt);\n", "getsockopt_iter"),
        (("linux/net.h",), r"\nstruct proto_ops \{", "\n#include <linux/uio.h>\n"
         "typedef struct sockopt {\n\tstruct iov_iter iter_in;\n\tstruct iov_iter iter_out;\n"
         "\tint optlen;\n} sockopt_t;\n\nstruct proto_ops {", r"\} sockopt_t;"),
    ],
    # announced: the new getsockopt() takes the old one's name when no protocol has that any more
    "next": [
        (("linux/net.h",), r"\n\tint\t+\(\*getsockopt\)\(.*\n.*__user \*optlen\);", "",
         r"\(\*getsockopt\)\(.*\n.*sockopt_t"),
        (("linux/net.h",), r"getsockopt_iter", "getsockopt", r"\(\*getsockopt\)\(.*\n.*sockopt_t"),
    ],
}


def found(built):
    """Where the compiler found each header: {name: path}."""
    paths = {}
    for note in glob.glob(os.path.join(built, "kmod", ".*.o.cmd")):
        with open(note, encoding="utf-8") as f:
            for path in re.findall(r"\S+/include/(?:linux|net)/\w+\.h(?=\s)", f.read()):
                paths[path.split("/include/")[-1]] = os.path.join(built, path)
    return paths


def edit(text, original, headers, old, new, already):
    """Applies one edit to those of `headers` that `text` has, unless they are new."""
    here = [name for name in headers if name in text]
    if already and any(re.search(already, original[name]) for name in here):
        return
    before = {name: text[name] for name in here}
    for name in here:
        text[name] = re.sub(old, new, before[name])
    if already and before == {name: text[name] for name in here}:
        raise SystemExit(f"newer.py: neither the old form, {old!r}, nor the new one, {already!r}, "
                         f"is in {' or '.join(headers)} of this kernel")


def main():
    release, built, out = sys.argv[1:]
    text = {}
    for name, path in found(built).items():
        with open(path, encoding="utf-8") as f:
            text[name] = f.read()
    original = dict(text)
    for name, edits in EDITS.items():
        for headers, *change in edits:
            edit(text, original, headers, *change)
        if name == release:
            break
    else:
        raise SystemExit(f"newer.py: no such release: {release}; there are {', '.join(EDITS)}")
    for name, content in text.items():
        if content == original[name]:
            continue
        os.makedirs(os.path.join(out, os.path.dirname(name)), exist_ok=True)
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(content)


if __name__ == "__main__":
    main()

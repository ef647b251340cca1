# SPDX-License-Identifier: GPL-2.0
"""Builds a kernel from Debian's linux-source-6.12 and a fragment of a
configuration, once, into the cache: for debug-kernel and uml."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

import kernels

TOOLS = {"flex": "flex", "bison": "bison", "bc": "bc", "gcc": "gcc", "make": "make",
         "xz": "xz-utils"}
# Sources that such a kernel does not need; their Kconfig files stay.
_LEFT_OUT = ["*/Documentation/*.rst", "*/Documentation/*.yaml", "*/Documentation/*.svg",
             *(f"*/drivers/{d}/*.[ch]" for d in (
                 "gpu", "media", "staging", "infiniband", "scsi", "net/ethernet", "net/wireless",
                 "iio", "usb", "mtd", "pinctrl", "clk", "crypto", "accel")),
             *(f"*/arch/{a}/*.{e}" for a in ("arm", "arm64", "mips", "powerpc", "s390", "sh",
                                              "sparc", "riscv", "loongarch", "m68k", "parisc")
               for e in ("[chS]", "dts", "dtsi")),
             "*/sound/*.[ch]", "*/tools/perf/*", "*/tools/testing/*.c"]


class Build:
    """One such kernel: its `name`, in the cache and in messages; `fragment`, a file;
    `targets` of make; `files`, about how many are compiled or linked; `arch`, if it is
    not this host's; `edit(tree)` changes the source; `tools` are needed beside TOOLS."""

    def __init__(self, name, fragment, targets, files, arch=None, edit=None, tools=None):
        self.name, self.fragment, self.targets, self.files = name, fragment, targets, files
        self.edit, self.tools = edit, {**TOOLS, **(tools or {})}
        self.home = os.path.join(kernels.cache_dir(), name)
        self.tree, self.out = os.path.join(self.home, "source"), os.path.join(self.home, "build")
        # BTF needs types, but no places of variables, without which the compiler is faster
        self.make = ["make", "-C", self.tree, f"O={self.out}", "KBUILD_BUILD_TIMESTAMP=",
                     "KCFLAGS=-fno-var-tracking -fno-var-tracking-assignments",
                     "KBUILD_BUILD_USER=thc", "KBUILD_BUILD_HOST=thc",
                     *([f"ARCH={arch}"] if arch else [])]
        self._stamp = os.path.join(self.home, "digest")

    def run(self, install, force=False, config_only=False):
        """Build the kernel if it is not there, then call install(), which returns its
        release. Returns 0, or 4 with a sentence if this host lacks a tool."""
        with kernels.locked(self.home + ".lock", f"the {self.name} kernel is being built"):
            if self._is_there() and not force:
                return 0
            packages = missing(self.tools)
            if packages:
                kernels.say("missing: apt-get install " + " ".join(packages))
                return 4
            for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
                os.environ.pop(name, None)
            try:
                self._prepare()
                if config_only:
                    return 0
                self._build(os.path.join(self.home, "build.log"))
                release = install()
            except kernels.Unavailable as reason:
                kernels.say(str(reason))
                return 4
            for path, text in ((os.path.join(self.home, "release"), release),
                               (self._stamp, self._digest())):
                with open(path, "w") as f:
                    f.write(text + "\n")
        return 0

    def _digest(self):
        """The digest of the configuration and of the folder, which the tree's Makefile names."""
        with open(self.fragment, "rb") as f:
            return hashlib.sha256(f.read() + os.fsencode(os.path.abspath(self.out))).hexdigest()

    def _is_there(self):
        if not os.path.exists(self._stamp):
            return False
        with open(self._stamp) as f:
            return f.read().strip() == self._digest()

    def _prepare(self):
        if not os.path.exists(os.path.join(self.tree, "Makefile")):
            new = self.tree + ".new"
            extract(kernels.source_tarball(), new)
            if self.edit:
                self.edit(new)
            os.rename(new, self.tree)
        os.makedirs(self.out, exist_ok=True)
        for stale in (self._stamp, os.path.join(self.home, "release")):
            if os.path.exists(stale):
                os.unlink(stale)
        self._configure()

    def _configure(self):
        """Apply allnoconfig and the fragment; a setting that is not granted is an error."""
        environment = {**os.environ, "KCONFIG_ALLCONFIG": self.fragment}
        subprocess.run([*self.make, "allnoconfig"], check=True, env=environment,
                       stdout=subprocess.DEVNULL)
        with open(os.path.join(self.out, ".config")) as f:
            granted = set(f.read().splitlines())
        with open(self.fragment) as f:
            wanted = [line for line in f.read().splitlines()
                      if re.match(r"CONFIG_|# CONFIG_\w+ is not set", line)]
        text = "\n".join(granted)
        refused = [w for w in wanted if w not in granted and not
                   (w.startswith("#") and f"{w.split()[1]}=" not in text)]
        if refused:
            raise SystemExit("vm: the kernel's configuration refused " + ", ".join(refused))

    def _build(self, log):
        """Run make with one line of progress; its output goes to `log`."""
        begin = shown = time.monotonic()
        count = 0
        terminal = sys.stderr.isatty()
        with open(log, "w") as f:
            process = subprocess.Popen([*self.make, f"-j{os.cpu_count()}", *self.targets],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace")
            try:
                for line in process.stdout:
                    f.write(line)
                    count += bool(re.match(r"\s+(CC|AS|AR|LD)\s", line))
                    now = time.monotonic()
                    if now - shown >= (0.5 if terminal else 15):
                        shown = now
                        text = f"{self.name} kernel: {count} of about {self.files} files, " \
                               f"{now - begin:.0f} s"
                        sys.stderr.write(f"\rvm: {text} " if terminal else f"vm: {text}\n")
                        sys.stderr.flush()
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if terminal:
            sys.stderr.write("\n")
        if status:
            with open(log) as f:
                sys.stderr.write("".join(f.readlines()[-40:]))
            raise SystemExit(f"vm: the {self.name} kernel does not build: see above and {log}")
        kernels.say(f"{self.name} kernel: built in {time.monotonic() - begin:.0f} s, "
                    f"{count} files")

    def release(self):
        return subprocess.run([*self.make, "-s", "kernelrelease"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.strip()


def missing(tools):
    """Packages to install."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    packages = [p for tool, p in tools.items() if not shutil.which(tool, path=path)]
    packages += [p for header, p in (("libelf.h", "libelf-dev"), ("openssl/ssl.h", "libssl-dev"))
                 if not os.path.exists("/usr/include/" + header)]
    return packages


def extract(tarball, tree):
    """Unpack a tarball without its first folder into the new folder `tree`."""
    kernels.say("unpacking the kernel's source")
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(tree)
    subprocess.run(["tar", "-xJf", tarball, "-C", tree, "--strip-components=1",
                    *("--exclude=" + e for e in _LEFT_OUT)], check=True)

# SPDX-License-Identifier: GPL-2.0
"""The kernels that test machines boot: their sources, and the files that the
cache keeps. machine.py boots them.

Stock kernels are Debian's packages, downloaded and unpacked into the cache,
never installed: image, modules and the headers of exactly the same version, so
that an out-of-tree module can be built. From then on the cache ($THC_VM_CACHE,
or build/vm/cache) is used unchanged, without a network; remove a kernel's
folder there for a newer kernel.

    cache/6.12/release           6.12.117+deb12-amd64
    cache/6.12/vmlinux           uncompressed (or vmlinuz, as packaged)
    cache/6.12/config
    cache/6.12/lib/modules/...   what tests may load; drivers of hardware are left out
    cache/6.12/usr/src/linux-headers-...
    cache/debug/...              the same, built by tests/vm/debug-kernel
    cache/uml/...                User-mode Linux, built by tests/vm/uml
"""
import contextlib
import fcntl
import glob
import gzip
import lzma
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tarfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STOCK = ("6.1", "6.12")
KERNELS = (*STOCK, "debug")     # what QEMU boots
BUILT = {"debug": "tests/vm/debug-kernel", "uml": "tests/vm/uml"}
SOURCE = "linux-source-6.12"

# Modules that tests may load, as folders or files of lib/modules/RELEASE/kernel.
_MODULES = ("arch/x86/crypto", "crypto", "lib", "net", "fs/9p", "fs/overlayfs", "fs/netfs",
            "fs/fscache", "drivers/virtio", "drivers/char/virtio_console.ko",
            "drivers/char/hw_random", "drivers/net/*.ko*", "drivers/net/bonding",
            "drivers/net/netdevsim", "drivers/net/ipvlan")
# Folders of net/ that our tests do not need.
_NOT_MODULES = ("net/bluetooth", "net/mac80211", "net/wireless", "net/sunrpc", "net/batman-adv",
                "net/nfc", "net/can", "net/ceph", "net/tipc", "net/smc", "net/atm", "net/ax25",
                "net/rds", "net/dccp", "net/mac802154", "net/ieee802154", "net/appletalk")


class Unavailable(RuntimeError):
    """This host cannot run such a machine: the reason, and a remedy."""


def build_dir():
    """Where this build is: $BUILD, or build/ in the source tree."""
    return os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))


def cache_dir():
    return os.path.abspath(os.environ.get("THC_VM_CACHE") or os.path.join(build_dir(), "vm/cache"))


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


class Kernel:
    """One kernel in the cache."""

    def __init__(self, name):
        self.name = name
        self.home = os.path.join(cache_dir(), name)
        with open(os.path.join(self.home, "release")) as f:
            self.release = f.read().strip()
        images = [os.path.join(self.home, i) for i in ("vmlinux", "vmlinuz")]
        self.image = next(filter(os.path.exists, images))
        self.modules = os.path.join(self.home, "lib/modules")
        self.headers = os.path.join(self.home, "usr/src/linux-headers-" + self.release)

    def log_dir(self):
        """The folder for thc.ko and the logs of this kernel's runs."""
        return os.path.join(build_dir(), "vm", self.name)

    def all_modules(self):
        """lib/modules, with the modules of build-module if they are built."""
        ours = os.path.join(self.log_dir(), "lib/modules")
        return ours if os.path.exists(os.path.join(ours, self.release)) else self.modules

    def install(self, files):
        """Puts modules among this kernel's, so that modprobe and autoloading find them."""
        home = self.log_dir()
        new, old = os.path.join(home, "new"), os.path.join(home, "lib")
        shutil.rmtree(new, ignore_errors=True)
        ours = os.path.join(new, "lib/modules")
        os.makedirs(ours)
        at = os.path.join(ours, self.release)
        if subprocess.run(["cp", "-al", os.path.join(self.modules, self.release), at],
                          stderr=subprocess.DEVNULL).returncode:    # another file system
            shutil.rmtree(at, ignore_errors=True)
            shutil.copytree(os.path.join(self.modules, self.release), at, symlinks=True)
        os.makedirs(os.path.join(at, "updates"))
        for file in files:
            shutil.copy(file, os.path.join(at, "updates"))
        depmod(new, self.release)
        shutil.rmtree(old, ignore_errors=True)
        os.rename(os.path.join(new, "lib"), old)
        os.rmdir(new)

    def with_dependencies(self, names):
        """Files of these modules in the order of loading; built-in modules have none."""
        top = os.path.join(self.modules, self.release)
        needs = {}
        with open(os.path.join(top, "modules.dep")) as f:
            for line in f:
                path, _, rest = line.partition(":")
                needs[_module_name(path)] = path, rest.split()
        order = []

        def add(path):
            for need in reversed(needs[_module_name(path)][1]):
                add(need)
            if path not in order:
                order.append(path)

        for name in names:
            if name in needs:
                add(needs[name][0])
        return [os.path.join(top, path) for path in order]


def _module_name(path):
    return os.path.basename(path).split(".")[0].replace("-", "_")


def get(name):
    """The kernel of that name, fetched if it is not in the cache; may raise Unavailable."""
    if platform.machine() != "x86_64":
        raise Unavailable("test machines are x86-64 so far, this host is " + platform.machine())
    if name not in STOCK and name not in BUILT:
        raise Unavailable(f"no kernel '{name}': choose one of {', '.join(KERNELS)}")
    with locked(os.path.join(cache_dir(), f"{name}.lock"), f"kernel {name} is being fetched"):
        if not os.path.exists(os.path.join(cache_dir(), name, "release")):
            if name in BUILT:
                raise Unavailable(f"the {name} kernel is not built yet: {BUILT[name]}")
            _fetch(name)
    return Kernel(name)


@contextlib.contextmanager
def locked(path, reason):
    """Holds the lock `path`; says `reason` if somebody else has it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{reason} by another run: waiting for it")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


# --- Debian's packages ---------------------------------------------------------
def _apt(*argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def _fields(package):
    """Version and Depends of a package's candidate; ("", "") if there is none."""
    text = _apt("apt-cache", "show", "--no-all-versions", package)
    version = re.search(r"^Version: (\S+)", text, re.M)
    depends = re.search(r"^Depends: (.*)", text, re.M)
    return version[1] if version else "", depends[1] if depends else ""


def _resolve(series):
    """Packages, as NAME=VERSION, and release of the newest kernel of a series."""
    for meta in (f"linux-image-{series}-amd64", "linux-image-amd64"):
        found = re.search(rf"linux-image-({re.escape(series)}\.\S+-amd64)", _fields(meta)[1])
        if not found:
            continue
        release = found[1]
        version, depends = _fields(f"linux-headers-{release}")
        if not version:
            continue
        image = next((i for i in (f"linux-image-{release}", f"linux-image-{release}-unsigned")
                      if f"Version: {version}\n" in _apt("apt-cache", "show", i)), None)
        if not image:
            continue
        packages = [f"{image}={version}", f"linux-headers-{release}={version}"]
        for need in re.findall(r"(linux-(?:headers|kbuild)-[^\s,]+)", depends):
            packages.append(f"{need}={_fields(need)[0]}")
        return release, packages
    return None, []


def download(packages, where):
    """Download packages into `where`; the caller has their names from apt."""
    if subprocess.run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages],
                      cwd=where, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode:
        raise Unavailable("apt-get cannot download " + " ".join(packages) +
                          ": see its message above")


def _update():
    if os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-q"], stdout=sys.stderr, stdin=subprocess.DEVNULL)


def source_tarball():
    """The kernel's source as Debian packs it."""
    home = os.path.join(cache_dir(), "source")
    with locked(home + ".lock", f"{SOURCE} is being fetched"):
        if not os.path.exists(home):
            say(f"fetching {SOURCE}, about 150 MB")
            _fetch_package(SOURCE, home + ".new")
            os.rename(home + ".new", home)
    return os.path.join(home, f"usr/src/{SOURCE}.tar.xz")


def kselftest(where):
    """Put the kernel's headers for self tests into the folder `where`."""
    wanted = {f"{SOURCE}/tools/testing/selftests/{name}": name
              for name in ("kselftest.h", "kselftest_harness.h")}
    os.makedirs(where, exist_ok=True)
    path = source_tarball()
    say("looking for kselftest_harness.h in the kernel's source")
    with tarfile.open(path, "r|xz") as archive:
        for member in archive:
            name = wanted.pop(member.name, None)
            if name:
                with open(os.path.join(where, name + ".new"), "wb") as f:
                    shutil.copyfileobj(archive.extractfile(member), f)
            if not wanted:
                break
        else:
            raise Unavailable(f"{SOURCE} has no " + ", ".join(wanted))
    for name in ("kselftest.h", "kselftest_harness.h"):
        os.rename(*(os.path.join(where, n) for n in (name + ".new", name)))


def _fetch_package(name, where):
    """Unpacks the newest version of one package into the new folder `where`."""
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if not shutil.which(tool):
            raise Unavailable(f"'{tool}' is missing: packages are fetched on Debian only")
    if not _fields(name)[0]:
        _update()
    if not _fields(name)[0]:
        raise Unavailable(f"apt-get knows no {name}: Debian 12 with bookworm-security has it")
    shutil.rmtree(where, ignore_errors=True)
    os.makedirs(where)
    try:
        download([name], where)
    except Unavailable:
        _update()       # the lists were older than the archive
        download([name], where)
    for deb in glob.glob(os.path.join(where, "*.deb")):
        subprocess.run(["dpkg-deb", "-x", deb, where], check=True)
        os.unlink(deb)


def _fetch(series):
    for tool in ("apt-get", "apt-cache", "dpkg-deb", "depmod"):
        if not shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            raise Unavailable(f"'{tool}' is missing: kernels are fetched on Debian only")
    release, packages = _resolve(series)
    if not release:
        _update()
        release, packages = _resolve(series)
    if not release:
        raise Unavailable(f"apt-get knows no kernel {series} with its headers: "
                          "Debian 12 with bookworm-security has it")
    home = os.path.join(cache_dir(), series)
    new, debs = home + ".new", home + ".debs"
    for folder in (new, debs):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    say(f"fetching {release} and its headers, about 100 MB, into {home}")
    try:
        download(packages, debs)
    except Unavailable:
        _update()
        release, packages = _resolve(series)
        download(packages, debs)
    say("unpacking it")
    image = os.path.join(debs, "image")
    for deb in glob.glob(os.path.join(debs, "*.deb")):
        where = image if os.path.basename(deb).startswith("linux-image") else new
        subprocess.run(["dpkg-deb", "-x", deb, where], check=True)
    keep_image(os.path.join(image, "boot/vmlinuz-" + release), new)
    shutil.copy(os.path.join(image, "boot/config-" + release), os.path.join(new, "config"))
    _keep_modules(_modules_in(image, release), os.path.join(new, "lib/modules", release))
    depmod(new, release)
    # The headers' Makefile names its sibling by an absolute path; the checkout may move.
    makefile = os.path.join(new, f"usr/src/linux-headers-{release}/Makefile")
    with open(makefile) as f:
        text = f.read()
    with open(makefile, "w") as f:
        f.write(text.replace(" /usr/src/", " ../"))
    with open(os.path.join(new, "release"), "w") as f:
        f.write(release + "\n")
    shutil.rmtree(debs)
    shutil.rmtree(home, ignore_errors=True)
    os.rename(new, home)


def _modules_in(image, release):
    for lib in ("lib", "usr/lib"):
        path = os.path.join(image, lib, "modules", release)
        if os.path.isdir(path):
            return path
    raise Unavailable(f"the package of {release} has no modules")


def keep_image(vmlinuz, home):
    """Keep the kernel without compression: to unpack it takes an emulated machine seconds."""
    with open(vmlinuz, "rb") as f:
        data = f.read()
    sectors = data[0x1f1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)     # payload, boot protocol 2.08
    payload = data[(sectors + 1) * 512 + offset:][:length]
    plain = None
    with contextlib.suppress(lzma.LZMAError, OSError, EOFError, FileNotFoundError):
        if payload.startswith(b"\xfd7zXZ\0"):
            plain = lzma.LZMADecompressor().decompress(payload)
        elif payload.startswith(b"\x1f\x8b"):
            plain = gzip.decompress(payload[:-4])
        elif payload.startswith(b"\x28\xb5\x2f\xfd"):
            plain = subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True).stdout
    if plain and plain.startswith(b"\x7fELF"):
        with open(os.path.join(home, "vmlinux"), "wb") as f:
            f.write(plain)
    else:
        shutil.copy(vmlinuz, os.path.join(home, "vmlinuz"))


def _keep_modules(old, new):
    for pattern in _MODULES:
        for path in sorted(glob.glob(os.path.join(old, "kernel", pattern)) or
                           glob.glob(os.path.join(old, "kernel", pattern + "*"))):
            files = [path] if os.path.isfile(path) else [
                os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
            for file in files:
                inside = os.path.relpath(file, old)
                if not inside.removeprefix("kernel/").startswith(_NOT_MODULES):
                    _keep_module(file, os.path.join(new, inside))
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(os.path.join(old, name), new)


def _keep_module(old, new):
    os.makedirs(os.path.dirname(new), exist_ok=True)
    if old.endswith(".xz"):
        with lzma.open(old) as f, open(new.removesuffix(".xz"), "wb") as out:
            shutil.copyfileobj(f, out)
    else:
        shutil.copy(old, new)


def depmod(home, release):
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    subprocess.run([shutil.which("depmod", path=path), "-b", home, release], check=True,
                   stderr=subprocess.DEVNULL)


# --- for the scripts beside this file -----------------------------------------------
def _same(old, new):
    """Make `new` a copy of `old`; files that are equal keep their times."""
    if os.path.isfile(old):
        if not (os.path.isfile(new) and _contents(old) == _contents(new)):
            shutil.copy(old, new)
        return
    os.makedirs(new, exist_ok=True)
    names = os.listdir(old)
    for name in names:
        if name.endswith((".c", ".h", ".S", "Makefile", "Kbuild")) or \
                os.path.isdir(os.path.join(old, name)):
            _same(os.path.join(old, name), os.path.join(new, name))
    for name in os.listdir(new):    # removed sources; make removes objects
        if name.endswith((".c", ".h", ".S")) and name not in names and \
                not name.endswith(".mod.c"):
            os.unlink(os.path.join(new, name))


def _contents(path):
    with open(path, "rb") as f:
        return f.read()


def main():
    """same OLD NEW | headers KERNEL | install KERNEL MODULE... | kselftest DIR"""
    try:
        if sys.argv[1] == "same":
            _same(*sys.argv[2:])
        elif sys.argv[1] == "headers":
            print(get(sys.argv[2]).headers)
        elif sys.argv[1] == "install":
            get(sys.argv[2]).install(sys.argv[3:])
        elif sys.argv[1] == "kselftest":
            kselftest(sys.argv[2])
    except Unavailable as reason:
        say(str(reason))
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The ctypes mirror of libthc.h against the header itself, as the C compiler
sees it: every struct's size, every field's offset and size."""
import ctypes
import os
import re
import subprocess
import tempfile
import unittest

import fake  # noqa: F401  (sets the path)
from thc_ddp import abi

STRUCTS = {"thc_table": abi.Table, "thc_client_options": abi.Options, "thc_call": abi.Call,
           "thc_client_info": abi.Info, "thc_client_stats": abi.Stats, "thc_rows": abi.Rows}
CONSTANTS = {"THC_FP32": abi.FP32, "THC_FP16": abi.FP16, "THC_BF16": abi.BF16,
             "THC_INT8": abi.INT8, "THC_INT16": abi.INT16, "THC_INT32": abi.INT32,
             "THC_EXACT": abi.EXACT, "THC_FIXED_8": abi.FIXED_8, "THC_FIXED_16": abi.FIXED_16,
             "THC_FIXED_32": abi.FIXED_32, "THC_KEY_BYTES": abi.KEY_BYTES, "THC_CLIENT_ERROR_FEEDBACK": abi.CLIENT_ERROR_FEEDBACK,
             "THC_TABLE_LEVELS_MAX": abi.TABLE_LEVELS_MAX, "THC_JOBS_MAX": abi.JOBS_MAX,
             "THC_RANKS_MAX": abi.RANKS_MAX}


def headers():
    """Both public headers, without comments."""
    text = ""
    for name in ("libthc.h", "libthc_rows.h"):
        with open(os.path.join(fake.ROOT, "userspace/libthc", name), encoding="utf-8") as f:
            text += f.read()
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


class Abi(unittest.TestCase):
    def in_c(self):
        """{name: value} of every size, offset and constant, from a C program."""
        lines = [f'printf("{c} %zu\\n", (size_t){c});' for c in CONSTANTS]
        for name, mirror in STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            for field, _ in mirror._fields_:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));')
                lines.append(f'printf("{name}.{field}# %zu\\n", '
                             f'sizeof(((struct {name} *)0)->{field}));')
        program = ("#include <stdio.h>\n#include \"libthc_rows.h\"\n"
                   "#include <thc/aggregator/job.h>\nint main(void)\n{\n" +
                   "\n".join(lines) + "\nreturn 0;\n}\n")
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "abi.c")
            with open(source, "w", encoding="ascii") as f:
                f.write(program)
            fake.compile_c(source, os.path.join(folder, "abi"))
            text = subprocess.run([os.path.join(folder, "abi")], check=True, capture_output=True,
                                  text=True).stdout
        return {name: int(value) for name, value in map(str.split, text.splitlines())}

    def test_layouts(self):
        want = self.in_c()
        have = dict(CONSTANTS)
        for name, mirror in STRUCTS.items():
            have[name] = ctypes.sizeof(mirror)
            for field, _ in mirror._fields_:
                have[f"{name}.{field}"] = getattr(mirror, field).offset
                have[f"{name}.{field}#"] = getattr(mirror, field).size
        self.assertEqual(have, want)

    def test_no_field_is_missing(self):
        text = headers()
        for name, mirror in STRUCTS.items():
            body = re.search(r"struct " + name + r" \{(.*?)\n\};", text, re.S)[1]
            fields = re.findall(r"(\w+)(?:\[\w+\])?;", body)
            self.assertEqual([f for f, _ in mirror._fields_], fields, name)

    def test_prototypes_have_as_many_arguments(self):
        text = headers()
        for name, (_, arguments) in abi._PROTOTYPES.items():
            listed = re.search(r"THC_API [^;]*?\b" + name + r"\(([^)]*)\)", text)[1]
            count = 0 if listed == "void" else listed.count(",") + 1
            self.assertEqual(len(arguments), count, name)


if __name__ == "__main__":
    unittest.main()

// SPDX-License-Identifier: GPL-2.0
/*
 * Looks for the functions of include/thc/aggregator/kfunc.h in the BTF of thc.ko.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/btf.h>
#include <thc/aggregator/kfunc.h>

#include "device.h"

#define MODULE	"/sys/module/thc"

static void read_name(char *name, size_t size)
{
	FILE *f = fopen(MODULE "/parameters/simd", "re");

	name[0] = '\0';
	if (f && fgets(name, (int)size, f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
}

static bool has_functions(const struct btf *btf)
{
#define HAS(name, ...) &&btf__find_by_name_kind(btf, "thc_kfunc_" #name, BTF_KIND_FUNC) > 0
#define HAS_TAG(bytes) HAS(tag_##bytes)
	return true THC_KFUNCS_TABLE(HAS) THC_KFUNCS_PLAIN(HAS) THC_PAYLOADS_LENT(HAS_TAG) HAS(nh);
#undef HAS_TAG
#undef HAS
}

enum thc_simd_offer thc_simd_offered(char *name, size_t size)
{
	enum thc_simd_offer offer = THC_SIMD_NO_FUNCTIONS;
	struct btf *kernel, *module;

	read_name(name, size);
	if (access(MODULE, F_OK))
		return THC_SIMD_NO_MODULE;
	/* without this file libbpf would warn */
	if (access("/sys/kernel/btf/thc", R_OK))
		return THC_SIMD_NO_FUNCTIONS;
	kernel = btf__load_vmlinux_btf();
	module = kernel ? btf__load_module_btf("thc", kernel) : NULL;
	if (module && has_functions(module))
		offer = THC_SIMD_OFFERED;
	btf__free(module);
	btf__free(kernel);
	return offer;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The functions that XDP programs may call: include/thc/aggregator/kfunc.h, registered,
 * counted and passed on to simd.c. They need this module's BTF. A module built
 * without BTF (no vmlinux in the kernel's headers, or no pahole) lacks these
 * functions and nothing else.
 *
 * A loaded program that calls one holds a reference to the module, so that
 * rmmod is refused until the last such program is gone. Nothing is unregistered:
 * the registration belongs to the module's BTF, and goes with it.
 */
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include <linux/percpu.h>

#include <thc/aggregator/kfunc.h>

#include "compat/compat.h"
#include "simd.h"

/**
 * struct thc_kfunc_count - what became of XDP's calls, per CPU
 * @calls: calls that combined lanes
 * @seals: calls that computed NH of a payload, or of an answer's lanes
 * @busy: calls while the vector unit was in use: lanes were left to the program, NH was computed
 *	without the unit
 */
struct thc_kfunc_count {
	unsigned long calls;
	unsigned long seals;
	unsigned long busy;
};

static DEFINE_PER_CPU(struct thc_kfunc_count, thc_kfunc_counts);

static int thc_kfunc_counted(int error)
{
	if (error)
		this_cpu_inc(thc_kfunc_counts.busy);
	else
		this_cpu_inc(thc_kfunc_counts.calls);
	return error;
}

/* NH of @words words. */
static u64 thc_kfunc_digest(const struct thc_seal_key *key, const void *data, int words)
{
	u64 nh;

	this_cpu_inc(thc_kfunc_counts.seals);
	if (!thc_simd_nh(&nh, key->nh, data, words))
		return nh;
	this_cpu_inc(thc_kfunc_counts.busy);
	return thc_nh(key->nh, data, words);
}

/* The parameters kfunc_calls, kfunc_seals and kfunc_busy: field @offset of all CPUs. */
static int thc_kfunc_param_get(char *buffer, const struct kernel_param *kp)
{
	size_t offset = (size_t)kp->arg;
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(
			*(unsigned long *)((char *)per_cpu_ptr(&thc_kfunc_counts, cpu) + offset));
	return sysfs_emit(buffer, "%lu\n", sum);
}

static const struct kernel_param_ops thc_kfunc_param_ops = { .get = thc_kfunc_param_get };

module_param_cb(kfunc_calls, &thc_kfunc_param_ops, (void *)offsetof(struct thc_kfunc_count, calls),
		0444);
MODULE_PARM_DESC(kfunc_calls, "Payloads that were summed for XDP; read only");
module_param_cb(kfunc_seals, &thc_kfunc_param_ops, (void *)offsetof(struct thc_kfunc_count, seals),
		0444);
MODULE_PARM_DESC(kfunc_seals, "Payloads whose seal was computed for XDP; read only");
module_param_cb(kfunc_busy, &thc_kfunc_param_ops, (void *)offsetof(struct thc_kfunc_count, busy),
		0444);
MODULE_PARM_DESC(kfunc_busy, "Calls by XDP while the vector unit was in use; read only");

/* The verifier lets a constant NULL pass as any pointer. */
#define THC_KFUNC_DEFINE_TABLE(name, bytes) \
	__bpf_kfunc int thc_kfunc_##name(struct thc_lane_block *lanes, \
					 const struct thc_payload_##bytes *payload, \
					 const struct thc_pairs *table, u32 first) \
	{ \
		if (!lanes || !payload || !table) \
			return -EINVAL; \
		return thc_kfunc_counted(thc_simd_##name(lanes->word, payload, table, first)); \
	}

#define THC_KFUNC_DEFINE_PLAIN(name, bytes) \
	__bpf_kfunc int thc_kfunc_##name(struct thc_lane_block *lanes, \
					 const struct thc_payload_##bytes *payload, u32 first) \
	{ \
		if (!lanes || !payload) \
			return -EINVAL; \
		return thc_kfunc_counted(thc_simd_##name(lanes->word, payload, first)); \
	}

/* Bits of an index in the row whose packets have @size bytes and whose sums have @width bits; 0:
 * there is none.
 */
static u32 thc_kfunc_bits(u32 size, u32 width)
{
#define THC_KFUNC_ROW(kind, name, op, up, sum, bytes, loop) \
	if (width == (sum) && size == sizeof(struct thc_sized_##bytes)) \
		return up;
	THC_FORMATS_GROUP(THC_KFUNC_ROW)
	return 0;
}

#define THC_KFUNC_DEFINE_GROUP(width) \
	__bpf_kfunc int thc_kfunc_group##width(struct thc_lane_block *lanes, const void *packet, \
					       u32 packet__sz, const struct thc_pairs *table, \
					       u32 first) \
	{ \
		u32 bits = thc_kfunc_bits(packet__sz, width); \
\
		if (!lanes || !packet || !table || !bits) \
			return -EINVAL; \
		return thc_kfunc_counted(thc_simd_group( \
			lanes->word, packet + sizeof(struct thc_hdr), table, bits, width, first)); \
	}

THC_KFUNCS_TABLE(THC_KFUNC_DEFINE_TABLE)
THC_KFUNCS_GROUP(THC_KFUNC_DEFINE_GROUP)
THC_KFUNCS_PLAIN(THC_KFUNC_DEFINE_PLAIN)

#define THC_KFUNC_DEFINE_TAG(bytes) \
	__bpf_kfunc u64 thc_kfunc_tag_##bytes(const struct thc_sized_##bytes *packet, \
					      const struct thc_seal_key *key) \
	{ \
		struct thc_siphash s; \
\
		if (!packet || !key) \
			return 0; \
		thc_seal_begin(&s, key->sip, &packet->hdr); \
		return thc_seal_end(&s, thc_kfunc_digest(key, packet->payload, (bytes) / 8)); \
	}

THC_PAYLOADS_LENT(THC_KFUNC_DEFINE_TAG)

__bpf_kfunc u64 thc_kfunc_nh(const struct thc_payload_1024 *lanes, const struct thc_seal_key *key)
{
	return lanes && key ? thc_kfunc_digest(key, lanes, THC_LANE_WORDS) : 0;
}

/* Spelled out: BTF_ID() makes its symbols' names from the line it stands on. */
BTF_KFUNCS_START(thc_kfunc_ids)
BTF_ID_FLAGS(func, thc_kfunc_lut8)
BTF_ID_FLAGS(func, thc_kfunc_lut16)
BTF_ID_FLAGS(func, thc_kfunc_group4)
BTF_ID_FLAGS(func, thc_kfunc_group8)
BTF_ID_FLAGS(func, thc_kfunc_group16)
BTF_ID_FLAGS(func, thc_kfunc_linear8)
BTF_ID_FLAGS(func, thc_kfunc_add8)
BTF_ID_FLAGS(func, thc_kfunc_add16)
BTF_ID_FLAGS(func, thc_kfunc_add32)
BTF_ID_FLAGS(func, thc_kfunc_tag_512)
BTF_ID_FLAGS(func, thc_kfunc_tag_1024)
BTF_ID_FLAGS(func, thc_kfunc_tag_256)
BTF_ID_FLAGS(func, thc_kfunc_nh)
BTF_KFUNCS_END(thc_kfunc_ids)

static const struct btf_kfunc_id_set thc_kfunc_set = {
	.owner	= THIS_MODULE,
	.set	= &thc_kfunc_ids,
};

void thc_kfunc_init(void)
{
	int error;

	if (!thc_module_has_btf(THIS_MODULE))
		return;
	error = register_btf_kfunc_id_set(BPF_PROG_TYPE_XDP, &thc_kfunc_set);
	if (error)
		pr_notice("thc: XDP sums lanes without this module: error %d\n", error);
}

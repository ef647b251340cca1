// SPDX-License-Identifier: GPL-2.0
/*
 * Choice of the instruction set that sums lanes and computes NH, and use of the vector unit.
 *
 * The unit's registers belong to the task that XDP interrupted. They are saved
 * by kernel_fpu_begin(), once per such task: for the other packets of a NAPI
 * poll it costs next to nothing. If irq_fpu_usable() is false, the interrupt came
 * while the kernel itself used the unit: the caller then does without the unit.
 * Between begin and end there is one loop and nothing else, so it never nests.
 *
 * The choice is made once, while the module is loading, and patched into the
 * calls: parameter "simd", auto or a name of thc_simd_all[].
 */
#include <linux/jump_label.h>
#include <linux/module.h>
#include <linux/static_call.h>

#include <thc/aggregator/kfunc.h>

#include "compat/compat.h"
#include "simd.h"

#ifdef THC_HAVE_AVX
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>

static bool thc_simd_supported(const struct thc_simd_ops *ops)
{
	if (ops == &thc_simd_avx512)
		return boot_cpu_has(X86_FEATURE_AVX512BW) && boot_cpu_has(X86_FEATURE_AVX512VL) &&
		       boot_cpu_has(X86_FEATURE_AVX512VBMI) &&
		       cpu_has_xfeatures(
			       XFEATURE_MASK_SSE | XFEATURE_MASK_YMM | XFEATURE_MASK_AVX512, NULL);
	if (ops == &thc_simd_avx2)
		return boot_cpu_has(X86_FEATURE_AVX2) &&
		       cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL);
	return true;
}

static bool thc_vector_begin(void)
{
	if (!irq_fpu_usable())
		return false;
	kernel_fpu_begin();
	return true;
}

static void thc_vector_end(void)
{
	kernel_fpu_end();
}
#else
static bool thc_simd_supported(const struct thc_simd_ops *ops)
{
	return true;
}

static bool thc_vector_begin(void)
{
	return false;
}

static void thc_vector_end(void)
{
}
#endif

/* From the best to the one that every CPU has. */
static const struct thc_simd_ops *const thc_simd_all[] = {
#ifdef THC_HAVE_AVX
	&thc_simd_avx512,
	&thc_simd_avx2,
#endif
	&thc_simd_scalar,
};

/* Asked for by parameter, or NULL; in use once thc_simd_init() has run. */
static const struct thc_simd_ops *thc_simd_ops;

const char *thc_simd_name(void)
{
	return thc_simd_ops ? thc_simd_ops->name : "auto";
}

/* True if the loops in use are not the scalar ones. */
static DEFINE_STATIC_KEY_FALSE(thc_simd_vector);

static int thc_simd_param_set(const char *value, const struct kernel_param *kp)
{
	size_t i;

	if (sysfs_streq(value, "auto"))
		return 0;
	for (i = 0; i < ARRAY_SIZE(thc_simd_all); i++) {
		if (!sysfs_streq(value, thc_simd_all[i]->name))
			continue;
		if (!thc_simd_supported(thc_simd_all[i]))
			return -EOPNOTSUPP;
		thc_simd_ops = thc_simd_all[i];
		return 0;
	}
	return -EINVAL;
}

static int thc_simd_param_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", thc_simd_name());
}

static const struct kernel_param_ops thc_simd_param_ops = {
	.set	= thc_simd_param_set,
	.get	= thc_simd_param_get,
};

module_param_cb(simd, &thc_simd_param_ops, NULL, 0444);
MODULE_PARM_DESC(simd, "Instructions that sum lanes for XDP: auto, avx512, avx2 or scalar");

/* thc_simd_@name(): the loop in use, with the vector unit if it needs it. */
#define THC_SIMD_LOOP(name, args, ...) \
	DEFINE_STATIC_CALL_NULL(thc_simd_##name##_loop, *thc_simd_scalar.name); \
\
	int thc_simd_##name args \
	{ \
		if (!static_branch_likely(&thc_simd_vector)) { \
			thc_simd_scalar.name(__VA_ARGS__); \
			return 0; \
		} \
		if (!thc_vector_begin()) \
			return -EBUSY; \
		static_call(thc_simd_##name##_loop)(__VA_ARGS__); \
		thc_vector_end(); \
		return 0; \
	}

#define THC_SIMD_LOOP_TABLE(name, bytes) \
	THC_SIMD_LOOP(name, \
		      (u64 * lanes, const void *payload, const struct thc_pairs *p, int first), \
		      lanes, payload, p, first)
#define THC_SIMD_LOOP_PLAIN(name, bytes) \
	THC_SIMD_LOOP(name, (u64 * lanes, const void *payload, int first), lanes, payload, first)

THC_KFUNCS_TABLE(THC_SIMD_LOOP_TABLE)
THC_SIMD_LOOP(group,
	      (u64 * lanes, const void *payload, const struct thc_pairs *p, u32 bits, u32 width,
	       int first),
	      lanes, payload, p, bits, width, first)
THC_KFUNCS_PLAIN(THC_SIMD_LOOP_PLAIN)
THC_SIMD_LOOP(nh, (u64 * nh, const u32 *key, const void *data, int words), nh, key, data, words)

#define THC_SIMD_UPDATE(name, ...) static_call_update(thc_simd_##name##_loop, thc_simd_ops->name);

void thc_simd_init(void)
{
	size_t i = 0;

	if (!thc_simd_ops) {
		while (!thc_simd_supported(thc_simd_all[i]))
			i++;
		thc_simd_ops = thc_simd_all[i];
	}
	if (thc_simd_ops == &thc_simd_scalar)
		return;
	THC_KFUNCS_TABLE(THC_SIMD_UPDATE)
	THC_KFUNCS_PLAIN(THC_SIMD_UPDATE)
	THC_SIMD_UPDATE(group)
	THC_SIMD_UPDATE(nh)
	static_branch_enable(&thc_simd_vector);
}

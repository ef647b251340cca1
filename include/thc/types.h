/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the pure cores need from their compiler: fixed-size types, inlining
 * and byte order, for the kernel, BPF and user space alike. No I/O, no libc.
 */
#ifndef THC_TYPES_H
#define THC_TYPES_H

#ifdef __KERNEL__
#include <linux/stddef.h>	/* NULL */
#else
#include <stddef.h>
#endif
#include <linux/types.h>
#include <linux/thc.h>

#define THC_NS_PER_US	1000ULL
#define THC_NS_PER_MS	1000000ULL

#define THC_INLINE static inline __attribute__((always_inline))

#ifndef __KERNEL__
typedef __u8  u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
#endif

/* clang-format off */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define THC_LE(v, bits) (v)
#define THC_BE(v, bits) __builtin_bswap##bits(v)
#else
#define THC_LE(v, bits) __builtin_bswap##bits(v)
#define THC_BE(v, bits) (v)
#endif

#ifdef __CHECKER__
/* Converts in the direction that the argument's type says, so that sparse detects the wrong one. */
#define THC_SPARSE(v, be, host)								\
	__builtin_choose_expr(__builtin_types_compatible_p(__typeof__(v), be),		\
			      (__attribute__((force)) host)(v),				\
			      (__attribute__((force)) be)(__attribute__((force)) host)(v))
#define thc_be16(v) THC_SPARSE(v, __be16, u16)
#define thc_be32(v) THC_SPARSE(v, __be32, u32)
#define thc_be64(v) THC_SPARSE(v, __be64, u64)
#else
THC_INLINE u16 thc_be16(u16 v) { return THC_BE(v, 16); }
THC_INLINE u32 thc_be32(u32 v) { return THC_BE(v, 32); }
THC_INLINE u64 thc_be64(u64 v) { return THC_BE(v, 64); }
#endif
/* Lanes and sums are untyped memory. */
THC_INLINE u16 thc_le16(u16 v) { return THC_LE(v, 16); }
THC_INLINE u32 thc_le32(u32 v) { return THC_LE(v, 32); }
THC_INLINE u64 thc_le64(u64 v) { return THC_LE(v, 64); }
/* A word of a bit stream that begins at the word's top, also in untyped memory. */
THC_INLINE u64 thc_stream64(u64 v) { return THC_BE(v, 64); }
/* clang-format on */

/* A 64-bit word inside a packet, and half of one, of any alignment; it may alias any type. For BPF
 * the alignment is natural, since clang would load words of alignment 1 byte by byte. The machines
 * that run XDP load unaligned words, and the verifier refuses the program where they do not.
 */
#ifdef __bpf__
typedef u64 __attribute__((may_alias)) thc_word;
typedef u32 __attribute__((may_alias)) thc_half_word;
#else
typedef u64 __attribute__((aligned(1), may_alias)) thc_word;
typedef u32 __attribute__((aligned(1), may_alias)) thc_half_word;
#endif

/* Index of half @i, counted from the lowest, in an array of words of host order. */
#define THC_HALF_AT(i)	((i) ^ (THC_LE(1, 16) != 1))

/* Keeps the operations on @v in program order: BPF lacks the registers for clang's other orders. */
#ifdef __bpf__
#define THC_IN_ORDER(v)	asm volatile("" : "+r"(v))
#else
#define THC_IN_ORDER(v)	((void)0)
#endif

/* In front of a hot loop. Compilers do not unroll by themselves at -O2, and an
 * index, a compare and a jump are half of a small loop's body.
 */
#ifdef __clang__
#define THC_UNROLL	_Pragma("unroll 16")
#else
#define THC_UNROLL	_Pragma("GCC unroll 16")
#endif

/* In front of a hot loop of few turns, whose number is a constant. clang unrolls it whole by
 * itself, and in part if told to.
 */
#ifdef __clang__
#define THC_UNROLL_WHOLE
#else
#define THC_UNROLL_WHOLE	THC_UNROLL
#endif

/* As THC_UNROLL_WHOLE, but BPF keeps the loop. Its body is much longer there, and a program too
 * large for the CPU's cache of decoded instructions costs more than the jumps.
 */
#ifdef __bpf__
#define THC_UNROLL_BUT_BPF	_Pragma("clang loop unroll(disable)")
#else
#define THC_UNROLL_BUT_BPF	THC_UNROLL_WHOLE
#endif

/* The structs of <linux/thc_wire.h> and <linux/thc.h> have these sizes for every compiler. Those
 * headers do not assert them, since they also serve languages without assertions, C90 and C++98.
 */
#define THC_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), "size of " #type)

THC_ASSERT_SIZE(struct thc_hdr, 48);
THC_ASSERT_SIZE(struct thc_join, 64);
THC_ASSERT_SIZE(struct thc_challenge, 32);
THC_ASSERT_SIZE(struct thc_leave, 16);
THC_ASSERT_SIZE(struct thc_welcome, 64);
THC_ASSERT_SIZE(struct thc_record, 4);
THC_ASSERT_SIZE(struct thc_record_seal, 24);
THC_ASSERT_SIZE(struct thc_record_address, 20);
THC_ASSERT_SIZE(struct thc_record_group, 24);
THC_ASSERT_SIZE(struct thc_record_shards, 8);
THC_ASSERT_SIZE(struct thc_record_row, 16);
THC_ASSERT_SIZE(struct thc_record_scheme, 24);
THC_ASSERT_SIZE(struct thc_record_rate, 16);
THC_ASSERT_SIZE(struct thc_claim, 32);
THC_ASSERT_SIZE(struct sockaddr_thc, 40);
THC_ASSERT_SIZE(struct thc_send, 16);
THC_ASSERT_SIZE(struct thc_received, 40);
THC_ASSERT_SIZE(struct thc_job_info, 80);
THC_ASSERT_SIZE(struct thc_socket_stats, 168);
THC_ASSERT_SIZE(struct thc_failure, 24);

/* Lanes of one slot version, as 64-bit little-endian words. */
#define THC_LANE_WORDS	(THC_LANE_BYTES / 8)
#define THC_HDR_WORDS	((int)(sizeof(struct thc_hdr) / 8))

#endif /* THC_TYPES_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a worker can serve the job that a WELCOME of one part describes, written from
 * Documentation/protocol.md alone: a model that the library's reading is compared with.
 */
#ifndef THC_FUZZ_SERVED_H
#define THC_FUZZ_SERVED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <linux/thc_wire.h>

static unsigned int be16_at(const uint8_t *p)
{
	return (unsigned int)p[0] << 8 | p[1];
}

/* What of WELCOME's records counts for this worker; NULL: there is none. The job's own row is the
 * first one; of_bits has all rows, by b.
 */
struct records {
	const uint8_t	*seal;
	const uint8_t	*group;
	const uint8_t	*row;
	const uint8_t	*scheme;
	const uint8_t	*rate;
	const uint8_t	*of_bits[9];
	uint32_t	hash;
};

static uint32_t hash_on(uint32_t hash, const uint8_t *p, size_t bytes)
{
	while (bytes--)
		hash = (hash ^ *p++) * 16777619U;
	return hash;
}

/* One record's data @d; false: a worker refuses the job for it. */
static bool note_record(struct records *r, uint8_t type, uint8_t flags, const uint8_t *d,
			unsigned int length)
{
	const uint8_t **one = type == 1 ? &r->seal :
			      type == 2 ? &r->group :
			      type == 3 ? &r->row :
			      type == 5 ? &r->scheme :
			      type == 7 ? &r->rate :
					  NULL;
	unsigned int bits = d[0] & 15;

	if (!one)
		return !(flags & 1);
	if (length < (type == 3 || type == 7 ? 12U : 20U))
		return false;
	switch (type) {
	case 1:
		if (d[1] || d[2] || d[3] || (*one && memcmp(*one, d, 20)))
			return false;
		break;
	case 3:
		if (bits < 1 || bits > 8 || length < 12 + (2U << bits))
			return false;
		if (d[0] > 8)
			return true;
		if (r->of_bits[bits])
			return false;
		r->of_bits[bits] = d;
		if (*one)
			return true;
		break;
	case 5:
		if (d[16] || d[17] || d[18] || d[19])
			return false;
		/* the job's own is the first one */
		if (*one)
			return true;
		break;
	case 7:
		if (*one || d[8] || d[9] || d[10] || d[11] & ~1)
			return false;
		/* a rate, or an error */
		if (!(d[0] || d[1] || d[2] || d[3]) == !(d[4] || d[5] || d[6] || d[7]))
			return false;
		break;
	default:
		if (*one)
			return false;
	}
	*one = d;
	return true;
}

/* The records of the one part with @bytes of payload at @w. */
static bool take_records(struct records *r, const uint8_t *w, size_t bytes)
{
	size_t at = 64, end, i;

	*r = (struct records){ .hash = 2166136261U };
	for (; at < bytes; at = end) {
		const uint8_t *head = w + at;
		unsigned int length = be16_at(head + 2);

		end = at + (4 + length + 7) / 8 * 8;
		if (end > bytes || head[1] & ~3)
			return false;
		for (i = at + 4 + length; i < end; i++)
			if (w[i])
				return false;
		if (head[1] & 2)
			r->hash = hash_on(r->hash, head, end - at);
		if (!note_record(r, head[0], head[1], head + 4, length))
			return false;
	}
	/* seed and features */
	r->hash = hash_on(hash_on(r->hash, w + 24, 8), w + 36, 4);
	return true;
}

/* A row whose levels rise from 0 to the granularity, and fit into sums. */
static bool is_table(const uint8_t *row, unsigned int ranks)
{
	unsigned int g = be16_at(row + 2), levels = 1U << row[0], i;
	uint64_t bits = 0;
	double threshold;

	for (i = 0; i < 8; i++)
		bits = bits << 8 | row[4 + i];
	memcpy(&threshold, &bits, sizeof(threshold));
	for (i = 1; i < levels; i++)
		if (be16_at(row + 12 + 2 * i) <= be16_at(row + 12 + 2 * (i - 1)))
			return false;
	return !be16_at(row + 12) && be16_at(row + 12 + 2 * (levels - 1)) == g && g <= 4095 &&
	       (uint64_t)g * ranks < 1ULL << row[1] && threshold > 0 && threshold < 16;
}

/* All rows are tables, and chunks of the job's own are in a block. */
static bool are_tables(const struct records *r, unsigned int block_log2, unsigned int ranks)
{
	unsigned int bits;

	for (bits = 1; bits <= 8; bits++)
		if (r->of_bits[bits] && !is_table(r->of_bits[bits], ranks))
			return false;
	return block_log2 >= 10 && block_log2 <= 20 && 8192U / r->row[1] <= 1U << block_log2;
}

/* Bits and sums that there are. */
static bool are_widths(const struct records *r)
{
	unsigned int bits;

	for (bits = 1; bits <= 8; bits++) {
		unsigned int sum = r->of_bits[bits] ? r->of_bits[bits][1] : 32;

		if ((sum != 4 && sum != 8 && sum != 16 && sum != 32) || bits > sum)
			return false;
	}
	return true;
}

/* Precisions of sums of @ranks ranks without loss: exact ones, and with four bits or more. */
static bool is_precision(unsigned int bits, unsigned int ranks)
{
	return !bits || ((bits == 8 || bits == 16 || bits == 32) && ranks <= 1U << (bits - 5));
}

/* The job's own scheme, with what it needs. */
static bool is_scheme(const uint8_t *w, const struct records *r)
{
	const uint8_t *s = r->scheme;
	unsigned int ranks = be16_at(w + 44);
	bool table = are_tables(r, s[1], ranks);

	/* features, of which 2 and 4 are lhc's, and 4 with 2 */
	if (s[12] || s[13] || s[14] || s[15] & ~(s[0] == 3 ? 7 : 1) || (s[15] & 6) == 4)
		return false;
	switch (s[0]) {
	case 0:
		return table;
	case 1:
		return is_precision(s[2], ranks) && !(be16_at(w + 32) | be16_at(w + 34));
	case 2:
		return table && be16_at(r->row + 2) == (1U << r->row[0]) - 1;
	case 3:
		return is_precision(s[2], ranks) && !(be16_at(w + 32) | be16_at(w + 34)) &&
		       be16_at(s + 4) <= 256 && !(be16_at(s + 4) & (be16_at(s + 4) - 1));
	}
	return false;
}

static bool is_group(const uint8_t *d)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	unsigned int i;

	if (d[1] || (d[0] != 4 && d[0] != 6))
		return false;
	for (i = 8; d[0] == 4 && i < 20; i++)
		if (d[i])
			return false;
	return d[0] == 4 || memcmp(d + 4, mapped, sizeof(mapped));
}

/* A job that a worker can serve. */
static bool can_be_served(const uint8_t *w, size_t bytes, unsigned int rank, bool keyed)
{
	unsigned int ranks = be16_at(w + 44), data = be16_at(w + 48), control = be16_at(w + 50);
	struct records r;

	if (!take_records(&r, w, bytes) || !r.seal || !r.row || !r.scheme ||
	    r.hash != ((uint32_t)be16_at(w + 40) << 16 | be16_at(w + 42)))
		return false;
	if (r.group && !is_group(r.group))
		return false;
	if (keyed ? r.seal[0] != THC_SEAL_NH : r.seal[0] > THC_SEAL_SUM)
		return false;
	/* flags, features, this shard of one */
	if (be16_at(w + 52) & ~0x27U || w[36] || w[37] || w[38] || w[39] & ~1 || be16_at(w + 60) ||
	    be16_at(w + 62) != 1)
		return false;
	if (ranks <= rank || ranks > 64 || !data || !control || data + control > 4096)
		return false;
	if (!are_widths(&r) || !is_scheme(w, &r))
		return false;
	/* of blocks with norms, of 1024 coordinates */
	if (r.rate && (r.scheme[0] || r.scheme[1] != 10))
		return false;
	if (w[55] != THC_REPLY_MULTICAST)
		return w[55] == THC_REPLY_FANOUT;
	return r.group && be16_at(r.group + 2) >= 1024 &&
	       (r.group[0] == 4 ? r.group[4] >> 4 == 14 : r.group[4] == 255);
}

/* Is it one part, and the whole of it? A refusal in more than one part is none either. */
static bool is_whole_welcome(const uint8_t *w, size_t bytes)
{
	return bytes >= 64 && bytes <= 1024 && !(bytes % 8) && !w[56] && w[57] == 1 && !w[59];
}

#endif /* THC_FUZZ_SERVED_H */

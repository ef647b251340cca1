// SPDX-License-Identifier: GPL-2.0
/*
 * The operator's input: keys of jobs on the command line and in a file give the same wishes, and
 * every error is reported by name and place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <thc/wire/spec.h>

#include "config.h"
#include "credentials.h"

static struct thcd_config config;
static struct thcd_error error;

static int setup(void **state)
{
	(void)state;
	thcd_config_init(&config);
	error.text[0] = '\0';
	return 0;
}

#define refused(call, words) \
	do { \
		assert_int_not_equal(call, 0); \
		if (!strstr(error.text, words)) \
			fail_msg("\"%s\" does not say \"%s\"", error.text, words); \
	} while (0)

#define bad_job(keys, words) refused(thcd_config_job(&config, keys, &error), words)
#define bad_file(text, words) refused(thcd_config_text(&config, "f.json", text, &error), words)

static void check_key(const struct thcd_job_wish *w, const char *name)
{
	u8 key[THC_KEY_BYTES];

	credential_key(name, key);
	assert_memory_equal(w->key, key, sizeof(key));
}

static void job__defaults(void **state)
{
	const struct thcd_job_wish *w = &config.job[0];

	(void)state;
	assert_int_equal(thcd_config_job(&config, "1,ranks=2,key=@one", &error), 0);
	assert_int_equal(config.jobs, 1);
	assert_int_equal(w->job, 1);
	assert_int_equal(w->ranks, 2);
	check_key(w, "one");
	assert_int_equal(w->table, THCD_TABLE_AUTO);
	assert_int_equal(w->bits, 4);
	assert_int_equal(w->scheme, THC_SCHEME_THC);
	assert_int_equal(w->sum_width, 0);
	assert_int_equal(w->block, 1024);
	assert_int_equal(w->slots, 512);
	assert_int_equal(w->control_slots, 64);
	assert_int_equal(w->reply, THC_REPLY_MULTICAST);
	assert_true(w->clamp == 1.0 / 32);
	assert_int_equal(w->seal, THC_SEAL_NH);
	assert_true(w->correlated);
	assert_true(w->feedback);
	assert_true(w->rotate);
	assert_int_equal(w->precision, THC_EXACT);
	assert_true(thcd_job_wish_given(w, "key"));
	assert_false(thcd_job_wish_given(w, "clamp"));
}

/* A table may have 256 levels, on the command line and in a file, but no more. */
static void job__most_levels(void **state)
{
	char keys[2048] = "1,ranks=1,key=@one,bits=8,table=0";
	char list[2048] = "{ \"jobs\": [ { \"job\": 2, \"bits\": 8, \"table\": [0";
	unsigned int i;

	(void)state;
	for (i = 1; i < 256; i++) {
		sprintf(keys + strlen(keys), ":%u", 1000 + i);
		sprintf(list + strlen(list), ",%u", 1000 + i);
	}
	assert_int_equal(thcd_config_job(&config, keys, &error), 0);
	assert_int_equal(config.job[0].values, 256);
	assert_int_equal(config.job[0].value[255], 1255);
	strcat(keys, ":1256");
	bad_job(keys, "table: more than 256 levels");
	strcat(list, "] } ] }");
	if (thcd_config_text(&config, "f.json", list, &error))
		fail_msg("%s", error.text);
	assert_int_equal(config.job[1].values, 256);
	assert_int_equal(config.job[1].value[255], 1255);
	strcpy(list + strlen(list) - strlen("] } ] }"), ",1256] } ] }");
	bad_file(list, "table: more than 256 levels");
}

/* Every key with a value of its own, on the command line. */
static const char every_key[] =
	"job=3,ranks=4,key=@one,table=0:5:10:16,bits=2,granularity=16,"
	"clamp=1/512,scheme=lhc,precision=fixed16,grain=64,sketch=three,rotate=off,feedback=off,sum_width=16,"
	"block=4096,slots=100,norm_slots=7,reply=fanout,group=239.1.2.3,group_port=7000,"
	"prefix=10.0.0.0/8,prefix=fd00::/64,shards=10.0.0.1,10.0.0.2:9100,shard=1,hops=254,"
	"quorum=3,deadline_ms=250,seed=18446744073709551615,seal=none,correlated=off,"
	"rate=4.5,error=0.0125";

static void check_every_key(const struct thcd_job_wish *w)
{
	const char *key;
	unsigned int i;

	for (i = 0; (key = thcd_job_key(i, NULL)); i++)
		if (!thcd_job_wish_given(w, key))
			fail_msg("key %s is not in this test", key);
	assert_int_equal(w->job, 3);
	assert_int_equal(w->ranks, 4);
	check_key(w, "one");
	assert_int_equal(w->table, THCD_TABLE_LIST);
	assert_int_equal(w->values, 4);
	assert_int_equal(w->value[1], 5);
	assert_int_equal(w->value[3], 16);
	assert_int_equal(w->bits, 2);
	assert_int_equal(w->granularity, 16);
	assert_true(w->clamp == 1.0 / 512);
	assert_int_equal(w->scheme, THC_SCHEME_LHC);
	assert_int_equal(w->precision, 16);
	assert_int_equal(w->grain, 64);
	assert_int_equal(w->sketch, THC_SCHEME_F_SKETCH);
	assert_false(w->rotate);
	assert_false(w->feedback);
	assert_int_equal(w->sum_width, 16);
	assert_int_equal(w->block, 4096);
	assert_int_equal(w->slots, 100);
	assert_int_equal(w->control_slots, 7);
	assert_int_equal(w->reply, THC_REPLY_FANOUT);
	assert_string_equal(w->group, "239.1.2.3");
	assert_int_equal(w->group_port, 7000);
	assert_int_equal(w->prefixes, 2);
	assert_string_equal(w->prefix[0], "10.0.0.0/8");
	assert_string_equal(w->prefix[1], "fd00::/64");
	assert_int_equal(w->aggregators, 2);
	assert_string_equal(w->aggregator[0], "10.0.0.1");
	assert_string_equal(w->aggregator[1], "10.0.0.2:9100");
	assert_int_equal(w->shard, 1);
	assert_int_equal(w->hops, 254);
	assert_int_equal(w->quorum, 3);
	assert_int_equal(w->deadline_ms, 250);
	assert_true(w->seed == UINT64_MAX);
	assert_int_equal(w->seal, THC_SEAL_NONE);
	assert_false(w->correlated);
	assert_int_equal(w->rate, 4500);
	assert_int_equal(w->error, 12500);
}

static void job__every_key(void **state)
{
	(void)state;
	assert_int_equal(thcd_config_job(&config, every_key, &error), 0);
	check_every_key(&config.job[0]);
}

static void file__every_key(void **state)
{
	static const char text[] =
		"{ \"interface\": \"eth3\", \"mode\": \"generic\", \"port\": 19000,\n"
		"  \"listen\": [\"127.0.0.1\", \"::1\"], \"software\": true, \"simd\": false,\n"
		"  \"force\": true, \"instance\": \"a-b.c\",\n"
		"  \"control\": \"/tmp/x\", \"pidfile\": \"/tmp/p\", \"control_group\": \"adm\",\n"
		"  \"spare_slots\": 576,\n"
		"  \"jobs\": [ { \"job\": 3, \"ranks\": 4, \"key\": \"@one\",\n"
		"    \"table\": [0, 5, 10, 16], \"bits\": 2, \"granularity\": 16, \"clamp\": "
		"\"1/512\",\n"
		"    \"scheme\": \"lhc\", \"precision\": \"fixed16\", \"grain\": 64,\n"
		"    \"sketch\": \"three\",\n"
		"    \"rotate\": false, \"feedback\": false,\n"
		"    \"sum_width\": 16, \"block\": 4096, \"slots\": 100, \"norm_slots\": 7,\n"
		"    \"reply\": \"fanout\", \"group\": \"239.1.2.3\", \"group_port\": 7000,\n"
		"    \"prefix\": [\"10.0.0.0/8\", \"fd00::/64\"],\n"
		"    \"shards\": [\"10.0.0.1\", \"10.0.0.2:9100\"],\n"
		"    \"shard\": 1, \"hops\": 254, \"quorum\": 3,\n"
		"    \"deadline_ms\": 250,\n"
		"    \"seed\": \"18446744073709551615\", \"seal\": \"none\",\n"
		"    \"correlated\": false, \"rate\": 4.5, \"error\": \"0.0125\" },\n"
		"   { \"job\": 4, \"ranks\": 2, \"key\": \"@two\", \"clamp\": 0.03125 } ] }\n";

	(void)state;
	if (thcd_config_text(&config, "f.json", text, &error))
		fail_msg("%s", error.text);
	assert_int_equal(config.jobs, 2);
	check_every_key(&config.job[0]);
	check_key(&config.job[1], "two");
	assert_true(config.job[1].clamp == 1.0 / 32);
	assert_string_equal(config.interface, "eth3");
	assert_int_equal(config.mode, THCD_MODE_GENERIC);
	assert_int_equal(config.port, 19000);
	assert_int_equal(config.listens, 2);
	assert_string_equal(config.listen[1], "::1");
	assert_true(config.software);
	assert_true(config.no_simd);
	assert_true(config.force);
	assert_string_equal(config.instance, "a-b.c");
	assert_string_equal(config.control, "/tmp/x");
	assert_string_equal(config.pidfile, "/tmp/p");
	assert_string_equal(config.control_group, "adm");
	assert_int_equal(config.spare_slots, 576);
}

static void job__seals(void **state)
{
	static const struct {
		const char *word;
		enum thc_seal_type seal;
	} row[] = { { "nh", THC_SEAL_NH }, { "sum", THC_SEAL_SUM }, { "none", THC_SEAL_NONE } };
	char keys[32];
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		snprintf(keys, sizeof(keys), "%u,ranks=2,seal=%s", i, row[i].word);
		assert_int_equal(thcd_config_job(&config, keys, &error), 0);
		assert_int_equal(config.job[i].seal, row[i].seal);
		assert_false(thcd_job_wish_given(&config.job[i], "key"));
	}
}

static void job__bad_values_are_named(void **state)
{
	(void)state;
	bad_job("1,rank=2", "unknown key \"rank\"");
	bad_job("1,ranks=2,ranks=3", "ranks is given twice");
	bad_job("1,job=1", "job is given twice");
	bad_job("1,ranks", "\"ranks\" is not key=value");
	bad_job("1,ranks=", "ranks: \"\" is not a number");
	bad_job("1,ranks=two", "ranks: \"two\" is not a number");
	bad_job("1,ranks=-2", "\"-2\" is not a number");
	bad_job("1,ranks=2x", "\"2x\" is not a number");
	bad_job("1,ranks=0", "ranks: 0 is out of range");
	bad_job("1,rate=0.2", "rate: \"0.2\" is not a number from 0.25 to 24");
	bad_job("1,rate=24.1", "rate: \"24.1\" is not a number");
	bad_job("1,rate=nan", "rate: \"nan\" is not a number");
	bad_job("1,rate=4x", "rate: \"4x\" is not a number");
	bad_job("1,rate=", "rate: \"\" is not a number");
	bad_job("1,rate=automatic", "rate: \"automatic\" is not a number");
	bad_job("1,error=1e-7", "error: \"1e-7\" is not a number from 1e-06 to 0.5");
	bad_job("1,error=0.6", "error: \"0.6\" is not a number");
	bad_job("1,error=-0.1", "error: \"-0.1\" is not a number");
	bad_job("1,error=inf", "error: \"inf\" is not a number");
	bad_job("1,ranks=65", "ranks: 65 is out of range");
	bad_job("16", "job: 16 is out of range");
	bad_job("1,key=0011223344", "key: only a file can hold it: make one with thcctl genkey");
	bad_job("1,key=", "key: only a file can hold it");
	bad_job("1,key=@one,key=@two", "key is given twice");
	/* an obsolete key */
	bad_job("1,cookie=0x1234", "cookie: cookies are gone: make a key with thcctl genkey FILE, "
				   "and give key=@FILE");
	bad_job("1,cookie=@one", "cookies are gone");
	bad_job("1,sum=off", "sum: give seal=none for what was sum=off");
	bad_job("1,bits=9", "bits: 9 is out of range, 1 to 8");
	bad_job("1,bits=0", "bits: 0 is out of range");
	bad_job("1,clamp=0", "clamp");
	bad_job("1,clamp=1", "clamp");
	bad_job("1,clamp=1/0", "clamp");
	bad_job("1,clamp=nan", "clamp");
	bad_job("1,clamp=1/32/2", "clamp");
	bad_job("1,sum_width=12", "neither auto nor 4 nor 8 nor 16 nor 32");
	bad_job("1,precision=fixed", "neither exact nor fixed8 nor fixed16 nor fixed32");
	bad_job("1,precision=8", "neither exact nor");
	bad_job("1,rotate=no", "neither off nor on");
	bad_job("1,feedback=1", "neither off nor on");
	bad_job("1,scheme=lossless", "scheme: there is no \"lossless\"");
	bad_job("1,block=512", "block: 512 is out of range");
	bad_job("1,block=2097152", "block");
	bad_job("1,slots=0", "slots");
	bad_job("1,reply=unicast", "neither multicast nor fanout");
	bad_job("1,seal=maybe", "neither none nor sum nor nh");
	bad_job("1,seal=nh,seal=nh", "seal is given twice");
	bad_job("1,table=0:1:", "is not a level");
	bad_job("1,table=0;1", "separated by ':'");
	bad_job("1,table=0:-1", "is not a level");
	bad_job("1,table=0:5000", "is not a level");
	bad_job("1,table=@", "ends in _recv_table.txt");
	bad_job("1,deadline_ms=0", "deadline_ms: 0 is out of range, 1 to 3600000");
	bad_job("1,group=", "group");
	assert_int_equal(config.jobs, 0);
}

static void file__mistakes_have_their_place(void **state)
{
	(void)state;
	bad_file("", "f.json:1: not JSON");
	bad_file("{\n \"port\": 1,\n}",
		 "f.json:3: not JSON: its end comes too early, or behind a comma");
	bad_file("{\n \"port\": 1,\n \"jobs\": [", "f.json:3: not JSON: its end");
	bad_file("{ \"port\": 18500 } x", "not JSON");
	bad_file("[]", "one object");
	bad_file("{\n\n \"prot\": 18500 }", "f.json:3: unknown key \"prot\"");
	bad_file("{ \"port\": 18500, \"port\": 18501 }", "\"port\" is given twice");
	bad_file("{ \"port\": 65500 }",
		 "f.json:1: port: \"65500\" is not a number from 1 to 65471");
	bad_file("{ \"mode\": \"fast\" }", "neither auto nor native nor generic");
	bad_file("{ \"software\": 1 }", "neither off nor on");
	bad_file("{ \"simd\": \"avx\" }", "neither on nor off");
	bad_file("{ \"instance\": \"a/b\" }", "instance");
	bad_file("{ \"instance\": \"..\" }", "instance");
	bad_file("{ \"port\": null }", "a number, text");
	bad_file("{ \"jobs\": { } }", "\"jobs\" is not a list");
	bad_file("{ \"jobs\": [ 1 ] }", "jobs[0] is not an object");
	bad_file("{ \"jobs\": [ {\"job\": 1},\n {\"job\": 2,\n \"rnaks\": 2} ] }",
		 "f.json:3: jobs[1]: unknown key \"rnaks\"");
	bad_file("{ \"jobs\": [ {\"job\": 1, \"ranks\": 2.5} ] }", "\"2.5\" is not a number");
	bad_file("{ \"jobs\": [ {\"job\": 1, \"seed\": 9223372036854775808} ] }",
		 "write it as text");
	bad_file("{ \"jobs\": [ {\"job\": 1,\n \"cookie\": \"@one\"} ] }",
		 "f.json:2: jobs[0]: cookie: cookies are gone");
	bad_file("{ \"jobs\": [ {\"job\": 1, \"cookie\": 77} ] }", "cookies are gone");
	bad_file("{ \"jobs\": [ {\"job\": 1,\n \"sum\": false} ] }",
		 "f.json:2: jobs[0]: sum: give seal=none");
	bad_file("{ \"jobs\": [ {\"job\": 1, \"seal\": false} ] }", "neither none nor sum nor nh");
	bad_file("{ \"jobs\": [ {\"job\": 1, \"key\": 77} ] }", "key: only a file can hold it");
	bad_file("{ \"jobs\": [ {\"job\": 1,\n \"key\": \"@none\"} ] }",
		 "f.json:2: jobs[0]: key: cannot read");
	bad_file("{ \"jobs\": [ {\"job\": 1, \"job\": 1} ] }", "job is given twice");
	bad_file("{ \"jobs\": [ {\"table\": [0, \"1\"]} ] }", "whole numbers");
	bad_file("{ \"jobs\": [ {\"prefix\": \"any\", \"prefix\": \"any\"} ] }",
		 "prefix is given twice");
	bad_file("{ \"jobs\": [ {\"prefix\": []} ] }", "the list is empty");
	bad_file("{ \"jobs\": [ {\"slots\": 64, \"norm_slots\": []} ] }",
		 "norm_slots: the list is empty");
	bad_file("{ \"spare_slots\": [] }", "spare_slots: the list is empty");
	bad_file("{ \"jobs\": [ {\"prefix\": [10]} ] }", "a list of texts");
	bad_file("{ \"jobs\": [ {\"prefix\": [\"\"]} ] }", "is not an address");
	bad_file("{ \"listen\": [\"1\", \"2\", \"3\"] }", "more than 2 addresses");
}

/* A key that several jobs have, that is a value elsewhere, or stands in a text. */
static void file__a_repeated_key_has_its_own_line(void **state)
{
	(void)state;
	bad_file("{ \"jobs\": [\n"
		 "  { \"job\": 1, \"ranks\": 2 },\n"
		 "  { \"job\": 2, \"ranks\": 2 },\n"
		 "  { \"job\": 3,\n"
		 "    \"ranks\": 65 } ] }",
		 "f.json:5: jobs[2]: ranks: 65 is out of range");
	bad_file("{ \"interface\": \"ranks\", \"instance\": \"a\\\"{[,\",\n"
		 "  \"jobs\" : [ { \"table\": [0, 5,\n"
		 "    10, 16], \"prefix\": \"}]\" },\n"
		 "  { \"job\": 2,\n"
		 "    \"ranks\": 0 } ] }",
		 "f.json:5: jobs[1]: ranks: 0 is out of range");
	bad_file("{ \"jobs\": [ { \"job\": 1, \"ranks\": 2,\n"
		 "  \"ranks\": 3 } ] }",
		 "f.json:2: jobs[0]: ranks is given twice");
	bad_file("{ \"jobs\": [ { \"job\": 1 },\n"
		 "  7 ] }",
		 "f.json:2: jobs[1] is not an object");
	bad_file("{ \"instance\": \"port\", \"jobs\": [],\n"
		 "  \"port\": 0 }",
		 "f.json:2: port");
	bad_file("{ \"port\": 18500,\n"
		 "  \"listen\": [\"::1\"],\n"
		 "  \"port\": 18501 }",
		 "f.json:3: \"port\" is given twice");
}

static void file__that_cannot_be_read(void **state)
{
	(void)state;
	refused(thcd_config_file(&config, "/nonexistent/thcd.conf", &error),
		"cannot read /nonexistent/thcd.conf");
	refused(thcd_config_file(&config, "/", &error), "cannot read /");
	refused(thcd_config_file(&config, "/dev/zero", &error), "larger than 1 MiB");
}

/* The key that @keys give the job. */
static const u8 *key_of(const char *keys)
{
	thcd_config_init(&config);
	if (thcd_config_job(&config, keys, &error))
		fail_msg("%s", error.text);
	assert_true(thcd_job_wish_given(&config.job[0], "key"));
	return config.job[0].key;
}

/* A path, or a name without a slash, which systemd's credentials folder holds. */
static void job__a_key_of_a_file(void **state)
{
	u8 key[THC_KEY_BYTES];
	char keys[128];

	(void)state;
	credential_key("two", key);
	snprintf(keys, sizeof(keys), "1,ranks=2,key=@%s/two", credentials);
	assert_memory_equal(key_of("1,ranks=2,key=@two"), key, sizeof(key));
	bad_job("1,key=@other", "/other: No such file");
	unsetenv("CREDENTIALS_DIRECTORY");
	assert_memory_equal(key_of(keys), key, sizeof(key));
	bad_job("1,key=@two", "cannot read two: No such file");
	setenv("CREDENTIALS_DIRECTORY", credentials, 1);
}

static void job__a_file_without_a_key(void **state)
{
	static const char *const wrong[] = {
		"",
		"root:$6$x:19000:",
		"0x1f2e3d4c5b6a7988",
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1",
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 0",
	};
	static const u8 nothing[THC_KEY_BYTES];
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		credential_write("wrong", wrong[i], 0600);
		bad_job("1,ranks=2,key=@wrong", "make one with thcctl genkey FILE");
		/* the error does not show the contents of a wrong file */
		if (strstr(error.text, "root:") || strstr(error.text, "0102"))
			fail_msg("\"%s\" shows what the file holds", error.text);
		assert_memory_equal(config.job[0].key, nothing, sizeof(nothing));
	}
	bad_job("1,key=@/tmp", "no regular file");
	bad_job("1,key=@/dev/zero", "no regular file");
	bad_job("1,key=@", "no regular file");
	unsetenv("CREDENTIALS_DIRECTORY");
	bad_job("1,key=@", "cannot read");
	setenv("CREDENTIALS_DIRECTORY", credentials, 1);
}

static void job__at_most_sixteen(void **state)
{
	char text[64];
	int i;

	(void)state;
	for (i = 0; i < THC_JOBS_MAX; i++) {
		snprintf(text, sizeof(text), "%d,ranks=1,key=@one", i);
		assert_int_equal(thcd_config_job(&config, text, &error), 0);
	}
	bad_job("1", "more than 16 jobs");
}

static enum thcd_start command(char *words)
{
	char *argv[16] = { "thcd" };
	int argc = 1;

	for (words = strtok(words, " "); words; words = strtok(NULL, " "))
		argv[argc++] = words;
	return thcd_options(&config, argc, argv, &error);
}

static void options__are_checked_together(void **state)
{
	static const struct {
		const char *line;
		const char *words;
	} bad[] = {
		{ "", "no interface" },
		{ "--software --job 1,ranks=1,key=@one", "no address" },
		{ "-i eth0", "no job" },
		{ "-i eth0 -s --mode native --job 1,ranks=1,key=@one", "--mode is for XDP" },
		{ "-i eth0 --job 1,ranks=1,key=@one --job 1,ranks=2,key=@one",
		  "job 1 is given twice" },
		{ "-i eth0 -i eth1 --job 1,ranks=1,key=@one", "option -i is given twice" },
		{ "-i eth0 extra", "\"extra\" is not an option" },
		{ "-i eth0 --job", "option --job needs a value" },
		{ "--job", "needs a value" },
		{ "--whatever", "unknown option --whatever" },
		{ "-i eth0 --port 0 --job 1", "port" },
		{ "-i eth0 --ready-fd x --job 1", "not a file descriptor" },
		{ "-i eth0 --prepare no-such-user --job 1", "no user no-such-user" },
		{ "-i eth0 --prepare root --job 1", "root needs no preparation" },
		{ "-i eth0 -s --discard", "--discard is for XDP" },
		{ "--discard", "--discard is for XDP: give -i NAME" },
	};
	char line[128];
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		thcd_config_init(&config);
		snprintf(line, sizeof(line), "%s", bad[i].line);
		assert_int_equal(command(line), THCD_BAD);
		if (!strstr(error.text, bad[i].words))
			fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].line, error.text,
				 bad[i].words);
	}
	thcd_config_init(&config);
	strcpy(line, "-i eth0 --port 19000 --fresh --force --job 1,ranks=1,key=@one --ready-fd 3");
	if (command(line) != THCD_RUN)
		fail_msg("%s", error.text);
	assert_int_equal(config.port, 19000);
	assert_int_equal(config.ready_fd, 3);
	assert_true(config.fresh);
	assert_true(config.force);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(job__defaults, setup),
		cmocka_unit_test_setup(job__most_levels, setup),
		cmocka_unit_test_setup(job__every_key, setup),
		cmocka_unit_test_setup(file__every_key, setup),
		cmocka_unit_test_setup(job__seals, setup),
		cmocka_unit_test_setup(job__bad_values_are_named, setup),
		cmocka_unit_test_setup(file__mistakes_have_their_place, setup),
		cmocka_unit_test_setup(file__a_repeated_key_has_its_own_line, setup),
		cmocka_unit_test_setup(file__that_cannot_be_read, setup),
		cmocka_unit_test_setup(job__a_key_of_a_file, setup),
		cmocka_unit_test_setup(job__a_file_without_a_key, setup),
		cmocka_unit_test_setup(job__at_most_sixteen, setup),
		cmocka_unit_test_setup(options__are_checked_together, setup),
	};

	return cmocka_run_group_tests_name("thcd config", tests, credentials_make,
					   credentials_remove);
}

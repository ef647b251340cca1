# SPDX-License-Identifier: GPL-2.0
#
# Builds everything into build/. `make help` lists the targets.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= gcc
CLANG   ?= clang
BPFTOOL ?= $(or $(wildcard /usr/sbin/bpftool),bpftool)
PYTHON  ?= /usr/bin/python3
V       ?= 0
SAN     ?=

# The version is in Kbuild, since DKMS gets Kbuild without this file.
VERSION := $(shell sed -n 's/^thc-version := //p' Kbuild)
SOMAJOR := 1

ifeq ($(V),0)
say = @printf '  %-7s %s\n' $(1) $(2);
else
say =
endif

# `make check` sets it to -Werror; for others a new compiler's warning is no error.
WERROR   ?=
WARN     := -Wall -Wextra $(WERROR)
INC      := -Iinclude -Iinclude/uapi -Iuserspace/libthc -I$(BUILD)/include

# A caller who gives flags gives all flags; otherwise Debian's hardening flags are used. Sanitizers
# do not check fortified calls.
debian_flags = $(shell DEB_BUILD_MAINT_OPTIONS=hardening=+all dpkg-buildflags --get $(1))
ifeq ($(origin CFLAGS)$(origin CPPFLAGS)$(origin LDFLAGS)$(SAN),undefinedundefinedundefined)
ifneq ($(shell command -v dpkg-buildflags 2>/dev/null),)
CFLAGS   := $(call debian_flags,CFLAGS)
CPPFLAGS := $(call debian_flags,CPPFLAGS)
LDFLAGS  := $(call debian_flags,LDFLAGS)
endif
endif
CFLAGS   ?= -O2 -g
ALL_CFLAGS := -std=gnu11 -D_GNU_SOURCE $(CPPFLAGS) $(CFLAGS) $(WARN) $(INC) -fPIC -fvisibility=hidden \
	-ffp-contract=off -pthread -MMD -MP -DTHC_LIB_VERSION='"$(VERSION)"' $(SAN)
ALL_LDFLAGS := $(LDFLAGS) $(SAN)
ARCH     := $(shell uname -m)
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
BPF_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(ARCH)))
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) $(WARN) -Wno-unused-parameter \
	-Iinclude -Iinclude/uapi -Ibpf -I/usr/include/$(MULTIARCH) -MMD -MP

# A user-space module is a folder of C files.
LIB_SRC   := $(wildcard userspace/libthc/*.c)
LIB_OBJ   := $(LIB_SRC:%.c=$(BUILD)/%.o)
KSIMD_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard kmod/simd_*.c))
SHARED_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard userspace/aggregator/*.c userspace/common/*.c))
THCD_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard userspace/thcd/*.c))
CTL_OBJ   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard userspace/thcctl/*.c))
BPF_SRC   := $(wildcard bpf/*.bpf.c)
BPF_SKEL  := $(BPF_SRC:bpf/%.bpf.c=$(BUILD)/include/%.skel.h)
UNIT_BIN  := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))
TBPF_BIN  := $(patsubst tests/bpf/%.c,$(BUILD)/tests/bpf/%,$(wildcard tests/bpf/test_*.c))
TNET_BIN  := $(patsubst tests/netns/%.c,$(BUILD)/tests/netns/%,$(wildcard tests/netns/*.c))
TNET_SKEL := $(patsubst tests/netns/%.bpf.c,$(BUILD)/include/%.skel.h,$(wildcard tests/netns/*.bpf.c))
TNET_BIN  := $(filter-out %.bpf,$(TNET_BIN))
# Code that the tests of a group share, one archive for each group.
tlib_obj  = $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/lib/$(1)/*.c))
TLIB_SO   := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/lib/*.c))
BENCH_BIN := $(patsubst tools/bench/%.c,$(BUILD)/bench/%,$(wildcard tools/bench/*.c))
# libthc's codecs without a network, for Python.
EXPERIMENTS_SO := $(BUILD)/experiments/rounds.so
FUZZ_BIN  := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
SELF_BIN  := $(patsubst tests/selftests/%.c,$(BUILD)/tests/selftests/%,$(wildcard tests/selftests/test_*.c))

BPF_LIBS := -lbpf -lelf -lz
THCD_LIBS := $(BPF_LIBS) -lcap -lcjson

# make keeps generated files.
.SECONDARY:

.PHONY: all tests benches fuzzers selftests check check-debug fuzz demo demo-vm bench bench-compare bench-flood bench-lhc bench-rate bench-shards bench-vm figures experiments lint install uninstall clean help FORCE
all: $(BUILD)/libthc.so $(BUILD)/libthc.a $(BPF_SKEL) $(BUILD)/thcd $(BUILD)/thcctl

help:
	@echo 'make            library, daemon, tools and XDP programs, into $(BUILD)/'
	@echo 'make check      tests; ends with "N passed, N failed, N skipped"'
	@echo 'make check-debug  the tests of the module, on a kernel with KASAN, lockdep, kmemleak, ...;'
	@echo '                AVX-512 on User-mode Linux; a short demo-vm; user space with sanitizers'
	@echo 'make fuzz       each fuzzer for FUZZ_MINUTES=10, or FUZZ_INPUTS; FUZZ="fuzz_join fuzz_client"'
	@echo 'make demo       train on digits through XDP, in namespaces; DEMO_ARGS="--software --loss 0.02"'
	@echo '                with other bits: DEMO_ARGS="--rate fixed", DEMO_ARGS="--error 0.01"'
	@echo '                or on sparse data: DEMO_ARGS="--task ncf", DEMO_ARGS="--task lm"'
	@echo 'make demo-vm    the same on a stock Debian 6.12 in QEMU, through AF_THC sockets of thc.ko'
	@echo 'make bench      costs as ratios, a table and $(BUILD)/bench.json; BENCH_ARGS="--quick"'
	@echo 'make bench-compare BASE=commit  the same figures of that commit, in turns; BENCH_ARGS="--pairs 21"'
	@echo 'make figures    the times in README.md, on an idle machine; FIGURES_ARGS="--draw": none anew'
	@echo 'make experiments  the papers'"'"' figures beside ours: Documentation/experiments.md'
	@echo 'make bench-lhc  sparse buckets by the scheme lhc beside Gloo, times and bytes; $(BUILD)/bench-lhc.json'
	@echo 'make bench-rate  recorded gradients with bits that follow norms, beside fixed bits and Gloo; $(BUILD)/bench-rate.json'
	@echo 'make bench-shards  an all-reduce by four aggregators beside one and Gloo; $(BUILD)/bench-shards.json'
	@echo 'make bench-flood  what JOINs of strangers, sent by one core, do to a job; $(BUILD)/bench-flood.json'
	@echo 'make bench-vm   AF_THC sockets beside UDP: system calls, CPU time; $(BUILD)/bench-vm.json'
	@echo 'make lint       format, shellcheck, sparse, both compilers and their analysers, sanitizers'
	@echo 'make install    into $$(DESTDIR)$$(PREFIX), PREFIX=$(PREFIX)'
	@echo 'make uninstall  removes what install put there'
	@echo 'make modules    thc.ko for this kernel, or KERNEL=release; modules_install, modules_uninstall'
	@echo 'make dkms       its sources for DKMS, into $$(DESTDIR)/usr/src'
	@echo 'make clean      removes $(BUILD)/'

tests: all $(UNIT_BIN) $(TBPF_BIN) $(TNET_BIN) $(TLIB_SO) $(BENCH_BIN) $(EXPERIMENTS_SO)
benches: all $(BENCH_BIN)
fuzzers: $(FUZZ_BIN)
selftests: all $(SELF_BIN) $(TBPF_BIN) $(TNET_BIN)

# --- user space -------------------------------------------------------------
AVX2   := $(if $(filter x86_64,$(ARCH)),-mavx2 -mfma -mf16c)
AVX512 := $(if $(filter x86_64,$(ARCH)),-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma)
libthc_loops = $(BUILD)/userspace/libthc/$1.o $(BUILD)/fuzz/userspace/libthc/$1.o
$(call libthc_loops,codec_avx2): SIMD := $(AVX2)
$(call libthc_loops,codec_avx512): SIMD := $(AVX512)
$(call libthc_loops,sparse_avx2): SIMD := $(AVX2)
$(call libthc_loops,sparse_avx512): SIMD := $(AVX512)
# the compiler vectorises one source
$(call libthc_loops,fixed_scalar): SIMD := -O3
$(call libthc_loops,fixed_avx2): SIMD := -O3 $(AVX2)
$(call libthc_loops,fixed_avx512): SIMD := -O3 $(AVX512)
# The module's lane loops, with the flags that Kbuild gives them. Kernels have unsigned char.
$(BUILD)/kmod/simd_avx2.o: SIMD := -funsigned-char $(if $(filter x86_64,$(ARCH)),-mavx2)
$(BUILD)/kmod/simd_avx512.o: SIMD := -funsigned-char \
	$(if $(filter x86_64,$(ARCH)),-mavx512f -mavx512bw -mavx512vl -mavx512vbmi)

# Other flags rebuild all objects. -Werror changes no object, but a build without -Werror is marked,
# since it may have warned.
$(BUILD)/flags: export FLAGS = $(CC) $(filter-out $(WERROR),$(ALL_CFLAGS)) $(LDFLAGS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@$(if $(WERROR),:,touch $(BUILD)/may-have-warned)
	@printenv FLAGS | cmp -s - $@ || printenv FLAGS > $@

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) $(SIMD) -c -o $@ $<

# The daemon includes the XDP skeleton.
$(THCD_OBJ) $(CTL_OBJ): | $(BPF_SKEL)

$(BUILD)/libthc.a: $(LIB_OBJ)
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/libthc.so: $(LIB_OBJ)
	$(call say,LD,$@)$(CC) -shared $(CFLAGS) $(ALL_LDFLAGS) -Wl,-soname,libthc.so.$(SOMAJOR) -o $@ $^ -lm -pthread
	@ln -sf libthc.so $@.$(SOMAJOR)

$(BUILD)/thcd: $(THCD_OBJ) $(SHARED_OBJ) $(BUILD)/libthc.a
	$(call say,LD,$@)$(CC) -pie $(CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(THCD_LIBS) -lm -pthread

$(BUILD)/thcctl: $(CTL_OBJ) $(SHARED_OBJ) $(BUILD)/libthc.a
	$(call say,LD,$@)$(CC) -pie $(CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(BPF_LIBS) -lcjson -lm -pthread

# --- BPF --------------------------------------------------------------------
$(BUILD)/bpf/%.bpf.o: bpf/%.bpf.c
	@mkdir -p $(@D)
	$(call say,BPF,$@)$(CLANG) $(BPF_CFLAGS) -c -o $@ $<

$(BUILD)/bpf/%.bpf.o: tests/netns/%.bpf.c
	@mkdir -p $(@D)
	$(call say,BPF,$@)$(CLANG) $(BPF_CFLAGS) -c -o $@ $<

$(BUILD)/include/%.skel.h: $(BUILD)/bpf/%.bpf.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name $(subst -,_,$*)_bpf > $@.tmp && mv $@.tmp $@

# --- tests and benchmarks ---------------------------------------------------
$(BUILD)/tests/lib/bpf/%.o: private ALL_CFLAGS += -Ibpf
$(BUILD)/tests/lib/netns/%.o: private ALL_CFLAGS += -DTHCD_PATH='"$(abspath $(BUILD))/thcd"'
$(BUILD)/tests/lib/selftests/%.o: private ALL_CFLAGS += -isystem $(BUILD)/kselftest
$(call tlib_obj,bpf): | $(BPF_SKEL)
$(call tlib_obj,selftests): | $(BUILD)/kselftest/kselftest_harness.h

$(BUILD)/tests/lib/unit.a: $(call tlib_obj,unit)
$(BUILD)/tests/lib/bpf.a: $(call tlib_obj,bpf)
$(BUILD)/tests/lib/netns.a: $(call tlib_obj,netns)
$(BUILD)/tests/lib/selftests.a: $(call tlib_obj,selftests)
$(BUILD)/tests/lib/%.a:
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/tests/unit/%: tests/unit/%.c $(BUILD)/tests/lib/unit.a $(BUILD)/libthc.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -iquote tests/lib/unit $(ALL_LDFLAGS) -o $@ \
		$(filter %.c %.a,$^) -lcmocka -lm -pthread

# The kernel's lane loops in user space.
$(BUILD)/tests/unit/test_kmod_simd: tests/unit/test_kmod_simd.c $(KSIMD_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -Ikmod $(ALL_LDFLAGS) -o $@ $(filter %.c %.o,$^) -lcmocka

# Tests of the daemon's parts: all of it but main().
$(BUILD)/tests/unit/test_thcd_%: tests/unit/test_thcd_%.c \
		$(filter-out %/main.o,$(THCD_OBJ)) $(SHARED_OBJ) $(BUILD)/tests/lib/unit.a \
		$(BUILD)/libthc.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -iquote tests/lib/unit -Iuserspace/thcd $(ALL_LDFLAGS) -o $@ \
		$(filter %.c %.o %.a,$^) $(THCD_LIBS) -lcmocka -lm -pthread

# Tests of thcctl's parts: all of it but main().
$(BUILD)/tests/unit/test_thcctl_%: tests/unit/test_thcctl_%.c \
		$(filter-out %/main.o,$(CTL_OBJ)) $(SHARED_OBJ) $(BUILD)/libthc.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -Iuserspace/thcctl $(ALL_LDFLAGS) -o $@ \
		$(filter %.c %.o %.a,$^) $(BPF_LIBS) -lcjson -lcmocka -lm -pthread

$(BUILD)/tests/bpf/%: tests/bpf/%.c $(BUILD)/tests/lib/bpf.a $(BUILD)/libthc.a $(BPF_SKEL)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -iquote tests/lib/bpf -Ibpf $(ALL_LDFLAGS) -o $@ \
		$(filter %.c %.a,$^) $(BPF_LIBS) -lcmocka -lm -pthread

$(BUILD)/tests/netns/%: tests/netns/%.c $(BUILD)/tests/lib/netns.a $(BUILD)/libthc.a $(BPF_SKEL) \
		$(TNET_SKEL)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -iquote tests/lib/netns -DTHCD_PATH='"$(abspath $(BUILD))/thcd"' \
		-Ibpf $(ALL_LDFLAGS) -o $@ $(filter %.c %.a,$^) $(BPF_LIBS) -lcmocka -lm -pthread

# These libraries define functions that fortified headers would replace.
$(BUILD)/tests/lib/%.so: tests/lib/%.c
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -U_FORTIFY_SOURCE -shared $(ALL_LDFLAGS) -o $@ $<

# Self tests run inside test machines, with the kernel's own harness from its source.
$(BUILD)/tests/selftests/%: tests/selftests/%.c $(BUILD)/tests/lib/selftests.a $(BUILD)/libthc.a \
		$(BPF_SKEL) \
		| $(BUILD)/kselftest/kselftest_harness.h
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -iquote tests/lib/selftests -isystem $(BUILD)/kselftest -Ibpf $(ALL_LDFLAGS) \
		-o $@ $(filter %.c %.a,$^) $(BPF_LIBS) -lmnl -lm -pthread

$(BUILD)/kselftest/kselftest_harness.h:
	$(call say,FETCH,$@)$(PYTHON) tests/vm/kernels.py kselftest $(@D)

$(BUILD)/bench/%: tools/bench/%.c $(BUILD)/libthc.a $(BPF_SKEL)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -Ibpf $(ALL_LDFLAGS) -o $@ $< $(BUILD)/libthc.a $(BPF_LIBS) -lm -pthread

# The kernel's lane loops in user space.
$(BUILD)/bench/bench_simd: tools/bench/bench_simd.c $(KSIMD_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) -Ikmod $(ALL_LDFLAGS) -o $@ $(filter %.c %.o,$^)

$(EXPERIMENTS_SO): $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/experiments/*.c)) $(BUILD)/libthc.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared $(CFLAGS) $(ALL_LDFLAGS) -o $@ $^ -lm -pthread

# The sources of the fuzzers, built by clang with sanitizers and coverage. Of thcd only the files
# without BPF: the fuzzers provide sockets, clock and XDP program. With all of
# UndefinedBehaviorSanitizer clang would take five times as long, for XDP minutes. AddressSanitizer
# finds accesses by wrong pointers; tests/sanitized.sh, by gcc, has all checks.
FUZZ_CFLAGS = -std=gnu11 -D_GNU_SOURCE -g -O2 -ffp-contract=off $(INC) -Iuserspace/thcd \
	-DTHC_LIB_VERSION='"$(VERSION)"' -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-fno-sanitize=object-size,pointer-overflow
FUZZ_THCD := answer challenge config control jobs join json number plan plan_table table_file receive say shards software welcome
FUZZ_LIBS := $(BUILD)/fuzz/thcd.a $(BUILD)/fuzz/shared.a $(BUILD)/fuzz/libthc.a

$(BUILD)/fuzz/%.o: %.c
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)$(CLANG) $(FUZZ_CFLAGS) $(SIMD) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<

$(BUILD)/fuzz/libthc.a: $(LIB_SRC:%.c=$(BUILD)/fuzz/%.o)
$(BUILD)/fuzz/thcd.a: $(FUZZ_THCD:%=$(BUILD)/fuzz/userspace/thcd/%.o)
$(BUILD)/fuzz/shared.a: $(SHARED_OBJ:$(BUILD)/%=$(BUILD)/fuzz/%)
$(BUILD)/fuzz/%.a:
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/tests/fuzz/fuzz_packet: private FUZZ_CFLAGS += -fno-sanitize=null,alignment
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(FUZZ_LIBS)
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)$(CLANG) $(FUZZ_CFLAGS) -fsanitize=fuzzer -MMD -MP -o $@ $< $(FUZZ_LIBS) \
		$(BPF_LIBS) -lcjson -lm -pthread

check:
	@sh tools/run-tests

# Each fuzzer for FUZZ_MINUTES, or FUZZ_INPUTS; FUZZ names some.
fuzz: fuzzers
	@sh tests/fuzz/long.sh $(FUZZ)

check-debug:
	@TESTS="vm/6.1/test_libthc_recovery vm/debug vm/demo asan tsan analysis failures" LOGS=$(BUILD)/check-debug sh tools/run-tests

demo: all $(TNET_BIN)
	@$(PYTHON) tools/demo.py $(DEMO_ARGS)

bench: all benches $(TNET_BIN)
	@$(PYTHON) tools/bench/run.py $(BENCH_ARGS)

bench-compare: all benches
	@$(PYTHON) tools/bench/compare.py --base "$(BASE)" $(BENCH_ARGS)

bench-shards: all $(TNET_BIN)
	@$(PYTHON) tools/bench/shards.py $(BENCH_ARGS)

bench-lhc: all $(TNET_BIN)
	@$(PYTHON) tools/bench/lhc.py $(BENCH_ARGS)

bench-rate: all $(TNET_BIN)
	@$(PYTHON) tools/bench/rate.py $(BENCH_ARGS)

bench-flood: all benches
	@$(PYTHON) tools/bench/flood.py $(BENCH_ARGS)

# A smaller network and fewer epochs: an emulated machine is slow.
demo-vm: all
	@$(PYTHON) tools/in_vm.py --name demo-vm --output $(BUILD)/demo-vm.json -- \
		tools/demo.py --transport af_thc --hidden 256 --epochs 2 --repeats 0 --patience 400 \
		@live --output @ $(DEMO_ARGS)

# Writes into the source tree: tables of README.md and Documentation/benchmarks.md.
figures: all
	@$(PYTHON) tools/bench/figures.py $(FIGURES_ARGS)

# Writes into the source tree: Documentation/experiments.md and its files.
experiments: all $(TNET_BIN) $(EXPERIMENTS_SO)
	@$(PYTHON) tools/experiments/run.py $(EXPERIMENTS_ARGS)

bench-vm: all benches
	@$(PYTHON) tools/in_vm.py --name bench-vm --instructions --output $(BUILD)/vm/bench-qemu.json -- \
		tools/bench/transport.py --output @ $(BENCH_ARGS)
	@rm -f $(BUILD)/vm/bench-uml.json
	@$(PYTHON) tools/in_vm.py --name bench-vm --uml --output $(BUILD)/vm/bench-uml.json -- \
		tools/bench/transport.py --repeats 25 --output @ $(BENCH_ARGS) || [ $$? -eq 125 ]
	@$(PYTHON) tools/bench/transport.py --output $(BUILD)/bench-vm.json \
		--join $(BUILD)/vm/bench-qemu.json $(BUILD)/vm/bench-uml.json

lint:
	@sh tools/lint

# --- installation -----------------------------------------------------------
include tools/install.mk
include tools/kmod.mk

clean:
	rm -rf $(BUILD)

DEPS := $(shell find $(BUILD) \( -path $(BUILD)/vm -o -path $(BUILD)/bench-base \) -prune -o -name '*.d' -print 2>/dev/null)
-include $(DEPS)

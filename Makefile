# dsprep and dsengine. One Makefile, no recursion; `make help` lists the targets.
#
# A packager may set: B, PREFIX, DESTDIR, CC, CFLAGS, LDFLAGS, PKG_CONFIG, SAN, DEPS=no, V=1.
# Nothing here reads the build machine's /sys or uname, and `make` needs neither root nor network.

B          ?= build
PREFIX     ?= /usr/local
SBINDIR    ?= $(PREFIX)/sbin
BINDIR     ?= $(PREFIX)/bin
MANDIR     ?= $(PREFIX)/share/man
PKG_CONFIG ?= pkg-config
CLANG      ?= clang
CFLAGS     ?= -O2 -g
FUZZ_S     ?= 10
VERSION    := 0.1
Q          := $(if $(V),,@)
say         = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(2)')

WARN  := -Wall -Wextra -Wshadow -Wvla -Wundef -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes \
         $(if $(WERROR),-Werror)
SANF  := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# SOURCE_DATE_EPOCH: nothing here embeds a date, so the same sources give the same bytes anywhere.
BASE  := -std=gnu17 -D_GNU_SOURCE -DDS_VERSION='"$(VERSION)"' $(WARN) -MMD -MP -fPIE -pthread \
         -ffile-prefix-map=$(CURDIR)/= -Isysprep/base
# Numbers must be identical on every machine (no contraction, no fast-math): kernels/ and engine/.
EXACT := -ffp-contract=off -fno-fast-math -fexcess-precision=standard
HARD  := -fstack-protector-strong $(if $(SAN),,-D_FORTIFY_SOURCE=2)
LINK  := -pie -Wl,-z,relro,-z,now -pthread

# Packages of each room, as pkg-config names. Each room sees only what it may include.
PREP_PKGS := libnl-3.0 libnl-route-3.0 libcap jansson
ENG_PKGS  := jansson libmicrohttpd libpcre2-8 libcap libcrypto
pc_cflags  = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null)
pc_libs    = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)

BASE_CF := $(BASE) $(HARD)
PREP_CF := $(BASE) $(HARD) -Isysprep $(call pc_cflags,$(PREP_PKGS))
ENG_CF  := $(BASE) $(HARD) $(EXACT) -Iengine -Ikernels $(call pc_cflags,$(ENG_PKGS))
KERN_CF := $(BASE) $(EXACT) -Ikernels
TEST_CF := $(BASE) $(EXACT) -Isysprep -Iengine -Ikernels -Itests/unit -DTESTS_DIR='"tests"' \
           $(call pc_cflags,$(PREP_PKGS) $(ENG_PKGS) cunit)
PREP_LIBS = $(call pc_libs,$(PREP_PKGS)) -lm
ENG_LIBS  = $(call pc_libs,$(ENG_PKGS)) -lm
TEST_LIBS = $(call pc_libs,$(PREP_PKGS) $(ENG_PKGS) cunit) -lm

objs = $(patsubst %.c,$(B)/%.o,$(1))
BASE_O := $(call objs,$(wildcard sysprep/base/*.c))
PREP_O := $(call objs,$(wildcard sysprep/*.c))
ENG_O  := $(call objs,$(wildcard engine/*.c))
# Kernel sets of this processor: kernels/cpu/set.c, built once per set with what that set needs.
ARCH   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
SETS   := scalar $(if $(filter x86_64,$(ARCH)),avx2 avx512) $(if $(filter aarch64,$(ARCH)),neon)
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
set_flags   = -DKERN_SET=$(1) -DKERN_SET_$(1) $(ISA_$(1))
SET_O  := $(SETS:%=$(B)/kernels/cpu/set_%.o)
KERN_O := $(call objs,$(wildcard kernels/*.c kernels/ref/*.c)) $(SET_O)
UNIT_O := $(call objs,$(wildcard tests/unit/*.c))
# Rooms as libraries of everything but main(): what tests, tools and fuzz targets link.
PREP_L := $(filter-out $(B)/sysprep/main.o,$(PREP_O))
ENG_L  := $(filter-out $(B)/engine/main.o,$(ENG_O))
# Stand-alone test programs (privileges, forks, sockets): tests/prog/NAME.c, exit 77 = not here.
PROGS  := $(patsubst tests/prog/%.c,$(B)/tests/prog/%,$(wildcard tests/prog/*.c))
TOOLS  := $(patsubst tests/tools/%.c,$(B)/tests/tools/%,$(wildcard tests/tools/*.c))
BENCHES := $(patsubst tests/bench/%.c,$(B)/tests/bench/%,$(wildcard tests/bench/*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/*.c))

all: $(if $(wildcard sysprep/main.c),$(B)/dsprep) $(if $(wildcard engine/main.c),$(B)/dsengine) ## build both programs

$(BASE_O): $(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CF) $(CFLAGS) $(SANF) -c $< -o $@
$(PREP_O): $(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PREP_CF) $(CFLAGS) $(SANF) -c $< -o $@
$(ENG_O): $(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ENG_CF) $(CFLAGS) $(SANF) -c $< -o $@
$(filter-out $(SET_O),$(KERN_O)): $(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(KERN_CF) $(CFLAGS) $(SANF) -c $< -o $@
$(SET_O): $(B)/kernels/cpu/set_%.o: kernels/cpu/set.c
	$(call say,CC,$< $*)
	@mkdir -p $(@D)
	$(Q)$(CC) $(KERN_CF) $(call set_flags,$*) $(CFLAGS) $(SANF) -c $< -o $@
$(UNIT_O): $(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CF) $(CFLAGS) $(SANF) -c $< -o $@
# The runner lists the suite NAME_suite of every tests/unit/test_NAME.c.
$(B)/tests/unit/runner.o: $(B)/tests/unit/suites.h
$(B)/tests/unit/runner.o: TEST_CF += -I$(B)/tests/unit
$(B)/tests/unit/suites.h: $(wildcard tests/unit/test_*.c) Makefile
	@mkdir -p $(@D)
	@for f in $(patsubst tests/unit/test_%.c,%,$(sort $(wildcard tests/unit/test_*.c))); do echo "SUITE($$f)"; done > $@

$(B)/dsprep: $(PREP_O) $(BASE_O)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(LDFLAGS) $(SANF) $^ $(PREP_LIBS) -o $@
$(B)/dsengine: $(ENG_O) $(KERN_O) $(BASE_O)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(LDFLAGS) $(SANF) $^ $(ENG_LIBS) -o $@
$(B)/tests/unit/runner: $(UNIT_O) $(PREP_L) $(ENG_L) $(KERN_O) $(BASE_O)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(LDFLAGS) $(SANF) $^ $(TEST_LIBS) -o $@
$(PROGS) $(TOOLS) $(BENCHES): $(B)/%: %.c $(PREP_L) $(ENG_L) $(KERN_O) $(BASE_O)
	$(call say,CCLD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CF) $(CFLAGS) $(SANF) $(LINK) $(LDFLAGS) $(filter %.c %.o,$^) $(TEST_LIBS) -o $@
# The kernel suites without libraries, for processors that are only emulated here:
# make B=build/arm64 CC=aarch64-linux-gnu-gcc build/arm64/tests/cross/kern_tests
$(B)/tests/cross/kern_tests: tests/cross/kern_tests.c $(addprefix tests/unit/test_kern_,math.c sets.c values.c) $(KERN_O) $(BASE_O)
	$(call say,CCLD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(KERN_CF) -Itests/cross $(CFLAGS) $(SANF) $(LINK) $(LDFLAGS) $(filter %.c %.o,$^) -lm -o $@
# The generator of the tiny model is shared by unit tests and this tool.
$(B)/tests/tools/tiny_gen $(B)/tests/prog/worlds: $(B)/tests/unit/tiny_model.o
# Fuzz targets are built whole by clang with the sanitizers; each links every room, as tests do.
FUZZ_C := $(filter-out %/main.c,$(wildcard sysprep/base/*.c sysprep/*.c engine/*.c kernels/*.c kernels/ref/*.c))
FUZZ_SET_O := $(SETS:%=$(B)/fuzz/obj/kernels/cpu/set_%.o)
FUZZ_O := $(patsubst %.c,$(B)/fuzz/obj/%.o,$(FUZZ_C)) $(FUZZ_SET_O)
FUZZ_SAN := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_CC = $(CLANG) $(filter-out -fexcess-precision=standard,$(TEST_CF)) -w -O1 -g $(FUZZ_SAN)
$(filter-out $(FUZZ_SET_O),$(FUZZ_O)): $(B)/fuzz/obj/%.o: %.c
	$(call say,FUZZCC,$<)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) -c $< -o $@
$(FUZZ_SET_O): $(B)/fuzz/obj/kernels/cpu/set_%.o: kernels/cpu/set.c
	$(call say,FUZZCC,$< $*)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(call set_flags,$*) -c $< -o $@
$(FUZZERS): $(B)/fuzz/%: tests/fuzz/%.c $(FUZZ_O)
	$(call say,FUZZLD,$@)
	$(Q)$(CLANG) $(filter-out -fexcess-precision=standard,$(TEST_CF)) -w -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all $(filter %.c %.o,$^) -pthread $(TEST_LIBS) -o $@

unit: $(B)/tests/unit/runner
	$(B)/tests/unit/runner
tests-build: all $(B)/tests/unit/runner $(PROGS) $(TOOLS)

-include $(wildcard $(B)/sysprep/base/*.d $(B)/sysprep/*.d $(B)/engine/*.d $(B)/kernels/*.d \
	$(B)/kernels/*/*.d $(B)/tests/*/*.d $(B)/fuzz/*.d $(B)/fuzz/obj/*/*.d $(B)/fuzz/obj/*/*/*.d)

# ---------------------------------------------------------------------------------------------
# Packages: only `deps` installs, only as root, only with apt, never with DEPS=no or DESTDIR set.
DEP_BUILD := gcc libc6-dev make pkg-config libnl-3-dev libnl-route-3-dev libcap-dev libjansson-dev \
             libmicrohttpd-dev libpcre2-dev libssl-dev
DEP_RUN   := iproute2 iputils-ping nftables curl procps util-linux ca-certificates
DEP_TEST  := libcunit1-dev python3-minimal python3 python3-venv mandoc
# AArch64 on an emulated processor: tests/lab/arm64.sh.
DEP_CROSS := $(if $(filter aarch64,$(ARCH)),,gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
DEP_LINT  := clang clang-format clang-tidy libclang-rt-dev git

.PHONY: all deps deps-check deps-lint demo check lint fuzz fuzzers bench man install uninstall clean help unit tests-build
deps: ## install what building and testing need (lists it first)
	@tests/deps.sh install '$(DEPS)' '$(DESTDIR)' $(DEP_BUILD) $(DEP_RUN) $(DEP_TEST)
deps-check:
	@tests/deps.sh install '$(DEPS)' '$(DESTDIR)' $(DEP_BUILD) $(DEP_RUN) $(DEP_TEST) $(DEP_CROSS)
deps-lint:
	@tests/deps.sh install '$(DEPS)' '$(DESTDIR)' $(DEP_BUILD) $(DEP_RUN) $(DEP_TEST) $(DEP_LINT)

# A build started by sudo runs as the calling user, so that no root-owned files stay in the tree.
AS_CALLER = tests/as-caller.sh

demo: deps ## two nodes on this machine: prepare links, run the model over them, cut one, undo
	@$(AS_CALLER) $(MAKE) -s --no-print-directory B=$(B) all tests-build
	@B=$(B) tests/demo.sh
check: deps-check ## run the tests (as root: all of them; otherwise what needs no root)
	@$(AS_CALLER) $(MAKE) -s --no-print-directory B=$(B) all tests-build
	@B=$(B) tests/check.sh $(SUITES)
lint: deps-lint ## formatting, static checks, man pages
	@$(AS_CALLER) env B=$(B) tests/lint.sh
fuzz: deps-lint ## run every fuzz target for FUZZ_S seconds on its corpus
	@$(AS_CALLER) $(MAKE) -s --no-print-directory B=$(B) fuzzers
	@$(AS_CALLER) env B=$(B) FUZZ_S=$(FUZZ_S) tests/fuzz.sh
fuzzers: $(FUZZERS)
bench: ## measure; prints ratios of one run on this machine
	@$(AS_CALLER) $(MAKE) -s --no-print-directory B=$(B) all $(BENCHES)
	@B=$(B) tests/bench.sh
MAN8 := $(wildcard man/*.8)
MAN5 := $(wildcard man/*.5)
MAN7 := $(wildcard man/*.7)
compile_flags.txt: Makefile
	@printf '%s\n' $(filter-out -MMD -MP -fexcess-precision=standard -ffile-prefix-map%,$(TEST_CF)) -mavx2 -mfma -mf16c > $@
man: ## check the man pages
	$(if $(MAN8)$(MAN5)$(MAN7),mandoc -T lint -W warning $(MAN8) $(MAN5) $(MAN7))
install: all ## install programs and man pages below DESTDIR/PREFIX; enables and starts nothing
	install -d $(DESTDIR)$(SBINDIR) $(DESTDIR)$(BINDIR) $(DESTDIR)$(MANDIR)/man8 $(DESTDIR)$(MANDIR)/man5 $(DESTDIR)$(MANDIR)/man7
	install -m 0755 $(B)/dsprep $(DESTDIR)$(SBINDIR)/dsprep
	install -m 0755 $(B)/dsengine $(DESTDIR)$(BINDIR)/dsengine
	install -m 0755 engine/engram_map.py $(DESTDIR)$(BINDIR)/dsengine-engram-map
	$(if $(MAN8),install -m 0644 $(MAN8) $(DESTDIR)$(MANDIR)/man8/)
	$(if $(MAN5),install -m 0644 $(MAN5) $(DESTDIR)$(MANDIR)/man5/)
	$(if $(MAN7),install -m 0644 $(MAN7) $(DESTDIR)$(MANDIR)/man7/)
uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(SBINDIR)/dsprep $(DESTDIR)$(BINDIR)/dsengine $(DESTDIR)$(BINDIR)/dsengine-engram-map
	rm -f $(patsubst man/%,$(DESTDIR)$(MANDIR)/man8/%,$(MAN8)) $(patsubst man/%,$(DESTDIR)$(MANDIR)/man5/%,$(MAN5)) $(patsubst man/%,$(DESTDIR)$(MANDIR)/man7/%,$(MAN7))
clean: ## remove the build folder
	rm -rf $(B)
help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  %-10s %s\n", $$1, $$2}' Makefile
	@echo "  variables: B=build PREFIX=/usr/local DESTDIR= SAN=address,undefined V=1 WERROR=1 DEPS=no FUZZ_S=10 SUITES="

.DELETE_ON_ERROR:
.SECONDARY:

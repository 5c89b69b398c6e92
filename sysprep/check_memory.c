/*
 * check_memory.c - checks of memory registration: KHO scratch areas and the locked-memory limit.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "ktext.h"

/* ----------------------------- kho-scratch ----------------------------- */

enum kho {
	KHO_OFF,
	KHO_ON,
	KHO_UNKNOWN
};

struct kho_facts {
	bool have_cma; /* both lines of /proc/meminfo */
	uint64_t total_kb, free_kb;
	enum kho configured;
	bool cma_off; /* the kernel config says that there is no CMA */
	char value[48], from[96];
	char why[160]; /* of KHO_UNKNOWN */
};

/* The kernel's own reading (kstrtobool): a letter or two decide; other words change nothing. */
static enum kho kho_word(const char *word)
{
	int first = tolower((unsigned char)word[0]), second = 0;
	if (first == 'o')
		second = tolower((unsigned char)word[1]);
	if (first != '\0' && (strchr("yt1", first) != NULL || second == 'n'))
		return KHO_ON;
	if (first != '\0' && (strchr("nf0", first) != NULL || second == 'f'))
		return KHO_OFF;
	return KHO_UNKNOWN;
}

/* What command line and kernel config say about KHO; the command line wins. */
static void kho_configured(struct prep_access *a, struct kho_facts *f)
{
	struct ds_buf text = { 0 };
	char release[64], path[96], value[16];
	f->configured = KHO_UNKNOWN;
	if (prep_read(a, "/proc/cmdline", &text) == 0 &&
	    prep_kt_cmdline(text.data, text.len, "kho", value, sizeof(value))) {
		f->configured = kho_word(value);
		if (f->configured != KHO_UNKNOWN) {
			snprintf(f->value, sizeof(f->value), "kho=%s", value);
			snprintf(f->from, sizeof(f->from), "proc/cmdline");
		}
	}
	int rc = prep_read_line(a, "/proc/sys/kernel/osrelease", release, sizeof(release));
	if (rc == 0 && (release[0] == '\0' || strchr(release, '/') != NULL))
		rc = EINVAL;
	snprintf(path, sizeof(path), "/boot/config-%s", rc == 0 ? release : "?");
	if (rc == 0)
		rc = prep_read(a, path, &text);
	if (rc != 0) {
		snprintf(f->why, sizeof(f->why), "%s: %s", path, strerror(rc));
	} else {
		f->cma_off = !prep_kt_kconfig(text.data, text.len, "CONFIG_CMA");
		bool on = prep_kt_kconfig(text.data, text.len,
					  "CONFIG_KEXEC_HANDOVER_ENABLE_DEFAULT");
		if (f->configured == KHO_UNKNOWN) {
			f->configured = on ? KHO_ON : KHO_OFF;
			snprintf(f->value, sizeof(f->value), "KEXEC_HANDOVER_ENABLE_DEFAULT %s",
				 on ? "y" : "not set");
			snprintf(f->from, sizeof(f->from), "%s", path + 1);
		}
	}
	ds_buf_fini(&text);
}

static int ignore_name(const char *name, void *arg)
{
	(void)name;
	(void)arg;
	return 0;
}

static void kho_read(struct prep_access *a, struct kho_facts *f)
{
	struct ds_buf text = { 0 };
	*f = (struct kho_facts){ 0 };
	f->have_cma = prep_read(a, "/proc/meminfo", &text) == 0 &&
		      prep_kt_meminfo(text.data, text.len, "CmaTotal", &f->total_kb) &&
		      prep_kt_meminfo(text.data, text.len, "CmaFree", &f->free_kb);
	ds_buf_fini(&text);
	kho_configured(a, f);
	/* Only root sees debugfs; its absence says nothing to others, its presence is proof. */
	if (prep_list(a, "/sys/kernel/debug/kho/out", ignore_name, NULL) == 0 &&
	    f->configured != KHO_ON) {
		f->configured = KHO_ON;
		snprintf(f->value, sizeof(f->value), "present");
		snprintf(f->from, sizeof(f->from), "sys/kernel/debug/kho/out");
	}
}

static void kho_finding(struct prep_doctor *d, const struct prep_check *check,
			const struct kho_facts *f, enum prep_severity severity, const char *summary)
{
	struct prep_verdict *v = prep_say(d, check, PREP_V_FINDING, "node", "%s", summary);
	v->severity = severity;
	if (f->have_cma) {
		prep_evidence(v, "CmaTotal", "proc/meminfo", "%" PRIu64 " kB", f->total_kb);
		prep_evidence(v, "CmaFree", "proc/meminfo", "%" PRIu64 " kB", f->free_kb);
	}
	if (f->from[0] != '\0')
		prep_evidence(v, "KHO", f->from, "%s", f->value);
	if (severity == PREP_SEV_INFO)
		return;
	snprintf(
		v->remedy[0], sizeof(v->remedy[0]),
		"boot with kho=off (a fragment in /etc/default/grub.d, then update-grub), or a kernel without default KHO");
	snprintf(v->remedy[1], sizeof(v->remedy[1]), "reboot, then: dsprep doctor");
}

/* The decision table of host.md 2.2. */
void prep_check_kho(struct prep_doctor *d, const struct prep_check *check)
{
	struct kho_facts f;
	kho_read(d->access, &f);
	if (!f.have_cma && f.cma_off && f.why[0] == '\0') {
		kho_finding(d, check, &f, PREP_SEV_INFO, "this kernel has no CMA");
	} else if (!f.have_cma) {
		prep_say(d, check, PREP_V_UNDETERMINED, "node",
			 "no CmaTotal and CmaFree in /proc/meminfo%s%s",
			 f.why[0] != '\0' ? "; " : "", f.why);
	} else if (f.free_kb > f.total_kb) {
		kho_finding(d, check, &f, PREP_SEV_CRITICAL,
			    "CmaFree is larger than CmaTotal: KHO scratch pages are in use");
	} else if (f.configured == KHO_ON) {
		kho_finding(d, check, &f, PREP_SEV_WARNING,
			    "KHO is on, though CmaFree shows no scratch pages now");
	} else if (f.configured == KHO_UNKNOWN) {
		prep_say(
			d, check, PREP_V_UNDETERMINED, "node",
			"CmaFree is not larger than CmaTotal, but whether KHO is on is unknown: %s",
			f.why);
	} else {
		struct prep_verdict *v = prep_say(d, check, PREP_V_PASS, "node",
						  "KHO is off and CmaFree is within CmaTotal");
		prep_evidence(v, "CmaTotal", "proc/meminfo", "%" PRIu64 " kB", f.total_kb);
		prep_evidence(v, "CmaFree", "proc/meminfo", "%" PRIu64 " kB", f.free_kb);
		prep_evidence(v, "KHO", f.from, "%s", f.value);
	}
}

/* ----------------------------- memlock-low ----------------------------- */

#define MEMLOCK_CRITICAL_BYTES (8ull << 20) /* what systemd and Docker give by default */
#define MEMLOCK_WARNING_BYTES  (1ull << 30)

#define DROP_INS_MAX 64

struct memlock {
	struct prep_doctor *d;
	const struct prep_check *check;
	unsigned int n_engine;
	bool have_unit, have_limit; /* unit file seen; it sets the limit */
	uint64_t limit;
	char from[96];
	/* Drop-ins by name; of one name the strongest directory's counts. */
	const char *dir; /* being listed */
	size_t n_drop_in;
	struct {
		char name[NAME_MAX + 1];
		const char *dir;
	} drop_in[DROP_INS_MAX];
	bool too_many;
};

static void judge_limit(struct prep_doctor *d, const struct prep_check *check, const char *subject,
			uint64_t bytes, const char *what, const char *from)
{
	char text[32] = "unlimited";
	if (bytes != PREP_BYTES_INFINITE)
		snprintf(text, sizeof(text), "%" PRIu64, bytes);
	struct prep_verdict *v;
	if (bytes >= MEMLOCK_WARNING_BYTES) {
		v = prep_say(d, check, PREP_V_PASS, subject, "the locked-memory limit is %s%s",
			     text, bytes == PREP_BYTES_INFINITE ? "" : " bytes");
	} else {
		v = prep_say(
			d, check, PREP_V_FINDING, subject,
			"the locked-memory limit is %s bytes, too little to register memory for RDMA",
			text);
		v->severity = bytes <= MEMLOCK_CRITICAL_BYTES ? PREP_SEV_CRITICAL
							      : PREP_SEV_WARNING;
		snprintf(
			v->remedy[0], sizeof(v->remedy[0]),
			"LimitMEMLOCK=infinity in a drop-in of the unit, or --ulimit memlock=-1:-1 for a container; then restart it");
	}
	prep_evidence(v, what, from, "%s", text);
}

static int look_at_process(const char *pid, void *arg)
{
	struct memlock *m = arg;
	char path[64], comm[32], subject[48];
	struct ds_buf text = { 0 };
	uint64_t bytes;
	if (!isdigit((unsigned char)pid[0]) || strlen(pid) > 10)
		return 0;
	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	if (prep_read_line(m->d->access, path, comm, sizeof(comm)) != 0 ||
	    strcmp(comm, "dsengine") != 0)
		return 0;
	m->n_engine++;
	snprintf(subject, sizeof(subject), "dsengine %s", pid);
	snprintf(path, sizeof(path), "/proc/%s/limits", pid);
	int rc = prep_read(m->d->access, path, &text);
	if (rc == 0 && prep_kt_limit(text.data, text.len, "Max locked memory", &bytes))
		judge_limit(m->d, m->check, subject, bytes, "Max locked memory", path + 1);
	else
		prep_say(m->d, m->check, PREP_V_UNDETERMINED, subject, "%s: %s", path,
			 rc != 0 ? strerror(rc) : "no row for locked memory");
	ds_buf_fini(&text);
	return 0;
}

static void take_unit(struct memlock *m, const char *path)
{
	struct ds_buf text = { 0 };
	if (prep_read(m->d->access, path, &text) == 0) {
		m->have_unit = true;
		if (prep_kt_unit_bytes(text.data, text.len, "LimitMEMLOCK", &m->limit)) {
			m->have_limit = true;
			snprintf(m->from, sizeof(m->from), "%s", path + 1);
		}
	}
	ds_buf_fini(&text);
}

static int keep_drop_in(const char *name, void *arg)
{
	struct memlock *m = arg;
	size_t len = strlen(name), i = 0;
	if (len < 6 || len > NAME_MAX || strcmp(name + len - 5, ".conf") != 0)
		return 0;
	while (i < m->n_drop_in && strcmp(m->drop_in[i].name, name) != 0)
		i++;
	if (i == DROP_INS_MAX) {
		m->too_many = true;
		return 0;
	}
	strcpy(m->drop_in[i].name, name);
	m->drop_in[i].dir = m->dir;
	m->n_drop_in += i == m->n_drop_in;
	return 0;
}

/* The name comes first in the element. */
static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/*
 * As systemd.unit(5) has it: the unit file of the strongest directory that has one; then the
 * drop-ins of all directories in the order of their names alone.
 */
static void look_at_unit(struct memlock *m)
{
	static const char *const dirs[] = { "/usr/lib/systemd/system", "/lib/systemd/system",
					    "/run/systemd/system", "/etc/systemd/system" };
	char path[NAME_MAX + 64];
	for (size_t i = 4; i-- > 0 && !m->have_unit;) {
		snprintf(path, sizeof(path), "%s/dsengine.service", dirs[i]);
		take_unit(m, path);
	}
	for (size_t i = 0; i < 4; i++) {
		m->dir = dirs[i];
		snprintf(path, sizeof(path), "%s/dsengine.service.d", dirs[i]);
		(void)prep_list(m->d->access, path, keep_drop_in, m);
	}
	qsort(m->drop_in, m->n_drop_in, sizeof(m->drop_in[0]), by_name);
	for (size_t i = 0; i < m->n_drop_in; i++) {
		snprintf(path, sizeof(path), "%s/dsengine.service.d/%s", m->drop_in[i].dir,
			 m->drop_in[i].name);
		take_unit(m, path);
	}
}

static int count_name(const char *name, void *arg)
{
	(void)name;
	++*(unsigned int *)arg;
	return 0;
}

void prep_check_memlock(struct prep_doctor *d, const struct prep_check *check)
{
	struct memlock m = { .d = d, .check = check };
	unsigned int n_ibdev = 0;
	if (prep_list(d->access, "/sys/class/infiniband", count_name, &n_ibdev) != 0 ||
	    n_ibdev == 0) {
		prep_say(d, check, PREP_V_NOT_APPLICABLE, "node",
			 "no RDMA device here, so nothing registers memory");
		return;
	}
	int rc = prep_list(d->access, "/proc", look_at_process, &m);
	if (m.n_engine > 0)
		return;
	look_at_unit(&m);
	if (m.too_many)
		prep_say(d, check, PREP_V_UNDETERMINED, "node",
			 "dsengine.service has more than %d drop-ins", DROP_INS_MAX);
	else if (m.have_limit)
		judge_limit(d, check, "dsengine.service", m.limit, "LimitMEMLOCK", m.from);
	else
		prep_say(d, check, PREP_V_UNDETERMINED, "node", "%s%s",
			 rc != 0       ? "/proc cannot be listed: "
			 : m.have_unit ? "dsengine.service sets no LimitMEMLOCK and does not run"
				       : "no dsengine runs and there is no dsengine.service",
			 rc != 0 ? strerror(rc) : "");
}

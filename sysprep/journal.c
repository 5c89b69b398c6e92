/*
 * journal.c - reads journals, trusting nothing, and appends records, each on disk when the call
 * returns. It decides nothing: apply.c and undo.c say what happened.
 */
#include "journal.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "json.h"
#include "state.h"

#define HEAD_BYTES 8

/* ------------------------------- words ------------------------------- */

static const char *const undone_names[] = {
	[PREP_UNDONE_NOT] = "not",	   [PREP_UNDONE_RESTORED] = "restored",
	[PREP_UNDONE_ALREADY] = "already", [PREP_UNDONE_GONE] = "gone",
	[PREP_UNDONE_LEFT] = "left",	   [PREP_UNDONE_VOID] = "void",
};
#define N_UNDONE (sizeof(undone_names) / sizeof(undone_names[0]))

const char *prep_undone_name(enum prep_undone how)
{
	return (size_t)how < N_UNDONE ? undone_names[how] : "unknown";
}

/* ------------------------------- reading ------------------------------- */

struct parse {
	struct prep_journal *j;
	size_t offset; /* of the record, for messages */
	struct ds_err *err;
};

static int damaged(const struct parse *p, const char *why)
{
	ds_err_set(p->err, DS_ERR_INPUT, 0, p->j->path, "read the journal");
	ds_err_why(p->err, "damaged at byte %zu: %s", p->offset, why);
	return ds_err_fix(p->err, "nothing was done; if you cannot restore the file, undo by hand "
				  "what its text says and move its directory away");
}

static bool get_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_integer(v))
		return false;
	*out = json_integer_value(v);
	return *out >= min && *out <= max;
}

static bool get_str(const json_t *o, const char *key, char *buf, size_t size)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_string(v) || json_string_length(v) >= size ||
	    strlen(json_string_value(v)) != json_string_length(v))
		return false;
	strcpy(buf, json_string_value(v));
	return true;
}

static int read_begin(struct parse *p, const json_t *o)
{
	struct prep_journal *j = p->j;
	int64_t format, netns;
	if (!get_int(o, "format", 1, INT64_MAX, &format))
		return damaged(p, "no format number");
	if (format > PREP_JOURNAL_FORMAT) {
		ds_err_set(p->err, DS_ERR_INPUT, 0, j->path, "read the journal");
		ds_err_why(p->err, "format %lld is newer than this dsprep knows (%d)",
			   (long long)format, PREP_JOURNAL_FORMAT);
		return ds_err_fix(p->err, "use the dsprep that wrote it, or a newer one");
	}
	if (j->n_seg == PREP_JOURNAL_SEGS_MAX)
		return damaged(p, "too many segments");
	struct prep_jseg s = { .offset = p->offset };
	if (!get_str(o, "boot_id", s.boot_id, sizeof(s.boot_id)) ||
	    !get_int(o, "netns", 0, INT64_MAX, &netns) ||
	    !get_str(o, "management", s.management, sizeof(s.management)) ||
	    !get_str(o, "config", s.config, sizeof(s.config)) ||
	    !get_int(o, "time", 0, INT64_MAX, &s.time))
		return damaged(p, "a begin record lacks a field");
	s.netns = (uint64_t)netns;
	struct prep_jseg *more = realloc(j->seg, (j->n_seg + 1) * sizeof(*more));
	if (more == NULL)
		return ds_err_set(p->err, DS_ERR_NOMEM, ENOMEM, j->path, "read the journal");
	j->seg = more;
	j->seg[j->n_seg++] = s;
	return 0;
}

static bool get_ipv4(const json_t *o, const char *key, struct in_addr *a)
{
	char text[INET_ADDRSTRLEN];
	return get_str(o, key, text, sizeof(text)) && inet_pton(AF_INET, text, a) == 1;
}

static bool get_routes(const json_t *o, struct prep_op *op)
{
	const json_t *list = json_object_get(o, "routes"), *v;
	size_t i;
	if (!json_is_array(list) || json_array_size(list) > PREP_OP_ROUTES_MAX)
		return false;
	json_array_foreach (list, i, v) {
		struct prep_op_route *r = &op->route[op->n_route++];
		int64_t table, metric, len, scope, protocol, tos;
		if (!get_ipv4(v, "dst", &r->dst) || !get_ipv4(v, "gateway", &r->gateway) ||
		    !get_ipv4(v, "src", &r->prefsrc) || !get_int(v, "len", 0, 32, &len) ||
		    !get_int(v, "table", 1, UINT32_MAX, &table) ||
		    !get_int(v, "metric", 0, UINT32_MAX, &metric) ||
		    !get_int(v, "scope", 0, 255, &scope) ||
		    !get_int(v, "protocol", 0, 255, &protocol) || !get_int(v, "tos", 0, 255, &tos))
			return false;
		r->onlink = json_is_true(json_object_get(v, "onlink"));
		r->table = (uint32_t)table;
		r->metric = (uint32_t)metric;
		r->dst_len = (uint8_t)len;
		r->scope = (uint8_t)scope;
		r->protocol = (uint8_t)protocol;
		r->tos = (uint8_t)tos;
	}
	return true;
}

static bool get_addr(const json_t *o, struct prep_op *op)
{
	char text[INET6_ADDRSTRLEN];
	int64_t prefix, flags, scope, proto, metric, preferred, valid;
	if (!get_str(o, "addr", text, sizeof(text)) || !get_int(o, "prefix", 0, 128, &prefix) ||
	    !get_int(o, "flags", 0, UINT32_MAX, &flags) || !get_int(o, "scope", 0, 255, &scope) ||
	    !get_int(o, "proto", 0, 255, &proto) || !get_int(o, "metric", 0, UINT32_MAX, &metric) ||
	    !get_int(o, "preferred_s", 0, UINT32_MAX, &preferred) ||
	    !get_int(o, "valid_s", 0, UINT32_MAX, &valid) || !get_ipv4(o, "peer", &op->addr_peer) ||
	    !get_ipv4(o, "broadcast", &op->addr_brd) ||
	    !get_str(o, "label", op->addr_label, sizeof(op->addr_label)))
		return false;
	op->family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
	op->prefix = (uint8_t)prefix;
	op->addr_flags = (uint32_t)flags;
	op->addr_scope = (uint8_t)scope;
	op->addr_proto = (uint8_t)proto;
	op->addr_metric = (uint32_t)metric;
	op->addr_lft[0] = (uint32_t)preferred;
	op->addr_lft[1] = (uint32_t)valid;
	return get_routes(o, op) && inet_pton(op->family, text, &op->addr) == 1;
}

static int find_sysctl(const char *family, const char *key)
{
	for (int i = 0; i < PREP_SC_N; i++)
		if (strcmp(prep_sysctls[i].family, family) == 0 &&
		    strcmp(prep_sysctls[i].key, key) == 0)
			return i;
	return -1;
}

static bool get_sysctl(const json_t *o, struct prep_op *op)
{
	char text[64], *slash;
	if (!get_str(o, "sysctl", text, sizeof(text)) || (slash = strchr(text, '/')) == NULL)
		return false;
	*slash = '\0';
	op->sysctl = find_sysctl(text, slash + 1);
	return op->sysctl >= 0;
}

static int read_intent(struct parse *p, const json_t *o, int64_t index)
{
	struct prep_journal *j = p->j;
	if (index != j->n_op)
		return damaged(p, "operations are not numbered in order");
	if (j->n_op == PREP_JOURNAL_OPS_MAX)
		return damaged(p, "too many operations");
	struct prep_jop jo = { .segment = j->n_seg - 1 };
	int64_t kind, ifindex;
	if (!get_int(o, "kind", 1, INT32_MAX, &kind) ||
	    !get_str(o, "ifname", jo.op.ifname, sizeof(jo.op.ifname)) ||
	    !get_int(o, "ifindex", 0, INT32_MAX, &ifindex) ||
	    !get_int(o, "value", INT64_MIN, INT64_MAX, &jo.op.value) ||
	    !get_int(o, "old", INT64_MIN, INT64_MAX, &jo.op.old))
		return damaged(p, "an intent record lacks a field");
	jo.op.kind = (enum prep_op_kind)kind;
	jo.op.ifindex = (int)ifindex;
	if ((kind == PREP_OP_ADDR_ADD || kind == PREP_OP_ADDR_DEL) && !get_addr(o, &jo.op))
		return damaged(p, "an intent record lacks its address");
	if (kind == PREP_OP_SYSCTL && !get_sysctl(o, &jo.op))
		return damaged(p, "an intent record lacks its sysctl");
	struct ds_err why = { 0 };
	if (prep_op_check(&jo.op, &why) != 0)
		return damaged(p, why.why);
	struct prep_jop *more = realloc(j->op, (j->n_op + 1) * sizeof(*more));
	if (more == NULL)
		return ds_err_set(p->err, DS_ERR_NOMEM, ENOMEM, j->path, "read the journal");
	j->op = more;
	j->op[j->n_op++] = jo;
	return 0;
}

static int read_undone(struct parse *p, const json_t *o, struct prep_jop *jo)
{
	char how[16];
	if (jo->undone != PREP_UNDONE_NOT || !get_str(o, "how", how, sizeof(how)))
		return damaged(p, "an undone record out of place");
	for (size_t i = PREP_UNDONE_RESTORED; i < N_UNDONE; i++)
		if (strcmp(how, undone_names[i]) == 0)
			jo->undone = (enum prep_undone)i;
	return jo->undone != PREP_UNDONE_NOT ? 0 : damaged(p, "unknown word in an undone record");
}

/* A record of one operation: intent, done, verified, undone, in that order. */
static int read_op_record(struct parse *p, const char *state, const json_t *o)
{
	struct prep_journal *j = p->j;
	int64_t index;
	if (!get_int(o, "op", 0, PREP_JOURNAL_OPS_MAX, &index))
		return damaged(p, "a record without operation");
	if (strcmp(state, "intent") == 0)
		return read_intent(p, o, index);
	if (index >= j->n_op)
		return damaged(p, "a record of an operation that was not begun");
	struct prep_jop *jo = &j->op[index];
	if (strcmp(state, "undone") == 0)
		return read_undone(p, o, jo);
	bool *mark = strcmp(state, "done") == 0	      ? &jo->done
		     : strcmp(state, "verified") == 0 ? &jo->verified
						      : NULL;
	if (mark == NULL)
		return damaged(p, "unknown state");
	if (*mark || jo->undone != PREP_UNDONE_NOT || (mark == &jo->verified && !jo->done))
		return damaged(p, "states of an operation out of order");
	*mark = true;
	return 0;
}

static int read_object(struct parse *p, const json_t *o)
{
	struct prep_journal *j = p->j;
	char state[16];
	if (!get_str(o, "state", state, sizeof(state)))
		return damaged(p, "a record without state");
	if (j->closed)
		return damaged(p, "a record after the last");
	bool begin = strcmp(state, "begin") == 0;
	if (!begin && j->n_seg == 0)
		return damaged(p, "does not begin at the beginning");
	if (begin)
		return read_begin(p, o);
	if (strcmp(state, "closed") == 0) {
		j->closed = true;
		return 0;
	}
	if (strcmp(state, "reverted") == 0) {
		j->seg[j->n_seg - 1].reverted = true;
		return 0;
	}
	return read_op_record(p, state, o);
}

/* Return: bytes of the record at @d; 0 it was cut off; -1. */
static ssize_t read_record(struct parse *p, const unsigned char *d, size_t left)
{
	if (left < HEAD_BYTES)
		return 0;
	unsigned int n = d[0] | (unsigned int)d[1] << 8, inverse = d[2] | (unsigned int)d[3] << 8;
	uint32_t crc = d[4] | (uint32_t)d[5] << 8 | (uint32_t)d[6] << 16 | (uint32_t)d[7] << 24;
	if ((n ^ inverse) != 0xffff || n < 2 || n > PREP_JOURNAL_RECORD_MAX)
		return damaged(p, "the length of a record");
	if (left - HEAD_BYTES < n)
		return 0;
	if (ds_crc32c(0, d + HEAD_BYTES, n) != crc)
		return damaged(p, "the checksum of a record");
	json_t *o = json_loadb((const char *)d + HEAD_BYTES, n, JSON_REJECT_DUPLICATES, NULL);
	int rc = json_is_object(o) ? read_object(p, o) : damaged(p, "a record is not JSON");
	json_decref(o);
	return rc == 0 ? (ssize_t)(HEAD_BYTES + n) : -1;
}

static int check_committed(struct parse *p, const unsigned char *data)
{
	const struct prep_journal *j = p->j;
	p->offset = j->len;
	if (j->committed == 0)
		return 0;
	if (j->len < j->committed)
		return damaged(p, "shorter than it was when its apply ended");
	if (ds_crc32c(0, data, j->committed) != j->committed_crc)
		return damaged(p, "not the bytes that its apply wrote");
	return 0;
}

int prep_journal_parse(struct prep_journal *j, const void *data, size_t len, size_t committed,
		       uint32_t committed_crc, struct ds_err *err)
{
	const unsigned char *d = data;
	struct parse p = { j, 0, err };
	size_t end = len;
	/* Blocks that a power cut left unwritten read as zeros; no record ends in one. */
	while (end > 0 && d[end - 1] == 0)
		end--;
	j->committed = committed;
	j->committed_crc = committed_crc;
	while (p.offset < end) {
		ssize_t n = read_record(&p, d + p.offset, end - p.offset);
		if (n < 0)
			goto fail;
		if (n == 0)
			break;
		p.offset += (size_t)n;
	}
	j->len = p.offset;
	j->torn = len - j->len;
	j->crc = ds_crc32c(0, data, j->len);
	if (check_committed(&p, d) == 0)
		return 0;
fail:
	prep_journal_fini(j);
	return -1;
}

void prep_journal_fini(struct prep_journal *j)
{
	free(j->op);
	free(j->seg);
	j->op = NULL;
	j->seg = NULL;
	j->n_op = j->n_seg = 0;
	if (j->fd > 0)
		close(j->fd);
	if (j->dir_fd > 0)
		close(j->dir_fd);
	j->fd = j->dir_fd = -1;
}

bool prep_journal_unfinished(const struct prep_journal *j)
{
	if (j->closed || j->n_seg == 0)
		return false;
	const struct prep_jseg *s = &j->seg[j->n_seg - 1];
	return !s->reverted && s->offset >= j->committed;
}

bool prep_journal_standing(const struct prep_journal *j)
{
	return !j->closed && j->committed != 0;
}

/* ------------------------------- directories ------------------------------- */

static int read_committed(struct prep_journal *j, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	struct ds_err e = { 0 };
	if (ds_file_read(j->dir_fd, "committed", O_NOFOLLOW, 4096, &b, &e) != 0) {
		ds_buf_fini(&b);
		if (e.sys == ENOENT)
			return 0;
		*err = e;
		return ds_err_context(err, "journal %u", j->id);
	}
	json_t *o = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
	int64_t format, bytes = 0, crc = 0;
	bool ok = get_int(o, "format", PREP_JOURNAL_FORMAT, PREP_JOURNAL_FORMAT, &format) &&
		  get_int(o, "bytes", 1, PREP_JOURNAL_BYTES_MAX, &bytes) &&
		  get_int(o, "crc32c", 0, UINT32_MAX, &crc);
	json_decref(o);
	ds_buf_fini(&b);
	j->committed = (size_t)bytes;
	j->committed_crc = (uint32_t)crc;
	struct parse p = { j, 0, err };
	return ok ? 0 : damaged(&p, "the file `committed` beside it");
}

/* Return: 1 read; 0 nothing whole in it; -1. */
static int open_journal(int dir, unsigned int id, struct prep_journal *j, struct ds_err *err)
{
	char name[16];
	struct ds_buf b = { 0 };
	struct ds_err e = { 0 };
	*j = (struct prep_journal){ .id = id, .dir_fd = -1, .fd = -1 };
	snprintf(name, sizeof(name), "%u", id);
	snprintf(j->path, sizeof(j->path), "%s/%u/log", PREP_JOURNAL_DIR, id);
	j->dir_fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (j->dir_fd < 0)
		return ds_err_set(err, DS_ERR_HOST, errno, j->path, "open the directory of");
	if (prep_state_trust(j->dir_fd, j->path, err) != 0 || read_committed(j, err) != 0)
		goto fail;
	j->fd = openat(j->dir_fd, "log", O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (j->fd < 0 && errno == ENOENT && j->committed == 0) {
		prep_journal_fini(j);
		return 0;
	}
	struct stat st;
	if (j->fd < 0 || fstat(j->fd, &st) != 0) {
		ds_err_set(err, DS_ERR_HOST, errno, j->path, "open");
		goto fail;
	}
	struct parse p = { j, 0, err };
	if (!S_ISREG(st.st_mode)) {
		damaged(&p, "not a regular file");
		goto fail;
	}
	if (prep_state_trust(j->fd, j->path, err) != 0)
		goto fail;
	if (ds_fd_read(j->fd, j->path, PREP_JOURNAL_BYTES_MAX, &b, &e) != 0) {
		*err = e;
		goto fail;
	}
	if (prep_journal_parse(j, b.data, b.len, j->committed, j->committed_crc, err) != 0)
		goto fail;
	ds_buf_fini(&b);
	if (j->n_seg != 0)
		return 1;
	prep_journal_fini(j);
	return 0;
fail:
	ds_buf_fini(&b);
	prep_journal_fini(j);
	return -1;
}

static int by_number(const void *a, const void *b)
{
	unsigned int x = *(const unsigned int *)a, y = *(const unsigned int *)b;
	return (x > y) - (x < y);
}

/* Names that are not our numbers (a lost+found, an editor's copy) are none of our business. */
static int list_ids(int dir, unsigned int **out, unsigned int *n, struct ds_err *err)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (d == NULL) {
		ds_err_set(err, DS_ERR_HOST, errno, PREP_JOURNAL_DIR, "list");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	int rc = 0;
	*out = NULL;
	*n = 0;
	for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
		size_t len = strspn(e->d_name, "0123456789");
		if (len == 0 || len > 9 || e->d_name[len] != '\0' || e->d_name[0] == '0')
			continue;
		unsigned int *more = realloc(*out, (*n + 1) * sizeof(*more));
		if (more == NULL) {
			rc = ds_err_set(err, DS_ERR_NOMEM, ENOMEM, PREP_JOURNAL_DIR, "list");
			continue;
		}
		*out = more;
		(*out)[(*n)++] = (unsigned int)strtoul(e->d_name, NULL, 10);
	}
	closedir(d);
	if (*n > 0)
		qsort(*out, *n, sizeof(**out), by_number);
	return rc;
}

int prep_journals_open(struct prep_access *a, bool make, struct prep_journals *all,
		       struct ds_err *err)
{
	struct ds_err e = { 0 };
	unsigned int *ids = NULL, n = 0;
	*all = (struct prep_journals){ .dir_fd = prep_state_journal(a, make, &e) };
	if (all->dir_fd < 0) {
		if (!make && e.sys == ENOENT)
			return 0;
		*err = e;
		return -1;
	}
	if (list_ids(all->dir_fd, &ids, &n, err) != 0)
		goto fail;
	all->j = calloc((size_t)n + 1, sizeof(*all->j));
	if (all->j == NULL) {
		ds_err_set(err, DS_ERR_NOMEM, ENOMEM, PREP_JOURNAL_DIR, "list");
		goto fail;
	}
	for (unsigned int i = 0; i < n; i++) {
		int got = open_journal(all->dir_fd, ids[i], &all->j[all->n], err);
		if (got < 0)
			goto fail;
		all->n += (unsigned int)got;
		all->last_id = ids[i];
	}
	free(ids);
	return 0;
fail:
	free(ids);
	prep_journals_close(all);
	return -1;
}

void prep_journals_close(struct prep_journals *all)
{
	for (unsigned int i = 0; all->j != NULL && i < all->n; i++)
		prep_journal_fini(&all->j[i]);
	free(all->j);
	if (all->dir_fd >= 0)
		close(all->dir_fd);
	*all = (struct prep_journals){ .dir_fd = -1 };
}

/* ------------------------------- writing ------------------------------- */

int prep_journal_create(struct prep_journals *all, struct prep_journal *j, struct ds_err *err)
{
	char name[16];
	*j = (struct prep_journal){ .id = all->last_id + 1, .dir_fd = -1, .fd = -1 };
	snprintf(name, sizeof(name), "%u", j->id);
	snprintf(j->path, sizeof(j->path), "%s/%u/log", PREP_JOURNAL_DIR, j->id);
	if (all->last_id >= PREP_JOURNAL_ID_MAX) {
		ds_err_set(err, DS_ERR_HOST, 0, j->path, "number an apply");
		ds_err_why(err, "a directory has the last number there is, %u", all->last_id);
		return ds_err_fix(err, "move it away if it is no journal: %s/%u", PREP_JOURNAL_DIR,
				  all->last_id);
	}
	if (mkdirat(all->dir_fd, name, 0700) != 0 || fsync(all->dir_fd) != 0)
		return ds_err_set(err, DS_ERR_HOST, errno, j->path, "make the directory of");
	all->last_id = j->id;
	prep_test_point("journal directory");
	j->dir_fd = openat(all->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (j->dir_fd >= 0)
		j->fd = openat(j->dir_fd, "log",
			       O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (j->fd < 0 || fsync(j->dir_fd) != 0) {
		ds_err_set(err, DS_ERR_HOST, errno, j->path, "create");
		prep_journal_fini(j);
		return -1;
	}
	prep_test_point("journal log");
	return 0;
}

/* Appends one record. A record that did not get out whole is taken back, if the disk lets us. */
static int append(struct prep_journal *j, struct ds_buf *text, struct ds_err *err)
{
	if (text->failed)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, j->path, "write the journal");
	if (text->len > PREP_JOURNAL_RECORD_MAX)
		return ds_err_set(err, DS_ERR_BUG, 0, j->path, "write a record of %zu bytes",
				  text->len);
	if (j->torn != 0 && ftruncate(j->fd, (off_t)j->len) != 0)
		return ds_err_set(err, DS_ERR_HOST, errno, j->path, "drop the torn record");
	j->torn = 0;
	unsigned char rec[HEAD_BYTES + PREP_JOURNAL_RECORD_MAX];
	unsigned int n = (unsigned int)text->len, inverse = n ^ 0xffff;
	uint32_t crc = ds_crc32c(0, text->data, n);
	const unsigned char head[HEAD_BYTES] = {
		n & 0xff,   n >> 8 & 0xff,   inverse & 0xff,   inverse >> 8 & 0xff,
		crc & 0xff, crc >> 8 & 0xff, crc >> 16 & 0xff, crc >> 24,
	};
	memcpy(rec, head, HEAD_BYTES);
	memcpy(rec + HEAD_BYTES, text->data, n);
	if (ds_write_all(j->fd, rec, HEAD_BYTES + n) != 0 || fdatasync(j->fd) != 0) {
		ds_err_set(err, DS_ERR_HOST, errno, j->path, "write the journal");
		/* Length unknown now: the next append, if any, starts by cutting back. */
		j->torn = 1;
		return -1;
	}
	j->len += HEAD_BYTES + n;
	j->crc = ds_crc32c(j->crc, rec, HEAD_BYTES + n);
	return 0;
}

static struct ds_json open_record(struct ds_buf *b, const char *state)
{
	struct ds_json w;
	ds_json_init(&w, b, 0);
	ds_json_object(&w);
	ds_json_kstr(&w, "state", state);
	return w;
}

/* Closes the object, appends, frees. */
static int put_record(struct prep_journal *j, struct ds_json *w, struct ds_buf *b,
		      struct ds_err *err)
{
	ds_json_end(w);
	int rc = append(j, b, err);
	ds_buf_fini(b);
	return rc;
}

int prep_journal_begin(struct prep_journal *j, const struct prep_jseg *seg, struct ds_err *err)
{
	if (j->n_seg == PREP_JOURNAL_SEGS_MAX)
		return ds_err_set(err, DS_ERR_HOST, 0, j->path, "begin: too many segments");
	struct prep_jseg *more = realloc(j->seg, (j->n_seg + 1) * sizeof(*more));
	if (more == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, j->path, "begin");
	j->seg = more;
	j->seg[j->n_seg] = *seg;
	j->seg[j->n_seg].offset = j->len;
	j->seg[j->n_seg].reverted = false;
	struct ds_buf b = { 0 };
	struct ds_json w = open_record(&b, "begin");
	ds_json_kint(&w, "format", PREP_JOURNAL_FORMAT);
	ds_json_kstr(&w, "tool", "dsprep " DS_VERSION);
	ds_json_kstr(&w, "boot_id", seg->boot_id);
	ds_json_kuint(&w, "netns", seg->netns);
	ds_json_kstr(&w, "management", seg->management);
	ds_json_kstr(&w, "config", seg->config);
	ds_json_kint(&w, "time", seg->time);
	if (put_record(j, &w, &b, err) != 0)
		return -1;
	j->n_seg++;
	return 0;
}

static void put_ipv4(struct ds_json *w, const char *key, struct in_addr a)
{
	char text[INET_ADDRSTRLEN];
	ds_json_kstr(w, key, inet_ntop(AF_INET, &a, text, sizeof(text)));
}

static void put_routes(struct ds_json *w, const struct prep_op *op)
{
	ds_json_key(w, "routes");
	ds_json_array(w);
	for (int i = 0; i < op->n_route; i++) {
		const struct prep_op_route *r = &op->route[i];
		ds_json_object(w);
		put_ipv4(w, "dst", r->dst);
		ds_json_kint(w, "len", r->dst_len);
		put_ipv4(w, "gateway", r->gateway);
		put_ipv4(w, "src", r->prefsrc);
		ds_json_kuint(w, "table", r->table);
		ds_json_kuint(w, "metric", r->metric);
		ds_json_kint(w, "scope", r->scope);
		ds_json_kint(w, "protocol", r->protocol);
		ds_json_kint(w, "tos", r->tos);
		ds_json_kbool(w, "onlink", r->onlink);
		ds_json_end(w);
	}
	ds_json_end(w);
}

static void put_op(struct ds_json *w, const struct prep_op *op)
{
	char text[128];
	ds_json_kint(w, "kind", op->kind);
	ds_json_kstr(w, "text", prep_op_text(op, text, sizeof(text)));
	ds_json_kstr(w, "ifname", op->ifname);
	ds_json_kint(w, "ifindex", op->ifindex);
	ds_json_kint(w, "value", op->value);
	ds_json_kint(w, "old", op->old);
	if (op->kind == PREP_OP_SYSCTL) {
		snprintf(text, sizeof(text), "%s/%s", prep_sysctls[op->sysctl].family,
			 prep_sysctls[op->sysctl].key);
		ds_json_kstr(w, "sysctl", text);
	}
	if (op->kind != PREP_OP_ADDR_ADD && op->kind != PREP_OP_ADDR_DEL)
		return;
	inet_ntop(op->family, &op->addr, text, sizeof(text));
	ds_json_kstr(w, "addr", text);
	ds_json_kint(w, "prefix", op->prefix);
	ds_json_kuint(w, "flags", op->addr_flags);
	ds_json_kint(w, "scope", op->addr_scope);
	ds_json_kint(w, "proto", op->addr_proto);
	ds_json_kuint(w, "metric", op->addr_metric);
	ds_json_kuint(w, "preferred_s", op->addr_lft[0]);
	ds_json_kuint(w, "valid_s", op->addr_lft[1]);
	put_ipv4(w, "peer", op->addr_peer);
	put_ipv4(w, "broadcast", op->addr_brd);
	ds_json_kstr(w, "label", op->addr_label);
	put_routes(w, op);
}

int prep_journal_intent(struct prep_journal *j, const struct prep_op *op, unsigned int *index,
			struct ds_err *err)
{
	if (j->n_op == PREP_JOURNAL_OPS_MAX)
		return ds_err_set(err, DS_ERR_HOST, 0, j->path, "begin: too many operations");
	struct prep_jop *more = realloc(j->op, (j->n_op + 1) * sizeof(*more));
	if (more == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, j->path, "record an intent");
	j->op = more;
	struct ds_buf b = { 0 };
	struct ds_json w = open_record(&b, "intent");
	ds_json_kint(&w, "op", j->n_op);
	put_op(&w, op);
	if (put_record(j, &w, &b, err) != 0)
		return -1;
	j->op[j->n_op] = (struct prep_jop){ .op = *op, .segment = j->n_seg - 1 };
	*index = j->n_op++;
	return 0;
}

static int put_state(struct prep_journal *j, const char *state, unsigned int index, const char *how,
		     struct ds_err *err)
{
	struct ds_buf b = { 0 };
	struct ds_json w = open_record(&b, state);
	ds_json_kint(&w, "op", index);
	if (how != NULL)
		ds_json_kstr(&w, "how", how);
	return put_record(j, &w, &b, err);
}

int prep_journal_done(struct prep_journal *j, unsigned int index, struct ds_err *err)
{
	if (put_state(j, "done", index, NULL, err) != 0)
		return -1;
	j->op[index].done = true;
	return 0;
}

int prep_journal_verified(struct prep_journal *j, unsigned int index, struct ds_err *err)
{
	if (put_state(j, "verified", index, NULL, err) != 0)
		return -1;
	j->op[index].verified = true;
	return 0;
}

int prep_journal_undone(struct prep_journal *j, unsigned int index, enum prep_undone how,
			struct ds_err *err)
{
	if (put_state(j, "undone", index, prep_undone_name(how), err) != 0)
		return -1;
	j->op[index].undone = how;
	return 0;
}

int prep_journal_reverted(struct prep_journal *j, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	struct ds_json w = open_record(&b, "reverted");
	if (put_record(j, &w, &b, err) != 0)
		return -1;
	j->seg[j->n_seg - 1].reverted = true;
	return 0;
}

int prep_journal_closed(struct prep_journal *j, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	struct ds_json w = open_record(&b, "closed");
	if (put_record(j, &w, &b, err) != 0)
		return -1;
	j->closed = true;
	return 0;
}

int prep_journal_commit(struct prep_journal *j, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	struct ds_json w;
	ds_json_init(&w, &b, 0);
	ds_json_object(&w);
	ds_json_kint(&w, "format", PREP_JOURNAL_FORMAT);
	ds_json_kuint(&w, "bytes", j->len);
	ds_json_kuint(&w, "crc32c", j->crc);
	ds_json_end(&w);
	ds_buf_putc(&b, '\n');
	int rc = b.failed ? ds_err_set(err, DS_ERR_NOMEM, ENOMEM, j->path, "commit")
			  : ds_file_write(j->dir_fd, "committed", 0600, b.data, b.len, err);
	ds_buf_fini(&b);
	if (rc != 0)
		return -1;
	j->committed = j->len;
	j->committed_crc = j->crc;
	return 0;
}

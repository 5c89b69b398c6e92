/*
 * hostreport.c - reads the host report with suspicion: it is a file somebody wrote.
 *
 * Fields that we do not know are skipped (later versions add some), null means unknown, anything
 * else that is not as design says is refused by the name of the field.
 */
#include "hostreport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "file.h"

#define NODES_MAX 16

/* Where we are, for messages: "rails[1].peers[0].ipv4". */
struct ctx {
	const char *file;
	char where[64];
	struct ds_err *err;
};

static int bad(const struct ctx *c, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int bad(const struct ctx *c, const char *key, const char *fmt, ...)
{
	char why[160];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ds_err_set(c->err, DS_ERR_INPUT, 0, c->file, "read the host report");
	ds_err_why(c->err, "%s%s%s %s", c->where, c->where[0] != '\0' ? "." : "", key, why);
	return ds_err_fix(c->err, "write it anew with: sudo dsprep apply");
}

/* @must: null and absence are errors; otherwise they leave @out as it is. */
static int get_int(const struct ctx *c, const json_t *o, const char *key, bool must, int64_t min,
		   int64_t max, uint32_t *out)
{
	const json_t *v = json_object_get(o, key);
	if (v == NULL || json_is_null(v))
		return must ? bad(c, key, "is missing") : 0;
	if (!json_is_integer(v))
		return bad(c, key, "is not a whole number");
	int64_t n = json_integer_value(v);
	if (n < min || n > max)
		return bad(c, key, "is %lld, not %lld to %lld", (long long)n, (long long)min,
			   (long long)max);
	*out = (uint32_t)n;
	return 0;
}

/* Names end up in messages and in file names: plain characters only. */
static int get_word(const struct ctx *c, const json_t *o, const char *key, bool must, char *out,
		    size_t size)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "._-+:@~";
	const json_t *v = json_object_get(o, key);
	if (v == NULL || json_is_null(v))
		return must ? bad(c, key, "is missing") : 0;
	if (!json_is_string(v))
		return bad(c, key, "is not a string");
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);
	if (n == 0 || n >= size)
		return bad(c, key, "has %zu characters, not 1 to %zu", n, size - 1);
	if (strspn(s, plain) != n)
		return bad(c, key, "has characters that no name has");
	memcpy(out, s, n + 1);
	return 0;
}

/* "a.b.c.d", or "a.b.c.d/n" where @prefix is given. */
static int get_ipv4(const struct ctx *c, const json_t *o, const char *key, struct in_addr *out,
		    uint32_t *prefix)
{
	char text[32] = "", tail;
	const json_t *v = json_object_get(o, key);
	if (v == NULL || json_is_null(v))
		return 0;
	size_t n = json_string_length(v);
	if (!json_is_string(v) || n >= sizeof(text) || strlen(json_string_value(v)) != n)
		return bad(c, key, "is no IPv4 address");
	memcpy(text, json_string_value(v), n + 1);
	char *slash = strchr(text, '/');
	if ((slash != NULL) != (prefix != NULL))
		return bad(c, key, prefix != NULL ? "has no prefix length" : "has a prefix length");
	unsigned int bits = 0;
	if (slash != NULL) {
		*slash = '\0';
		if (strspn(slash + 1, "0123456789") != strlen(slash + 1) ||
		    sscanf(slash + 1, "%2u%c", &bits, &tail) != 1 || /* NOLINT(cert-err34-c) */
		    bits < 1 || bits > 32)
			return bad(c, key, "has a prefix length that is not 1 to 32");
		*prefix = bits;
	}
	struct in_addr a;
	if (inet_pton(AF_INET, text, &a) != 1)
		return bad(c, key, "is no IPv4 address");
	uint32_t h = ntohl(a.s_addr);
	if (h >> 24 == 0 || h >> 24 == 127 || h >> 28 >= 14)
		return bad(c, key, "is no address of a link");
	*out = a;
	return 0;
}

static int get_peer(struct ctx *c, const json_t *o, struct hr_peer *p)
{
	if (!json_is_object(o))
		return bad(c, "it", "is not an object");
	if (get_int(c, o, "node", true, 1, NODES_MAX, &p->node) != 0)
		return -1;
	return get_ipv4(c, o, "ipv4", &p->ipv4, NULL);
}

static int get_rail(struct ctx *c, const json_t *o, size_t i, struct hr_rail *r)
{
	snprintf(c->where, sizeof(c->where), "rails[%zu]", i);
	if (!json_is_object(o))
		return bad(c, "it", "is not an object");
	if (get_int(c, o, "rail", true, 0, 1, &r->rail) != 0 ||
	    get_int(c, o, "cage", false, 0, 1, &r->cage) != 0 ||
	    get_word(c, o, "edge", true, r->edge, sizeof(r->edge)) != 0 ||
	    get_word(c, o, "netdev", true, r->netdev, sizeof(r->netdev)) != 0 ||
	    get_word(c, o, "ibdev", false, r->ibdev, sizeof(r->ibdev)) != 0 ||
	    get_ipv4(c, o, "ipv4", &r->ipv4, &r->prefix) != 0 ||
	    get_int(c, o, "mtu", false, 68, 65536, &r->mtu) != 0)
		return -1;
	const json_t *peers = json_object_get(o, "peers");
	if (peers == NULL || json_is_null(peers))
		return 0;
	if (!json_is_array(peers) || json_array_size(peers) > HR_PEERS_MAX)
		return bad(c, "peers", "is not a list of at most %d", HR_PEERS_MAX);
	for (size_t k = 0; k < json_array_size(peers); k++) {
		snprintf(c->where, sizeof(c->where), "rails[%zu].peers[%zu]", i, k);
		if (get_peer(c, json_array_get(peers, k), &r->peer[k]) != 0)
			return -1;
		r->n_peer++;
	}
	return 0;
}

static int get_report(struct ctx *c, const json_t *root, struct host_report *r)
{
	uint32_t format;
	if (!json_is_object(root))
		return bad(c, "the file", "is not a JSON object");
	if (get_int(c, root, "format", true, 1, 1, &format) != 0 ||
	    get_int(c, root, "generation", false, 0, UINT32_MAX, &r->generation) != 0 ||
	    get_int(c, root, "node", true, 1, NODES_MAX, &r->node) != 0 ||
	    get_int(c, root, "nodes", true, 1, NODES_MAX, &r->nodes) != 0 ||
	    get_word(c, root, "shape", false, r->shape, sizeof(r->shape)) != 0)
		return -1;
	if (r->node > r->nodes)
		return bad(c, "node", "is %u of %u", r->node, r->nodes);
	const json_t *kernel = json_object_get(root, "kernel");
	if (json_is_object(kernel)) {
		snprintf(c->where, sizeof(c->where), "kernel");
		if (get_word(c, kernel, "release", false, r->release, sizeof(r->release)) != 0)
			return -1;
		c->where[0] = '\0';
	}
	const json_t *rails = json_object_get(root, "rails");
	if (!json_is_array(rails) || json_array_size(rails) > HR_RAILS_MAX)
		return bad(c, "rails", "is not a list of at most %d", HR_RAILS_MAX);
	for (size_t i = 0; i < json_array_size(rails); i++) {
		if (get_rail(c, json_array_get(rails, i), i, &r->rail[i]) != 0)
			return -1;
		r->n_rail++;
	}
	return 0;
}

int host_report_parse(const char *file, const char *text, size_t len, struct host_report *r,
		      struct ds_err *err)
{
	struct ctx c = { .file = file, .err = err };
	struct host_report out = { 0 };
	json_error_t je;
	if (len > HR_BYTES_MAX)
		return bad(&c, "the file", "has more than %d bytes", HR_BYTES_MAX);
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	if (root == NULL)
		return bad(&c, "the file", "is no JSON: line %d: %s", je.line, je.text);
	int rc = get_report(&c, root, &out);
	json_decref(root);
	if (rc == 0)
		*r = out;
	return rc;
}

int host_report_read(const char *file, struct host_report *r, struct ds_err *err)
{
	struct ds_buf b = { 0 };
	int rc = ds_file_read(AT_FDCWD, file, 0, HR_BYTES_MAX, &b, err);
	if (rc == 0)
		rc = host_report_parse(file, b.data != NULL ? b.data : "", b.len, r, err);
	ds_buf_fini(&b);
	return rc;
}

/*
 * conf.c - text of dsprep.conf to numbers: the settings table, and the checks that need more than
 * one row. It never looks at the host; plan.c does.
 */
#include "conf.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const char *const shape_words[] = { "pair", "triangle", "ring", "switch", NULL };

static int set_cage(const struct ds_ini_item *item, void *arg, struct ds_err *err)
{
	struct prep_conf *c = arg;
	if (c->line_cage != 0)
		return ds_ini_bad(item, err, "key \"cage\" was given on line %u already",
				  c->line_cage);
	c->line_cage = item->line;
	if (strcmp(item->value, "auto") == 0)
		c->cage = -1;
	else if (strcmp(item->value, "0") == 0 || strcmp(item->value, "1") == 0)
		c->cage = item->value[0] - '0';
	else
		return ds_ini_bad(item, err, "cage = \"%.40s\" is none of: auto, 0, 1",
				  item->value);
	return 0;
}

/* Private, shared (RFC 6598) and test networks are all fine; these cannot carry a rail. */
static bool unusable(uint32_t net)
{
	return net >> 24 == 0 || net >> 24 == 127 || net >> 28 >= 14 || net >> 16 == 0xa9fe;
}

static int set_subnets(const struct ds_ini_item *item, void *arg, struct ds_err *err)
{
	struct prep_conf *c = arg;
	if (c->line_subnets != 0)
		return ds_ini_bad(item, err, "key \"subnets\" was given on line %u already",
				  c->line_subnets);
	c->line_subnets = item->line;
	char addr[INET_ADDRSTRLEN];
	const char *slash = strchr(item->value, '/');
	struct in_addr in;
	size_t len = slash != NULL ? (size_t)(slash - item->value) : sizeof(addr);
	const char *digits = slash != NULL ? slash + 1 : "";
	bool ok = len < sizeof(addr) && isdigit((unsigned char)digits[0]) && strlen(digits) <= 2 &&
		  (digits[1] == '\0' || isdigit((unsigned char)digits[1]));
	if (ok) {
		memcpy(addr, item->value, len);
		addr[len] = '\0';
		ok = inet_pton(AF_INET, addr, &in) == 1;
	}
	if (!ok)
		return ds_ini_bad(item, err,
				  "subnets = \"%.40s\" is no IPv4 network such as 10.200.0.0/16",
				  item->value);
	unsigned int bits = 0;
	for (const char *p = digits; *p != '\0'; p++)
		bits = bits * 10 + (unsigned int)(*p - '0');
	if (bits < 8 || bits > 23)
		return ds_ini_bad(item, err, "subnets = %s: the prefix length is outside 8..23",
				  item->value);
	uint32_t net = ntohl(in.s_addr);
	if ((net & (0xffffffffu >> bits)) != 0)
		return ds_ini_bad(item, err, "subnets = %s has bits set behind its prefix",
				  item->value);
	if (unusable(net))
		return ds_ini_bad(item, err, "subnets = %s cannot be used on a cable", item->value);
	c->subnets = in;
	c->subnets_len = bits;
	return 0;
}

static int set_management(const struct ds_ini_item *item, void *arg, struct ds_err *err)
{
	struct prep_conf *c = arg;
	if (c->line_management != 0)
		return ds_ini_bad(item, err, "key \"management\" was given on line %u already",
				  c->line_management);
	c->line_management = item->line;
	size_t len = strlen(item->value);
	bool ok = len < sizeof(c->management) && strcmp(item->value, ".") != 0 &&
		  strcmp(item->value, "..") != 0;
	for (size_t i = 0; ok && i < len; i++)
		ok = item->value[i] != '/' && item->value[i] != ':' &&
		     isgraph((unsigned char)item->value[i]);
	if (!ok)
		return ds_ini_bad(item, err, "management = \"%.40s\" is no interface name",
				  item->value);
	strcpy(c->management, item->value);
	return 0;
}

/* clang-format off */
#define FIELD(f) offsetof(struct prep_conf, f), sizeof(((struct prep_conf *)0)->f)
static const struct ds_setting rows[] = {
	{ "cluster", "shape", DS_SET_ENUM, "", "pair", 0, 0, shape_words, FIELD(shape), NULL,
	  "how the nodes are cabled: pair, triangle, ring or switch" },
	{ "cluster", "nodes", DS_SET_INT, "", NULL, 2, PREP_NODES_MAX, NULL, FIELD(nodes), NULL,
	  "number of nodes; pair 2, triangle 3, ring 4, switch 2..16" },
	{ "cluster", "node", DS_SET_INT, "", NULL, 1, PREP_NODES_MAX, NULL, FIELD(node), NULL,
	  "this node's number, from 1; the only line that differs between nodes" },
	{ "cluster", "cage", DS_SET_CALL, "", "auto", 0, 1, NULL, 0, 0, set_cage,
	  "pair, switch: the cage to use, 0 or 1, or auto" },
	{ "cluster", "subnets", DS_SET_CALL, "", "10.200.0.0/16", 0, 0, NULL, 0, 0, set_subnets,
	  "IPv4 network; its /24s are taken in order, edge-major, rail-minor" },
	{ "cluster", "mtu", DS_SET_INT, "bytes", "9000", 1280, 9978, NULL, FIELD(mtu), NULL,
	  "MTU of every rail" },
	{ "cluster", "management", DS_SET_CALL, "", NULL, 0, 0, NULL, 0, 0, set_management,
	  "the interface that must never be touched or lost" },
	{ "apply", "settle_s", DS_SET_INT, "s", "20", 1, 120, NULL, FIELD(settle_s), NULL,
	  "how long apply watches management after its last change" },
};
#undef FIELD
/* clang-format on */
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

const struct ds_setting *prep_conf_table(size_t *n)
{
	*n = N_ROWS;
	return rows;
}

static unsigned int line_of(const unsigned int *seen, const char *key)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].key, key) == 0)
			return seen[i];
	return 0;
}

/* A value that does not fit another one; the line is the value's, or none if it is missing. */
static int misfit(const struct prep_conf *c, unsigned int line, struct ds_err *err, const char *why)
{
	char obj[300];
	if (line != 0)
		snprintf(obj, sizeof(obj), "%s line %u", c->file, line);
	else
		snprintf(obj, sizeof(obj), "%s section [cluster]", c->file);
	ds_err_set(err, DS_ERR_USAGE, 0, obj, "read config");
	return ds_err_why(err, "%s", why);
}

/* Edges whose /24s the shape needs; a switch counts as one. */
static unsigned int n_edges(int shape)
{
	static const unsigned int n[] = {
		[PREP_PAIR] = 1, [PREP_TRIANGLE] = 3, [PREP_RING] = 4, [PREP_SWITCH] = 1
	};
	return n[shape];
}

static int check_nodes(struct prep_conf *c, const unsigned int *seen, struct ds_err *err)
{
	static const int64_t want[] = { [PREP_PAIR] = 2, [PREP_TRIANGLE] = 3, [PREP_RING] = 4 };
	char why[160];
	if (c->nodes == 0 && c->shape == PREP_SWITCH) {
		misfit(c, 0, err, "a switch has no fixed number of nodes, and none is given");
		return ds_err_fix(err, "add a line: nodes = N, N being 2..%d", PREP_NODES_MAX);
	}
	if (c->nodes == 0)
		c->nodes = want[c->shape];
	if (c->shape != PREP_SWITCH && c->nodes != want[c->shape]) {
		snprintf(why, sizeof(why), "nodes = %" PRId64 ", but a %s has %" PRId64, c->nodes,
			 shape_words[c->shape], want[c->shape]);
		return misfit(c, line_of(seen, "nodes"), err, why);
	}
	if (c->node == 0) {
		misfit(c, 0, err, "no line says which node this is");
		return ds_err_fix(err, "add a line: node = N, N being 1..%" PRId64, c->nodes);
	}
	if (c->node > c->nodes) {
		snprintf(why, sizeof(why), "node = %" PRId64 ", but there are %" PRId64 " nodes",
			 c->node, c->nodes);
		return misfit(c, c->line_node, err, why);
	}
	return 0;
}

static int check_rest(struct prep_conf *c, struct ds_err *err)
{
	char why[160];
	bool one_cage = c->shape == PREP_PAIR || c->shape == PREP_SWITCH;
	if (!one_cage && c->cage >= 0) {
		snprintf(why, sizeof(why), "cage = %" PRId64 ", but a %s uses both cages", c->cage,
			 shape_words[c->shape]);
		return misfit(c, c->line_cage, err, why);
	}
	if (1u << (24 - c->subnets_len) < 2 * n_edges(c->shape)) {
		snprintf(why, sizeof(why), "subnets has room for %u networks of /24, a %s needs %u",
			 1u << (24 - c->subnets_len), shape_words[c->shape], 2 * n_edges(c->shape));
		return misfit(c, c->line_subnets, err, why);
	}
	if (c->management[0] == '\0') {
		misfit(c, 0, err, "no line names the management interface");
		return ds_err_fix(err, "add a line: management = IF, the interface of your login "
				       "and default route");
	}
	return 0;
}

int prep_conf_parse(const char *file, const char *text, size_t len, struct prep_conf *c,
		    struct ds_err *err)
{
	struct prep_conf got = { .cage = -1, .subnets_len = 16 };
	got.subnets.s_addr = htonl(0x0ac80000); /* 10.200.0.0 */
	snprintf(got.file, sizeof(got.file), "%s", file);
	unsigned int seen[N_ROWS];
	if (ds_settings_load(rows, N_ROWS, &got, file, text, len, seen, err) != 0)
		return -1;
	got.line_node = line_of(seen, "node");
	got.line_mtu = line_of(seen, "mtu");
	if (check_nodes(&got, seen, err) != 0 || check_rest(&got, err) != 0)
		return -1;
	*c = got;
	return 0;
}

void prep_conf_print(const struct prep_conf *c, struct ds_buf *out)
{
	char net[INET_ADDRSTRLEN], cage[24] = "auto";
	inet_ntop(AF_INET, &c->subnets, net, sizeof(net));
	if (c->cage >= 0)
		snprintf(cage, sizeof(cage), "%" PRId64, c->cage);
	ds_buf_puts(out, "; dsprep.conf - the same on every node but for the line \"node\"\n");
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct ds_setting *row = &rows[i];
		if (i == 0 || strcmp(row->section, rows[i - 1].section) != 0)
			ds_buf_printf(out, "[%s]\n", row->section);
		ds_buf_printf(out, "; %s%s%s\n", row->help, row->unit[0] != '\0' ? ", in " : "",
			      row->unit);
		ds_buf_printf(out, "%s%s = ",
			      strcmp(row->key, "management") == 0 && c->management[0] == '\0' ? ";"
											      : "",
			      row->key);
		if (row->type == DS_SET_ENUM)
			ds_buf_puts(out, shape_words[c->shape]);
		else if (row->type == DS_SET_INT)
			ds_buf_printf(
				out, "%" PRId64,
				*(const int64_t *)(const void *)((const char *)c + row->offset));
		else if (row->call == set_cage)
			ds_buf_puts(out, cage);
		else if (row->call == set_subnets)
			ds_buf_printf(out, "%s/%u", net, c->subnets_len);
		else
			ds_buf_puts(out, c->management);
		ds_buf_putc(out, '\n');
	}
}

/*
 * report.c - the text of host.json, and whether the one on disk says the same. It reads facts
 * through the accessor and writes nothing; ops.c puts the text in place.
 */
#include "report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

#define GIDS_MAX 256

static const char *const shape_names[] = {
	[PREP_PAIR] = "pair",
	[PREP_TRIANGLE] = "triangle",
	[PREP_RING] = "ring",
	[PREP_SWITCH] = "switch",
};

static void put_ipv4(struct ds_json *j, const char *key, struct in_addr a, int prefix)
{
	char text[INET_ADDRSTRLEN + 4];
	inet_ntop(AF_INET, &a, text, INET_ADDRSTRLEN);
	if (prefix >= 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "/%d", prefix);
	ds_json_kstr(j, key, text);
}

/*
 * The GID to use is RoCE v2, IPv4-mapped, of our address and of this function's netdev (host.md
 * 3.5); its place in the table is looked up, never assumed. Return: index, -1 = none.
 */
static int find_gid(struct prep_access *a, const char *ibdev, const char *netdev,
		    struct in_addr addr, char *gid, size_t size)
{
	const uint8_t *b = (const uint8_t *)&addr;
	char want[48], path[192], text[64];
	snprintf(want, sizeof(want), "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", b[0], b[1],
		 b[2], b[3]);
	for (int i = 0; i < GIDS_MAX; i++) {
		const char *base = "/sys/class/infiniband";
		snprintf(path, sizeof(path), "%s/%s/ports/1/gids/%d", base, ibdev, i);
		int e = prep_read_line(a, path, text, sizeof(text));
		if (e == ENOENT)
			break;
		if (e != 0 || strcmp(text, want) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s/ports/1/gid_attrs/types/%d", base, ibdev, i);
		if (prep_read_line(a, path, text, sizeof(text)) != 0 ||
		    strcmp(text, "RoCE v2") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s/ports/1/gid_attrs/ndevs/%d", base, ibdev, i);
		if (prep_read_line(a, path, text, sizeof(text)) != 0 || strcmp(text, netdev) != 0)
			continue;
		snprintf(gid, size, "%s", want);
		return i;
	}
	return -1;
}

static void put_rdma(struct ds_json *j, struct prep_access *a, const struct prep_rail *r,
		     const char *ibdev)
{
	char gid[48] = "";
	int index = -1;
	if (ibdev[0] != '\0')
		index = find_gid(a, ibdev, r->ifname, r->addr, gid, sizeof(gid));
	ds_json_kstr(j, "ibdev", ibdev[0] != '\0' ? ibdev : NULL);
	ds_json_key(j, "port");
	if (ibdev[0] != '\0')
		ds_json_int(j, 1);
	else
		ds_json_null(j);
	ds_json_kstr(j, "gid", index >= 0 ? gid : NULL);
	ds_json_key(j, "gid_index");
	if (index >= 0)
		ds_json_int(j, index);
	else
		ds_json_null(j);
}

static void put_numa(struct ds_json *j, struct prep_access *a, const char *ifname)
{
	char path[96], text[16];
	snprintf(path, sizeof(path), "/sys/class/net/%s/device/numa_node", ifname);
	long node = -1;
	if (prep_read_line(a, path, text, sizeof(text)) == 0)
		node = strtol(text, NULL, 10);
	ds_json_key(j, "numa");
	if (node >= 0)
		ds_json_int(j, node);
	else
		ds_json_null(j);
}

static void put_rail(struct ds_json *j, struct prep_access *a, const struct prep_conf *c,
		     const struct prep_host *h, const struct prep_rail *r)
{
	const struct prep_link *l = prep_host_link(h, r->ifname);
	ds_json_object(j);
	ds_json_kint(j, "rail", r->rail);
	ds_json_kint(j, "cage", r->cage);
	ds_json_kstr(j, "edge", r->edge);
	ds_json_kstr(j, "netdev", r->ifname);
	ds_json_key(j, "ifindex");
	if (l != NULL)
		ds_json_int(j, l->ifindex);
	else
		ds_json_null(j);
	put_rdma(j, a, r, l != NULL ? l->ibdev : "");
	put_ipv4(j, "ipv4", r->addr, r->prefix);
	ds_json_kint(j, "mtu", c->mtu);
	ds_json_knull(j, "active_mtu");
	put_numa(j, a, r->ifname);
	ds_json_kstr(j, "identified_by",
		     l == NULL			     ? NULL
		     : l->identified == PREP_ID_PCI  ? "pci"
		     : l->identified == PREP_ID_NAME ? "name"
						     : NULL);
	ds_json_key(j, "peers");
	ds_json_array(j);
	for (int i = 0; i < r->n_peer; i++) {
		ds_json_object(j);
		ds_json_kint(j, "node", r->peer[i].node);
		put_ipv4(j, "ipv4", r->peer[i].addr, -1);
		ds_json_end(j);
	}
	ds_json_end(j);
	ds_json_end(j);
}

int prep_report_make(struct prep_access *a, const struct prep_conf *c, const struct prep_plan *p,
		     const struct prep_host *h, uint64_t generation, struct ds_buf *out,
		     struct ds_err *err)
{
	struct ds_json j;
	char release[96];
	bool known = prep_read_line(a, "/proc/sys/kernel/osrelease", release, sizeof(release)) == 0;
	ds_buf_reset(out);
	ds_json_init(&j, out, 2);
	ds_json_object(&j);
	ds_json_kint(&j, "format", 1);
	ds_json_kstr(&j, "boot_id", h->boot_id);
	ds_json_kuint(&j, "generation", generation);
	ds_json_kint(&j, "node", c->node);
	ds_json_kint(&j, "nodes", c->nodes);
	ds_json_kstr(&j, "shape", shape_names[c->shape]);
	ds_json_key(&j, "kernel");
	ds_json_object(&j);
	ds_json_kstr(&j, "release", known ? release : NULL);
	ds_json_knull(&j, "verdict");
	ds_json_end(&j);
	ds_json_key(&j, "rails");
	ds_json_array(&j);
	for (int i = 0; i < p->n_rail; i++)
		put_rail(&j, a, c, h, &p->rail[i]);
	ds_json_end(&j);
	ds_json_end(&j);
	ds_buf_putc(out, '\n');
	if (out->failed)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, PREP_REPORT_FILE, "write");
	return 0;
}

bool prep_report_settled(struct prep_access *a, const struct prep_plan *p,
			 const struct prep_host *h)
{
	for (int i = 0; i < p->n_rail; i++) {
		const struct prep_rail *r = &p->rail[i];
		const struct prep_link *l = prep_host_link(h, r->ifname);
		char gid[48];
		if (l != NULL && l->ibdev[0] != '\0' &&
		    find_gid(a, l->ibdev, r->ifname, r->addr, gid, sizeof(gid)) < 0)
			return false;
	}
	return true;
}

static uint64_t read_generation(const struct ds_buf *b)
{
	json_t *o = json_loadb(b->data, b->len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *g = json_object_get(o, "generation");
	uint64_t v = 0;
	if (json_is_integer(g) && json_integer_value(g) > 0)
		v = (uint64_t)json_integer_value(g);
	json_decref(o);
	return v;
}

bool prep_report_current(struct prep_access *a, const struct prep_conf *c,
			 const struct prep_plan *p, const struct prep_host *h, uint64_t *generation)
{
	struct ds_buf have = { 0 }, want = { 0 };
	uint64_t g = 0;
	bool same = false;
	if (prep_read(a, PREP_REPORT_FILE, &have) == 0 && have.len <= PREP_REPORT_BYTES_MAX)
		g = read_generation(&have);
	if (g != 0 && prep_report_make(a, c, p, h, g, &want, NULL) == 0)
		same = have.len == want.len && memcmp(have.data, want.data, want.len) == 0;
	if (generation != NULL)
		*generation = g;
	ds_buf_fini(&have);
	ds_buf_fini(&want);
	return same;
}

/*
 * host.c - questions about an observed host that need no reading: look-ups, and which interfaces
 * are rails. Pure functions over struct prep_host; probe.c fills it.
 */
#include "host.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* clang-format off */
const struct prep_sysctl_row prep_sysctls[PREP_SC_N] = {
	[PREP_SC_ARP_IGNORE]    = { "ipv4", "arp_ignore",    1 },
	[PREP_SC_ARP_ANNOUNCE]  = { "ipv4", "arp_announce",  2 },
	[PREP_SC_RP_FILTER]     = { "ipv4", "rp_filter",     2 },
	[PREP_SC_ARP_FILTER]    = { "ipv4", "arp_filter",    0 },
	[PREP_SC_ADDR_GEN_MODE] = { "ipv6", "addr_gen_mode", 1 },
	[PREP_SC_ACCEPT_RA]     = { "ipv6", "accept_ra",     0 },
};

/* host.md 1.1: the four functions of a Spark, and where they sit. */
static const struct {
	const char *name;
	int cage, rail;
} spark_names[] = {
	{ "enp1s0f0np0",   0, 0 },
	{ "enp1s0f1np1",   1, 0 },
	{ "enP2p1s0f0np0", 0, 1 },
	{ "enP2p1s0f1np1", 1, 1 },
};
/* clang-format on */

void prep_host_fini(struct prep_host *h)
{
	free(h->link);
	free(h->addr);
	free(h->route);
	*h = (struct prep_host){ 0 };
}

const struct prep_link *prep_host_link(const struct prep_host *h, const char *name)
{
	for (uint32_t i = 0; i < h->n_link; i++)
		if (strcmp(h->link[i].name, name) == 0)
			return &h->link[i];
	return NULL;
}

const struct prep_link *prep_host_ifindex(const struct prep_host *h, int ifindex)
{
	for (uint32_t i = 0; i < h->n_link; i++)
		if (h->link[i].ifindex == ifindex)
			return &h->link[i];
	return NULL;
}

const struct prep_link *prep_host_rail(const struct prep_host *h, int cage, int rail)
{
	for (uint32_t i = 0; i < h->n_link; i++) {
		const struct prep_link *l = &h->link[i];
		if (l->identified != PREP_ID_NONE && l->cage == cage && l->rail == rail)
			return l;
	}
	return NULL;
}

const struct prep_link *prep_host_default_link(const struct prep_host *h)
{
	const struct prep_route *best = NULL;
	for (uint32_t i = 0; i < h->n_route; i++) {
		const struct prep_route *r = &h->route[i];
		if (r->dst_len != 0 || r->oif == 0 || r->table != 254)
			continue;
		bool better = best == NULL || (r->family == AF_INET && best->family != AF_INET) ||
			      (r->family == best->family && r->metric < best->metric);
		if (better)
			best = r;
	}
	return best != NULL ? prep_host_ifindex(h, best->oif) : NULL;
}

/* Rail from the PCI domain, cage from the port's name, else from the function number. */
static void identify_pci(struct prep_link *l)
{
	char *end;
	unsigned long domain = strtoul(l->pci, &end, 16);
	if (end == l->pci || *end != ':' || (domain != 0 && domain != 2))
		return;
	const char *dot = strrchr(l->pci, '.');
	int cage = -1;
	/* Any other port name is a representor or a virtual function of the same PCI device. */
	if (strcmp(l->port_name, "p0") == 0 || strcmp(l->port_name, "p1") == 0)
		cage = l->port_name[1] - '0';
	else if (l->port_name[0] == '\0' && dot != NULL && (dot[1] == '0' || dot[1] == '1') &&
		 dot[2] == '\0')
		cage = dot[1] - '0';
	if (cage < 0)
		return;
	l->identified = PREP_ID_PCI;
	l->rail = domain == 0 ? 0 : 1;
	l->cage = cage;
}

static void identify_name(struct prep_link *l)
{
	for (size_t i = 0; i < sizeof(spark_names) / sizeof(spark_names[0]); i++) {
		if (strcmp(l->name, spark_names[i].name) != 0)
			continue;
		l->identified = PREP_ID_NAME;
		l->rail = spark_names[i].rail;
		l->cage = spark_names[i].cage;
	}
}

/* The kernel allows control bytes in a name; what could steer a terminal is no rail of ours. */
static bool is_plain(const char *name)
{
	for (; *name != '\0'; name++)
		if (!isgraph((unsigned char)*name))
			return false;
	return true;
}

void prep_host_identify(struct prep_host *h)
{
	bool here = false;
	for (uint32_t i = 0; i < h->n_link; i++) {
		struct prep_link *l = &h->link[i];
		l->identified = PREP_ID_NONE;
		l->rail = l->cage = -1;
		if (l->pci[0] != '\0') {
			here = true;
			if (is_plain(l->name))
				identify_pci(l);
		}
	}
	/* A name proves nothing where the real functions are, or could be a moment later. */
	if (here || (h->initial_netns && h->n_function > 0))
		return;
	for (uint32_t i = 0; i < h->n_link; i++)
		identify_name(&h->link[i]);
}

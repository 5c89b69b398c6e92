/*
 * host_text.c - an observed host as a few lines of text, for golden plans and doctor tests.
 */
#include "host_text.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 32

static const char *option(const char *word, const char *key)
{
	size_t n = strlen(key);
	return strncmp(word, key, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static int take_link(struct prep_host *h, char **save)
{
	static const int fresh[PREP_SC_N] = { 0, 0, 0, 0, 0, 1 };
	struct prep_link *l = &h->link[h->n_link];
	*l = (struct prep_link){ .ifindex = (int)h->n_link + 2, .carrier = -1, .mtu = 1500 };
	const char *w = strtok_r(NULL, " ", save), *v;
	if (w == NULL || h->n_link == MAX_ROWS || strlen(w) >= sizeof(l->name))
		return -1;
	strcpy(l->name, w);
	memcpy(l->sysctl, fresh, sizeof(fresh));
	bool up = false, carrier = false;
	while ((w = strtok_r(NULL, " ", save)) != NULL) {
		if (strcmp(w, "up") == 0)
			up = true;
		else if (strcmp(w, "carrier") == 0)
			carrier = true;
		else if (strcmp(w, "ipv6-off") == 0)
			l->sysctl[PREP_SC_ADDR_GEN_MODE] = l->sysctl[PREP_SC_ACCEPT_RA] = -1;
		else if (strcmp(w, "tuned") == 0)
			for (int i = 0; i < PREP_SC_N; i++)
				l->sysctl[i] = prep_sysctls[i].want;
		else if ((v = option(w, "mtu")) != NULL)
			l->mtu = (uint32_t)strtoul(v, NULL, 10);
		else if ((v = option(w, "max")) != NULL)
			l->max_mtu = (uint32_t)strtoul(v, NULL, 10);
		else if ((v = option(w, "pci")) != NULL)
			snprintf(l->pci, sizeof(l->pci), "%s", v);
		else if ((v = option(w, "port")) != NULL)
			snprintf(l->port_name, sizeof(l->port_name), "%s", v);
		else if ((v = option(w, "lower")) != NULL && prep_host_link(h, v) != NULL)
			l->lower = prep_host_link(h, v)->ifindex;
		else if (strcmp(w, "loopback") == 0)
			l->flags |= IFF_LOOPBACK;
		else if ((v = option(w, "master")) != NULL && prep_host_link(h, v) != NULL)
			l->master = prep_host_link(h, v)->ifindex;
		else
			return -1;
	}
	if (up) {
		l->flags |= IFF_UP;
		l->carrier = carrier;
	}
	h->n_link++;
	return 0;
}

/* "A/LEN" into @local. Return: the length, or -1. */
static int take_net(const char *text, uint8_t *family, void *local)
{
	char addr[64];
	int len;
	if (text == NULL || sscanf(text, "%63[0-9a-f.:]/%d", addr, &len) != 2)
		return -1;
	*family = strchr(addr, ':') != NULL ? AF_INET6 : AF_INET;
	return inet_pton(*family, addr, local) == 1 ? len : -1;
}

static int take_addr(struct prep_host *h, char **save)
{
	struct prep_addr *a = &h->addr[h->n_addr];
	const char *name = strtok_r(NULL, " ", save), *w;
	const struct prep_link *l = name != NULL ? prep_host_link(h, name) : NULL;
	*a = (struct prep_addr){ .flags = IFA_F_PERMANENT };
	int len = take_net(strtok_r(NULL, " ", save), &a->family, &a->local);
	if (l == NULL || len < 0 || h->n_addr == MAX_ROWS)
		return -1;
	a->ifindex = l->ifindex;
	a->prefix = (uint8_t)len;
	while ((w = strtok_r(NULL, " ", save)) != NULL) {
		if (strcmp(w, "secondary") == 0)
			a->flags |= IFA_F_SECONDARY;
		else if (strcmp(w, "dynamic") == 0)
			a->flags &= ~(uint32_t)IFA_F_PERMANENT;
		else if (strcmp(w, "kernel") == 0)
			a->proto = IFAPROT_KERNEL_LL;
		else
			return -1;
	}
	h->n_addr++;
	return 0;
}

static int take_route(struct prep_host *h, char **save)
{
	struct prep_route *r = &h->route[h->n_route];
	const char *dst = strtok_r(NULL, " ", save), *name = strtok_r(NULL, " ", save);
	const char *w = strtok_r(NULL, " ", save);
	const struct prep_link *l = name != NULL ? prep_host_link(h, name) : NULL;
	*r = (struct prep_route){ .family = AF_INET, .table = RT_TABLE_MAIN };
	if (l == NULL || h->n_route == MAX_ROWS)
		return -1;
	int len = strcmp(dst, "default") == 0 ? 0 : take_net(dst, &r->family, &r->dst);
	if (len < 0)
		return -1;
	r->dst_len = (uint8_t)len;
	r->oif = l->ifindex;
	if (w != NULL && option(w, "metric") != NULL)
		r->metric = (uint32_t)strtoul(option(w, "metric"), NULL, 10);
	h->n_route++;
	return 0;
}

static int take_line(struct prep_host *h, char *line)
{
	char *save = NULL, *comment = strchr(line, '#');
	if (comment != NULL)
		*comment = '\0';
	const char *w = strtok_r(line, " ", &save);
	if (w == NULL)
		return 0;
	if (strcmp(w, "link") == 0)
		return take_link(h, &save);
	if (strcmp(w, "addr") == 0)
		return take_addr(h, &save);
	if (strcmp(w, "route") == 0)
		return take_route(h, &save);
	if (strcmp(w, "initial") == 0)
		h->initial_netns = true;
	else if (strcmp(w, "functions") == 0 && (w = strtok_r(NULL, " ", &save)) != NULL)
		h->n_function = (uint32_t)strtoul(w, NULL, 10);
	else
		return -1;
	return 0;
}

int tst_host_text(const char *text, struct prep_host *h)
{
	*h = (struct prep_host){ .have_netlink = true };
	h->link = calloc(MAX_ROWS + 1, sizeof(*h->link));
	h->addr = calloc(MAX_ROWS + 1, sizeof(*h->addr));
	h->route = calloc(MAX_ROWS + 1, sizeof(*h->route));
	char *copy = strdup(text), *save = NULL;
	int line = 0, bad = 0;
	if (h->link == NULL || h->addr == NULL || h->route == NULL || copy == NULL)
		abort();
	for (char *l = strtok_r(copy, "\n", &save); l != NULL && bad == 0;
	     l = strtok_r(NULL, "\n", &save)) {
		line++;
		if (take_line(h, l) != 0)
			bad = line;
	}
	free(copy);
	prep_host_identify(h);
	return bad;
}
